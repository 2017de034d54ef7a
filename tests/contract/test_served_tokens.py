"""Turns as token ids from two real servers behind their gate, whose weights change during requests."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
import torch

from swelab.configs.kinds.policy import Job
from swelab.models import ContextLimit, ServingError
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.engine import Weights
from swelab.models.serving.fleet import open_fleet
from swelab.rl.samples import samples
from swelab.rl.token_model import TokenModel
from swelab.rl.token_template import TokenTemplate
from tests.toy_checkpoint import CONTEXT, SCAFFOLD, SIZES, make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 24}
ASKED_OF_ADMINS = {
    "/update_weights_from_disk": lambda folder: {"model_path": str(folder / "2")},
    "/pause_generation": lambda _: {"mode": "retract"},
    "/continue_generation": lambda _: {},
}
ASKED = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": "it fails"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    for seed in range(3):
        make_checkpoint(folder / str(seed), seed)
    return folder


@pytest.fixture(scope="module")
def served(folder):
    job = Job(servers=2)
    with open_fleet(folder / "0", name="toy", job=job, log=folder / "server.log", **SIZES) as found:
        yield found


@pytest.fixture(scope="module")
def template(folder):
    return TokenTemplate.of(folder / "0")


def scores(weights, turn, temperature):
    """Returns the log-probabilities of a turn's sampled ids by transformers, after temperature."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    ids = torch.tensor([[*turn.prompt, *turn.sampled]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(turn.prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, len(turn.prompt) :, None])[:, 0]


def assert_is_of(weights, turn):
    difference = (scores(weights, turn, SAMPLING["temperature"]) - torch.tensor(turn.logprobs)).abs()
    assert difference.mean() <= 1e-5 and difference.max() <= 1e-3, difference


def test_every_trained_token_is_what_the_engine_sampled(served, template, folder):
    """For a conversation: same id, position and mask, and the log-probability of the trainer's model."""
    _, endpoint = served
    model = TokenModel(ServedTokens(endpoint), template, SCAFFOLD, SAMPLING, "toy")
    messages = list(ASKED)
    for number in range(4):
        message = model.query(messages)
        shown = [{"output": f"result {number}", "returncode": 0, "exception_info": ""}]
        messages += [message, *model.format_observation_messages(message, shown)]
    (sample,) = samples(model.turns)
    for turn in model.turns:
        assert len(turn.sampled) == len(turn.logprobs) > 0 and turn.versions[0][0] == 0
        at = len(turn.prompt)
        assert sample.ids[:at] == list(turn.prompt)
        assert sample.ids[at : at + len(turn.sampled)] == list(turn.sampled)
        assert sample.mask[at : at + len(turn.sampled)] == [1] * len(turn.sampled)
        assert_is_of(folder / "0", turn)
    assert sample.trained == sum(len(turn.sampled) for turn in model.turns)


def test_settings_that_leave_tokens_out_change_no_log_probability_but_penalties_do(served, template, folder):
    """So rollouts for training take the former, and refuse the latter."""
    engine, prompt = ServedTokens(served[1]), template.opening(ASKED)
    assert_is_of(folder / "0", engine.generate(prompt, {**SAMPLING, "top_k": 5, "min_p": 0.05}))
    turn = engine.generate(prompt, {**SAMPLING, "repetition_penalty": 2.0, "max_tokens": 24})
    difference = scores(folder / "0", turn, SAMPLING["temperature"]) - torch.tensor(turn.logprobs)
    assert difference.abs().max() > 0.01


def test_what_is_too_long_is_a_full_context(served, template):
    _, endpoint = served
    with pytest.raises(ContextLimit):
        ServedTokens(endpoint).generate(template.ids("word " * CONTEXT), SAMPLING)


def test_weights_change_in_every_server_and_turns_say_which(served, template, folder):
    fleet, endpoint = served
    engine, prompt = ServedTokens(endpoint), template.opening(ASKED)
    assert fleet.publish(Weights(folder / "1", "step-1")) == 2
    for _ in range(6):
        turn = engine.generate(prompt, SAMPLING)
        assert turn.versions == ((0, "step-1"),)
        assert_is_of(folder / "1", turn)


def test_a_turn_goes_on_with_weights_that_came_while_it_ran(served, template, folder):
    """Tokens come from two versions and are labelled so. Each has the log-probability of its own version."""
    fleet, endpoint = served
    engine = ServedTokens(endpoint)
    fleet.publish(Weights(folder / "1", "old"))
    long = {"temperature": 1.0, "max_tokens": CONTEXT // 2, "ignore_eos": True}
    changed = Event()

    def generate():
        turns = [engine.generate(template.opening(ASKED), long)]
        while not changed.is_set():
            turns.append(engine.generate(template.opening(ASKED), long))
        return turns

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(generate) for _ in range(4)]
        time.sleep(0.5)
        fleet.publish(Weights(folder / "2", "new"), in_turns=True)
        changed.set()
        turns = [turn for each in running for turn in each.result()]
    (parted, *_) = [turn for turn in turns if len(turn.versions) == 2]
    (_, first), (at, second) = parted.versions
    assert (first, second) == ("old", "new") and 0 < at < len(parted.sampled)
    given = torch.tensor(parted.logprobs)
    assert (scores(folder / "1", parted, 1.0)[:at] - given[:at]).abs().max() <= 1e-3
    assert (scores(folder / "2", parted, 1.0)[at:] - given[at:]).abs().max() <= 1e-3
    assert engine.generate(template.opening(ASKED), SAMPLING).versions == ((0, "new"),)


def test_clients_cannot_change_weights(served, folder):
    fleet, endpoint = served
    for server in fleet.servers:
        url = server.endpoint.url.removesuffix("/v1")
        for key in (endpoint.api_key, "", "wrong"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            for path, asked in ASKED_OF_ADMINS.items():
                answer = httpx.post(url + path, json=asked(folder), headers=headers)
                assert answer.status_code == 401, (path, answer.text)
    assert endpoint.admin_key == "" and endpoint.api_key != fleet.servers[0].endpoint.admin_key


def test_weights_that_are_not_there_are_refused_and_the_old_ones_serve_on(served, template, folder):
    fleet, endpoint = served
    fleet.publish(Weights(folder / "2", "step-2"))
    with pytest.raises(ServingError, match="does not take weights"):
        fleet.publish(Weights(folder / "nowhere", "step-3"))
    assert ServedTokens(endpoint).generate(template.opening(ASKED), SAMPLING).versions == ((0, "step-2"),)
    assert fleet.publish(Weights(folder / "2", "step-4")) == 2
