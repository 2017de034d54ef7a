"""The debugger's tools in prompts are the same tokens in training rows, in RL and in evaluation."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import trl

from swelab.agents.agent import open_agent
from swelab.models.chat.served_models import ChatModel
from swelab.models.serving.server import Endpoint
from swelab.models.token_turn import TokenTurn
from swelab.records import read_json, write_json
from swelab.records.training_records import RowMessage, SftRow
from swelab.rl.token_model import TokenModel
from swelab.rl.token_template import TokenTemplate
from swelab.sft.rows.chat_template import PlainRows, template_message
from swelab.sft.rows.styles import Style, write_conversation
from tests.contract.debugging import FIX, Played, recipe, rollout
from tests.toy_checkpoint import make_checkpoint

pytestmark = pytest.mark.real
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 64}
CALLS = [
    ("First I see it fail.", "eval", {}),
    ("", "pdb", {"command": "start"}),
    ("Stop there.", "pdb", {"command": "b calc/core.py:2, a == 2"}),
    ("", "pdb", {"command": "c"}),
    ("It subtracts. \u00e4", "rewrite", FIX),
    ("", "eval", {}),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = make_checkpoint(tmp_path_factory.mktemp("qwen") / "toy")
    settings = read_json(folder / "tokenizer_config.json")
    told = {"chat_template": (TEMPLATES / "qwen2_5.jinja").read_text()}
    write_json(folder / "tokenizer_config.json", settings | told)
    return folder


class Sampling:
    """An engine that returns the given texts."""

    def __init__(self, template, answers):
        self.template, self.answers, self.prompts = template, iter(answers), []

    def generate(self, prompt, sampling):
        self.prompts.append(list(prompt))
        sampled = [*self.template.ids(next(self.answers)), self.template.turn_end_id]
        return TokenTurn(prompt, sampled, [-1.0] * len(sampled), "stop")


class Serving(ChatModel):
    """A served model that records its requests and returns given responses.

    calls: whether the server parses calls.
    """

    def __init__(self, loop, answers):
        super().__init__(Endpoint(url="http://none", api_key="", model="toy"), loop, SAMPLING)
        self.answers, self.requests = iter(answers), []

    def ask(self, messages):
        self.requests.append((json.loads(json.dumps(messages)), self.offered))
        content, calls = next(self.answers)
        usage = SimpleNamespace(plain=dict)
        facts = {"finish_reason": "stop", "usage": usage, "tool_calls": calls, "sent_back": {}}
        return SimpleNamespace(content=content, **facts)


def spelled(loop):
    """Returns the calls as a policy writes them, and as a server returns them."""
    form = open_agent(loop.agent).form(loop)
    given = [form.format_call(*call, number) for number, call in enumerate(CALLS)]
    texts = []
    for thought, calls in given:
        written = [
            f'<tool_call>\n{{"name": "{call["function"]["name"]}", "arguments": '
            f"{call['function']['arguments']}}}\n</tool_call>"
            for call in calls
        ]
        texts.append("\n".join(filter(None, [thought, *written])))
    return texts, given


def row_of(trajectory, calls):
    """Returns the training row of a trajectory that was read from a file."""
    if calls == "xml":
        spoken = [message for message in trajectory.messages if message.role != "exit"]
        found = {"messages": [{name: message[name] for name in ("role", "content")} for message in spoken]}
    else:
        written = write_conversation(trajectory, Style("tool"))
        assert not written.notes
        found = {"messages": written.messages, "tools": written.tools}
    return SftRow.of(json.loads(json.dumps(found | {"instance_id": "x", "resolved": True})))


@pytest.mark.parametrize(
    "calls", ["qwen", *(pytest.param(form, marks=pytest.mark.full) for form in ("api", "xml"))]
)
def test_rows_rl_and_evaluation_hold_the_same_tokens(calls, checkpoint, place_of_rollouts):
    loop = recipe(calls=calls, system_template="{{tools}}\n{{tree}}" if calls == "xml" else "{{tree}}")
    texts, given = spelled(loop)
    offered = open_agent(loop.agent).form(loop).offered.get("tools", ())
    template = TokenTemplate.of(checkpoint, offered)

    scripted = rollout(place_of_rollouts, loop, lambda: Played(loop, CALLS))
    plain = PlainRows(checkpoint).of(row_of(scripted, calls))
    trained = template.ids("".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in plain))

    engine = Sampling(template, texts)
    rl = rollout(place_of_rollouts, loop, lambda: TokenModel(engine, template, loop, SAMPLING, "toy"))
    assert rl["outcome"] == scripted["outcome"] == "submitted" and len(engine.prompts) == len(CALLS)
    for number, prompt in enumerate(engine.prompts):
        assert trained[: len(prompt)] == prompt, f"turn {number}: RL reads other tokens than rows hold"

    serving = Serving(loop, given)
    served = rollout(place_of_rollouts, loop, lambda: serving)
    assert served["model_patch"] == rl["model_patch"] and served["outcome"] == "submitted"
    for prompt, (messages, told) in zip(engine.prompts, serving.requests, strict=True):
        messages = [template_message(RowMessage.of(message)) for message in messages]
        tokenizer = template._tokenizer
        asked = tokenizer.apply_chat_template(
            messages, tools=told.get("tools"), add_generation_prompt=True, tokenize=False
        )
        assert template.ids(asked) == prompt, "a served model reads other tokens"
    whole = [*engine.prompts[-1], *template.ids(texts[-1]), template.turn_end_id]
    assert trained[: len(whole)] == whole
    first = tokenizer.decode(engine.prompts[0])
    assert all(name in first for name in loop.debugger.tools)
