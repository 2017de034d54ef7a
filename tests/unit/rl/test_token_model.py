"""Turns as token ids: sampled ids are returned unchanged, and only observations are tokenised."""

import pytest
from minisweagent.exceptions import FormatError

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import ContextLimit
from swelab.models.chat.tool_calls import written_calls
from swelab.models.token_turn import TokenTurn
from swelab.records import InputError
from swelab.rl.managed_model import ManagedModel
from swelab.rl.samples import samples
from swelab.rl.token_model import TokenModel
from swelab.rl.token_template import TokenTemplate
from tests.toy_checkpoint import make_checkpoint

SCAFFOLD = MiniLoop(
    system_template="",
    instance_template="",
    action_regex=r"```bash\s*\n(.*?)\n```",
    format_error_template="one block",
    observation_template="{{output.output}}",
    max_observation_chars=1000,
)
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 32}
START = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": "it fails"}]
BLOCK = "```bash\necho {}\n```"


class Spelled:
    """Answers with texts of one token per character, unlike any tokenizer."""

    def __init__(self, template, answers, ends=True):
        self.template, self.answers, self.ends, self.prompts = template, list(answers), ends, []

    def generate(self, prompt, sampling):
        self.prompts.append(list(prompt))
        ids = [token for character in self.answers.pop(0) for token in self.template.ids(character)]
        sampled = [*ids, self.template.turn_end_id] if self.ends else ids
        return TokenTurn(prompt, sampled, [-1.0] * len(sampled), "stop" if self.ends else "length")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return TokenTemplate.of(make_checkpoint(tmp_path_factory.mktemp("toy") / "toy"))


def text(template, ids):
    return template._tokenizer.decode(ids)


def converse(model, turns, output="done"):
    """Returns the messages of a conversation in which each command prints `output`."""
    messages = list(START)
    for _ in range(turns):
        try:
            message = model.query(messages)
            shown = [{"output": output, "returncode": 0, "exception_info": ""}]
            messages += [message, *model.format_observation_messages(message, shown)]
        except FormatError as error:
            messages += error.messages
    return messages


def test_a_conversation_reads_as_the_template_has_it(template):
    engine = Spelled(template, [BLOCK.format(i) for i in range(3)])
    model = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy")
    messages = converse(model, 3)
    plain = [{name: message[name] for name in ("role", "content")} for message in messages]
    assert text(template, engine.prompts[2]) == template._render(plain[:6])
    assert template.ids(BLOCK.format(0)) != list(engine.prompts[1][len(engine.prompts[0]) :][: len(BLOCK)])


def test_what_was_sampled_comes_back_as_it_was(template):
    engine = Spelled(template, [BLOCK.format(i) for i in range(3)])
    model = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy")
    converse(model, 3)
    (sample,) = samples(model.turns)
    assert [turn.prompt for turn in model.turns] == engine.prompts
    assert sample.trained == sum(len(turn.sampled) for turn in model.turns)
    for turn in model.turns:
        at = len(turn.prompt)
        assert sample.ids[at : at + len(turn.sampled)] == turn.sampled and sample.ids[:at] == turn.prompt


def test_a_block_in_another_fence_is_trained_on_as_it_was_written(template):
    own = SCAFFOLD.model_copy(update={"action_regex": r"```own\s*\n(.*?)\n```", "other_fence": "bash"})
    engine = Spelled(template, [BLOCK.format(0), BLOCK.format(1)])
    model = TokenModel(engine, template, own, SAMPLING, "toy")
    messages = converse(model, 2)
    assert messages[2]["extra"]["actions"] == [{"command": "echo 0"}]
    assert messages[2]["content"] == BLOCK.format(0) and BLOCK.format(0) in text(template, engine.prompts[1])
    (sample,) = samples(model.turns)
    at = len(model.turns[0].prompt)
    assert sample.ids[at : at + len(model.turns[0].sampled)] == model.turns[0].sampled


def test_a_refused_turn_stays_where_it_was(template):
    engine = Spelled(template, ["no block", BLOCK.format(1)])
    model = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy")
    messages = converse(model, 2)
    assert "no block<|im_end|>\n<|im_start|>user\none block<|im_end|>" in text(template, engine.prompts[1])
    assert [message["role"] for message in messages[2:]] == ["assistant", "user", "assistant", "user"]
    assert len(samples(model.turns)) == 1


def test_a_refused_call_without_text_stays_too(template):
    """The message of such a turn has no call, because a service wants an answer to every call."""
    wrong = '<tool_call>{"name": "fly", "arguments": {}}</tool_call>'
    right = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
    engine = Spelled(template, [wrong, right])
    model = TokenModel(engine, template, SCAFFOLD.model_copy(update={"calls": "bash"}), SAMPLING, "toy")
    messages = converse(model, 2)
    assert [message["role"] for message in messages[2:]] == ["assistant", "user", "assistant", "tool"]
    assert messages[2]["content"] == "" and "tool_calls" not in messages[2]
    assert text(template, engine.prompts[1]).count("fly") == 1 and len(samples(model.turns)) == 1
    assert messages[4]["extra"]["actions"][0]["command"] == "ls"


