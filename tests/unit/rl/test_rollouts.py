"""The parts of a rollout that survive a kill."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records.attempt_records import Rollout
from swelab.records.task_records import Task
from swelab.rl import rollouts
from swelab.rl.places import journal_of
from swelab.rl.rewards import zero_or_one
from swelab.rl.rollouts import Place, RolledOut, RolloutRequest, StepJournal, read_turn, write_turn
from swelab.rl.validating import Validation, Validations

ASKED = RolloutRequest(4, 2, Task.of(Task.of({"instance_id": "x"})))
TURNS = tuple(
    TokenTurn((1, 2, n), (3, n), (-0.1234567890123456, -2e-9), "stop", ((0, "5"),)) for n in range(3)
)


def done(outcome="submitted", status="resolved", resolved=True):
    trajectory = {"outcome": outcome, "messages": [{"role": "user", "content": "\udcff"}]}
    return RolledOut(
        ASKED, trajectory, {"status": status, "resolved": resolved}, TURNS, {"run": 1, "grade": 2}
    )


def test_turns_and_results_are_read_back_as_they_were(tmp_path):
    assert read_turn(write_turn(TURNS[0])) == TURNS[0]
    with Journal(tmp_path / "step.jsonl") as journal:
        kept = StepJournal(journal)
        for number, turn in enumerate(TURNS[:2]):
            kept.add_turn(ASKED, number, turn)
        assert kept.result(ASKED) is None
    with Journal(tmp_path / "step.jsonl") as journal:
        kept = StepJournal(journal)
        assert kept.turns(ASKED) == list(TURNS[:2]) and kept.turns(RolloutRequest(4, 3, ASKED.task)) == []
        kept.add_result(done())
    with Journal(tmp_path / "step.jsonl") as journal:
        assert StepJournal(journal).result(ASKED) == done()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place whose attempts end with a patch. Its grader gives the next of `verdicts`."""
    calls, verdicts = {"attempts": 0, "grades": 0}, ["infra_error"] * 5 + ["resolved"]

    def attempt(*_):
        calls["attempts"] += 1
        rollout = {"instance_id": "x", "outcome": "submitted", "model_patch": "p", "messages": [], "info": {}}
        return Rollout.of(rollout)

    def grade(*_):
        calls["grades"] += 1
        status = verdicts.pop(0)
        return {"status": status, "resolved": status == "resolved"}

    monkeypatch.setattr(rollouts, "attempt_task", attempt)
    monkeypatch.setattr(rollouts, "grade_prediction", grade)
    bench = SimpleNamespace(backend=True, store=None, images={})
    return Place(bench, None, tmp_path, lambda *_: None), calls


def test_a_lost_verdict_is_asked_for_again(place, tmp_path):
    made, calls = place
    for attempts, grades, status in [(1, 3, "infra_error"), (1, 6, "resolved"), (1, 6, "resolved")]:
        with Journal(tmp_path / "step.jsonl") as journal:
            found = made.roll_out(ASKED, StepJournal(journal))
        assert (calls, found.grade["status"]) == ({"attempts": attempts, "grades": grades}, status)
        assert found.is_graded == (status == "resolved")


def test_each_validation_has_its_own_journal_on_hosts(tmp_path):
    requests = [ASKED, *(replace(ASKED, validation=f"validation-a-{steps:05d}-") for steps in (5, 10))]
    assert len({journal_of(tmp_path, request) for request in requests}) == 3
    assert {request.name for request in requests} == {ASKED.name}


def test_a_validation_tells_its_attempts_which_it_is(tmp_path):
    asked = []

    def roll_out(request, journal):
        asked.append(request.validation)
        return replace(done(), request=request)

    maker = SimpleNamespace(roll_out=roll_out, judge=None)
    validations = Validations(tmp_path, Validation("abc", [ASKED.task], 5, maker), 10, 1)
    for steps in (5, 10):
        validations.run(steps)
    assert asked == ["validation-abc-00005-", "validation-abc-00010-"]


def test_what_a_group_is_told():
    attempt = done().attempt(zero_or_one)
    assert (attempt.end, attempt.grade, attempt.reward) == (RolloutEnd.SUBMITTED, GradeEnd.RESOLVED, 1.0)
    assert attempt.trained_tokens == 6 and not attempt.lost
    for lost in (done("sandbox_lost", "infra_error", False), done("submitted", "infra_error", False)):
        assert lost.attempt(zero_or_one).lost and lost.attempt(zero_or_one).reward is None
