"""Turns in another fence than the scaffold's are accepted if the recipe allows it, unless ambiguous."""

import pytest
from minisweagent.exceptions import FormatError

from swelab.agents.agent import loop_of
from swelab.configs.kinds.scaffold import MiniSwebenchScaffold
from swelab.evaluation.evaluation_plan import scaffold_of
from swelab.models.chat.text_model import TextModel
from swelab.models.chat.turn_form import RefusedTurns, RegexForm
from swelab.records import InputError

OTHER = "I list the files.\n\n```python\nimport os\n```\n"


def form(scaffold, lines):
    return RegexForm(loop_of(scaffold_of(scaffold)[1]), RefusedTurns(lines.append))


def refuse(of, content, times):
    for _ in range(times):
        with pytest.raises(FormatError):
            of.parse(content, [], "stop")


@pytest.mark.parametrize(
    ("scaffold", "fence"), [("mini-swebench", "```mswea_bash_command"), ("demo", "```bash")]
)
def test_five_answers_in_a_row_without_a_command_name_the_fence_once(scaffold, fence):
    lines = []
    of = form(scaffold, lines)
    refuse(of, OTHER, 4)
    assert of.parse(f"{fence}\nls\n```", [], "stop")[0]["command"] == "ls"
    refuse(of, OTHER, 4)
    assert lines == []
    refuse(of, OTHER, 9)
    (line,) = lines
    assert f"expects one block that begins with {fence}, and the last answer has ```python" in line
    assert "\n" not in line and "other_fence" not in line


def test_an_answer_without_any_block_is_said_to_have_none():
    lines = []
    refuse(form("demo", lines), "I am done.", 5)
    assert "the last answer has no block" in lines[0]


BASH = "THOUGHT: I look.\n\n```bash\n ls -la\n```\n"
OWN = "```mswea_bash_command\nls\n```"
AMBIGUOUS = {
    "two blocks": f"{BASH}{BASH}",
    "a block of Python beside it": f"```python\n1\n```\n{BASH}",
    "another language": "```sh\nls\n```",
    "no language": "```\nls\n```",
    "a fence inside its command": "```bash\ncat > a.md <<E\n```\nE\n```\nmore\n```",
    "a block that is not closed": "```bash\nls\n",
    "the agent's own block, cut short": f"{BASH}```mswea_bash_command\nls",
    "two of the agent's own": f"{OWN}\n{OWN}\n{BASH}",
    "inside thoughts": f"<think>{BASH}</think>done",
}


@pytest.mark.parametrize("scaffold", ["swe-rl", "miles"])
def test_one_block_of_bash_is_taken_where_the_agent_s_own_is_not_there(scaffold):
    lines = []
    of = form(scaffold, lines)
    for content, command in ((BASH, "ls -la"), (f"{BASH}\n{OWN}", "ls"), (OWN, "ls")):
        assert of.parse(content, [], "stop") == [{"command": command}]
    for content in AMBIGUOUS.values():
        refuse(of, content, 1)
        of.parse(BASH, [], "stop")
    assert lines == []
    model = TextModel(loop_of(scaffold_of(scaffold)[1]), "m")
    assert model.reply(BASH)["content"] == BASH


def test_the_published_agent_takes_its_own_fence_alone_unless_its_recipe_says_otherwise():
    lines = []
    refuse(form("mini-swebench", lines), BASH, 5)
    assert "or `other_fence: bash` in it" in lines[0] and "the last answer has ```bash" in lines[0]
    given = MiniSwebenchScaffold(agent="mini-swebench", other_fence="bash")
    assert RegexForm(loop_of(given)).parse(BASH, [], "stop") == [{"command": "ls -la"}]
    with pytest.raises(InputError, match="other_fence with form: tool"):
        loop_of(given.model_copy(update={"form": "tool"}))


def test_a_refused_call_costs_and_counts_also_without_a_text():
    model = TextModel(loop_of(scaffold_of("mini-swebench-tool")[1]), "toy")
    function = {"name": "frobnicate", "arguments": "{}"}
    with pytest.raises(FormatError) as caught:
        model.reply("", [{"id": "c", "type": "function", "function": function}], cost=1.5)
    turn, said = caught.value.messages
    assert (turn["role"], turn["content"], turn["extra"]["cost"]) == ("assistant", "", 1.5)
    assert turn["extra"]["refused_calls"][0]["function"] == function
    assert said["role"] == "user" and "frobnicate" in said["content"]
