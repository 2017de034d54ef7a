"""A tiny Qwen3 with Qwen3's own chat template: served, prompted by ids, trained, saved, and served again."""

import json
from pathlib import Path

import pytest
import torch
import transformers
import trl

from swelab.configs.kinds.policy import Job
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.chat.turn_form import form_of
from swelab.models.serving.engine import Weights
from swelab.models.serving.fleet import open_fleet
from swelab.rl.batch_shares import TrainingSample
from swelab.rl.learner import Learner
from swelab.rl.samples import samples
from swelab.rl.token_model import TokenModel
from swelab.rl.token_template import TokenTemplate
from tests.contract.test_served_tokens import scores
from tests.rl_recipe import rl_recipe
from tests.toy_checkpoint import SCAFFOLD, VOCAB, make_checkpoint
from tests.unit.rl.test_token_model import Spelled

TEMPLATE = Path(trl.__file__).parent / "chat_templates/qwen3.jinja"
CONTEXT = 2048
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": CONTEXT,
    "eos_token_id": VOCAB - 1, "tie_word_embeddings": True,
}  # fmt: skip
SAMPLING = {"temperature": 0.8, "top_p": 1.0, "max_tokens": 24}
ASKED = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": "it fails"}]
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
CALLING = SCAFFOLD.model_copy(update={"calls": "bash"})


def make_qwen3(folder):
    """Writes random weights in transformers' own files, the toy tokenizer, and Qwen3's template.

    Returns the folder.
    """
    make_checkpoint(folder)
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        (folder / name).unlink()
    torch.manual_seed(0)
    config = transformers.Qwen3Config(**SHAPE)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(
        json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE.read_text()})
    )
    return folder


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    return make_qwen3(tmp_path_factory.mktemp("qwen3") / "toy")


def told(qwen3, scaffold, thinking):
    """Returns the template as `model_maker` makes it."""
    return TokenTemplate.of(qwen3).offering(form_of(scaffold).offered.get("tools", ()), thinking)


def conversation(qwen3, answers, scaffold=SCAFFOLD, thinking=None):
    """Returns (template, prompts of an engine that gives these answers, conversation)."""
    template = told(qwen3, scaffold, thinking)
    engine = Spelled(template, answers)
    model, messages = TokenModel(engine, template, scaffold, SAMPLING, "toy"), list(ASKED)
    for _ in answers:
        message = model.query(messages)
        shown = [{"output": "a.py", "returncode": 0, "exception_info": ""}]
        messages += [message, *model.format_observation_messages(message, shown)]
    return template, [template._tokenizer.decode(prompt) for prompt in engine.prompts], messages


def test_calls_of_tools_read_as_the_template_has_them(qwen3):
    template, prompts, messages = conversation(qwen3, [CALL, CALL], CALLING)
    assert [message["role"] for message in messages[2:]] == ["assistant", "tool"] * 2
    assert messages[2]["extra"]["actions"][0]["command"] == "ls"
    assert '"name": "bash"' in prompts[0].partition("<tools>\n")[2].partition("\n</tools>")[0]
    assert prompts[1] == template._render(messages[:4])
    assert prompts[1].endswith(
        f"assistant\n{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\na.py\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_thoughts_stay_as_they_were_sampled_and_command_nothing(qwen3):
    thought = f"<think>\nperhaps {CALL}\n</think>\n\n"
    _, prompts, messages = conversation(qwen3, [thought + CALL, CALL], CALLING)
    assert f"assistant\n{thought}{CALL}<|im_end|>" in prompts[1]
    assert len(messages[2]["tool_calls"]) == 1 and "perhaps" in messages[2]["content"]
    assert "</think>" in TokenTemplate.of(qwen3).changes_history()


def test_thoughts_can_be_asked_away(qwen3):
    _, prompts, _ = conversation(qwen3, ["ls", "ls"], thinking=False)
    assert all(prompt.endswith("assistant\n<think>\n\n</think>\n\n") for prompt in prompts)
    assert prompts[1].startswith(f"{prompts[0]}ls<|im_end|>\n<|im_start|>user\na.py<|im_end|>")
    assert not conversation(qwen3, ["ls"], thinking=True)[1][0].endswith("</think>\n\n")


@pytest.mark.real
@pytest.mark.full
def test_it_is_served_trained_saved_and_served_again(qwen3, tmp_path):
    sizes = {"context_length": CONTEXT, "max_total_tokens": 4 * CONTEXT, "max_running_requests": 4}
    with open_fleet(qwen3, name="toy", job=Job(), log=tmp_path / "server.log", **sizes) as (fleet, endpoint):
        template = told(qwen3, SCAFFOLD, False)
        turns = [rolled_out(endpoint, template) for _ in range(2)]
        assert largest_difference(qwen3, turns) < 1e-3
        rollouts = {"temperature": SAMPLING["temperature"]}
        recipe = rl_recipe(rollouts=rollouts, train={"lr": 1e-2, "weight_decay": 0.0})
        learner = Learner(qwen3, recipe)
        batch = [trained(turns[0], 1.0), trained(turns[1], -1.0)]
        before = [sum(found) for found in learner.logprobs([each.sample for each in batch])]
        found = learner.train(batch)
        after = [sum(found) for found in learner.logprobs([each.sample for each in batch])]
        assert found["logprob_mismatch_max"] < 1e-3 and found["grad_norm"] > 0
        assert after[0] > before[0] and after[1] < before[1]
        learner.save(saved := tmp_path / "saved")
        assert fleet.publish(Weights(saved, "1")) == 1
        again = rolled_out(endpoint, template)
        assert again[0].versions[0][1] == "1" and largest_difference(saved, [again]) < 1e-3
        assert largest_difference(qwen3, [again]) > 1e-2, "the new weights answered"
    assert Learner(saved, recipe).logprobs([samples(again)[0]])[0] == pytest.approx(
        samples(again)[0].logprobs, abs=1e-3
    )


def rolled_out(endpoint, template):
    """Returns the turns of a conversation with three turns."""
    model, messages = TokenModel(ServedTokens(endpoint), template, SCAFFOLD, SAMPLING, "toy"), list(ASKED)
    for _ in range(3):
        message = model.query(messages)
        shown = [{"output": "a.py", "returncode": 0, "exception_info": ""}]
        messages += [message, *model.format_observation_messages(message, shown)]
    return model.turns


def largest_difference(weights, conversations):
    """Returns the largest difference of the engine's log-probabilities of sampled ids to transformers'."""
    every = [turn for turns in conversations for turn in turns]
    return max(
        (scores(weights, turn, SAMPLING["temperature"]) - torch.tensor(turn.logprobs)).abs().max().item()
        for turn in every
    )


def trained(turns, advantage):
    (sample,) = samples(turns)
    tokens = 2 * sample.trained
    return TrainingSample(
        sample, [advantage * each for each in sample.mask], [each / tokens for each in sample.mask], "it"
    )
