"""Turns from verl's servers."""

import asyncio
from types import SimpleNamespace

import pytest

from swelab.models import ContextLimit, ModelLost
from swelab.rl.engines.verl_tokens import VerlTokens, spans

SAMPLING = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 8}


class Client:
    def __init__(self, **answer):
        self.answer, self.asked = answer, []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.asked.append((request_id, prompt_ids, sampling_params))
        if "error" in self.answer:
            raise self.answer["error"]
        found = {"token_ids": [5, 6], "log_probs": [-1.0, -2.0], "stop_reason": "stop", "extra_fields": {}}
        return SimpleNamespace(**{**found, **self.answer})


def turn(client, prompt=(1, 2, 3), most=100, calls=1):
    """Returns a turn, requested as a rollout does: in a thread, while the loop runs."""

    async def ask():
        engine = VerlTokens(client, {"top_k": -1, "logprobs": True}, most, 4)
        loop = asyncio.get_running_loop()
        found = [await loop.run_in_executor(None, engine.generate, prompt, SAMPLING) for _ in range(calls)]
        return found[-1]

    return asyncio.run(ask())


def test_a_turn_is_what_was_sampled_and_a_rollout_has_one_request_id():
    client = Client(extra_fields={"min_global_steps": 2, "max_global_steps": 2})
    found = turn(client, calls=2)
    assert (found.prompt, found.sampled, found.logprobs) == ((1, 2, 3), (5, 6), (-1.0, -2.0))
    assert found.finish == "stop" and found.versions == ((0, "2"),)
    (first, prompt, sampling), (second, *_) = client.asked
    assert first == second and prompt == [1, 2, 3]
    assert sampling == {"top_k": -1, "top_p": 0.9, "logprobs": True, "max_tokens": 8}


def test_a_turn_is_no_longer_than_the_context_has_room_for():
    client = Client()
    turn(client, prompt=tuple(range(95)))
    assert client.asked[0][2]["max_tokens"] == 4
    with pytest.raises(ContextLimit):
        turn(client, prompt=tuple(range(99)))


def test_versions_that_no_server_told_are_those_of_the_step():
    assert turn(Client(stop_reason="length")).versions == ((0, "4"),)
    assert turn(Client(stop_reason="length")).finish == "length"


@pytest.mark.parametrize(
    "answer", [{"error": RuntimeError("gone")}, {"stop_reason": "abort"}, {"log_probs": None}]
)
def test_what_a_server_does_not_answer_is_lost(answer):
    with pytest.raises(ModelLost):
        turn(Client(**answer))


def test_tokens_of_several_weights_count_as_the_oldest_but_for_the_last():
    assert spans(5, 3, 4) == ((0, "3"), (4, "4"))
    assert spans(5, 4, 4) == spans(1, 3, 4) == ((0, "4"),)
    assert spans(0, 3, 4) == ()
