"""A hosted judge: its votes on real questions and their cost. No vote is paid for twice."""

import pytest

from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.models.chat.litellm_calls import quiet_litellm
from swelab.rl.judging import RolloutVotes, open_judge
from tests.contract.hosted_service import PRICE, Service
from tests.unit.rl.test_judging import THREE

pytestmark = pytest.mark.real
SHARED = {"kind": "hosted", "scaffold": "demo", "model": "openai/toy", "api_key_env": "TOY_KEY"}


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("TOY_KEY", "secret")
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    quiet_litellm()
    made = []

    def start(*plan, **settings):
        made.append(Service(*plan, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


def judged(service, folder, **settings):
    policy = SHARED | {"price": PRICE, "budget_dollars": 1.0, "api_base": f"{service.url}/v1"}
    policy |= {"sampling": {"temperature": 1, "max_tokens": 64}, **settings}
    named = recipes.complete(POLICY, policy, "policy")
    return open_judge(named, "judge", votes=3, workers=4, folder=folder)


def test_votes_are_read_and_their_cost_is_the_services(service, tmp_path):
    here = service(speak=lambda turn, history: "It checks what matters.\nSo:\n\n\\boxed{+1}\n")
    with judged(here, tmp_path) as judge:
        assert RolloutVotes(judge, "a", "add is wrong").votes(THREE) == ((1, 1, 1),) * 3
        spent = judge.take_usage()
    assert spent["calls"] == len(here.requests) == 9
    assert spent["dollars"] == pytest.approx(here.charged)


def test_what_was_paid_for_before_a_kill_is_not_asked_for_again(service, tmp_path):
    here = service(speak=lambda turn, history: r"\boxed{-1}")
    with judged(here, tmp_path) as judge:
        before = RolloutVotes(judge, "a", "add is wrong").votes(THREE)
    charged = here.charged
    with judged(here, tmp_path) as judge:
        again = RolloutVotes(judge, "a", "add is wrong")
        assert again.votes(THREE) == before and here.charged == charged and len(here.requests) == 9
        again.forget()
        assert not list((tmp_path / "judge/turns").iterdir())