def test_a_turn_that_was_cut_is_ended_for_it(template):
    engine = Spelled(template, ["cut", BLOCK.format(1)], ends=False)
    model = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy")
    converse(model, 2)
    assert "cut<|im_end|>\n<|im_start|>user" in text(template, engine.prompts[1])
    (sample,) = samples(model.turns)
    end = sample.ids.index(template.turn_end_id, len(engine.prompts[0]))
    assert sample.mask[end] == 0, "the policy did not sample it"


def test_an_interrupted_rollout_samples_nothing_twice(template):
    first = Spelled(template, [BLOCK.format(i) for i in range(3)])
    whole = TokenModel(first, template, SCAFFOLD, SAMPLING, "toy")
    converse(whole, 3)
    kept = []
    engine = Spelled(template, [BLOCK.format(2)])
    again = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy", kept.append, whole.turns[:2])
    converse(again, 3)
    assert again.turns == whole.turns and kept == whole.turns[2:] and len(engine.prompts) == 1


def test_a_second_kill_resumes_from_the_turns_behind_those_that_no_longer_fit(template):
    journal = []

    def life(output, answers):
        engine = Spelled(template, answers)
        model = TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy", journal.append, list(journal))
        converse(model, 3, output)
        assert not engine.answers
        return model.turns

    first = life("one", [BLOCK.format(i) for i in range(3)])
    second = life("two", [BLOCK.format(i) for i in (4, 5)])
    assert journal == [*first, *second[1:]] and second[0] == first[0]
    assert life("two", []) == second and life("one", []) == first


def test_an_answer_of_nothing_is_a_full_context(template):
    engine = Spelled(template, [""], ends=False)
    with pytest.raises(ContextLimit, match="no room for an answer after"):
        TokenModel(engine, template, SCAFFOLD, SAMPLING, "toy").query(START)


@pytest.mark.parametrize(
    ("said", "left", "names"),
    [
        ("plain", "plain", []),
        ('a <tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>', "a", ["bash"]),
        ('<tool_call>{"name": "x"}</tool_call><tool_call>{"name": "y"}</tool_call>', "", ["x", "y"]),
        ("<tool_call>no json</tool_call>", "<tool_call>no json</tool_call>", []),
        ("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
        ('<tool_call>{"name": "cut", "arguments": {}}', "", ["cut"]),
    ],
)
def test_calls_in_text(said, left, names):
    content, calls = written_calls(said, 3)
    assert content == left and [call["function"]["name"] for call in calls] == names
    assert len({call["id"] for call in calls}) == len(calls)


def test_a_managed_history_keeps_to_its_budget_and_shows_the_newest(template):
    engine = Spelled(template, [BLOCK.format(i) for i in range(12)])
    model = ManagedModel(engine, template, SCAFFOLD, SAMPLING, "toy", budget=330)
    converse(model, 12, output="out " * 5)
    assert max(map(len, engine.prompts)) <= 330
    last = text(template, engine.prompts[-1])
    assert "turn(s) of interaction history omitted" in last and "echo 10\n" in last and "echo 5\n" not in last
    assert last.startswith("<|im_start|>system\nFix the bug.") and last.endswith("<|im_start|>assistant\n")
    assert "<|im_start|>user" not in last.partition("omitted due")[2].partition("<|im_start|>assistant")[0]
    found = samples(model.turns)
    assert 1 < len(found) <= 12, "a sequence begins where the history changed"
    assert sum(sample.trained for sample in found) == sum(len(turn.sampled) for turn in model.turns)


def test_a_managed_history_that_cannot_fit_is_a_full_context(template):
    engine = Spelled(template, [BLOCK.format(i) for i in range(2)])
    model = ManagedModel(engine, template, SCAFFOLD, SAMPLING, "toy", budget=120)
    with pytest.raises(ContextLimit, match="the newest turn does not fit into 120 tokens"):
        converse(model, 2, output="long " * 100)


def test_a_template_that_changes_history_is_told(template, tmp_path):
    assert template.changes_history() == ""
    strips = make_checkpoint(tmp_path / "strips")
    path = strips / "tokenizer_config.json"
    text = path.read_text()
    path.write_text(
        text.replace(
            "message['content']",
            "(message['content'].split('</think>')[-1] if loop.last == False else message['content'])",
        )
    )
    assert path.read_text() != text
    assert "</think>" in TokenTemplate.of(strips).changes_history()


def test_a_checkpoint_without_a_template_is_refused(tmp_path):
    bare = make_checkpoint(tmp_path / "bare")
    path = bare / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"chat_template"', '"no_template"'))
    with pytest.raises(InputError, match="the tokenizer has no chat template"):
        TokenTemplate.of(bare)
