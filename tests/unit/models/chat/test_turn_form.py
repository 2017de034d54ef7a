"""Turns without a command in the scaffold's fence: which fence it expects is said once."""

import pytest
from minisweagent.exceptions import FormatError

from swelab.agents.agent import loop_of
from swelab.evaluation.evaluation_plan import scaffold_of
from swelab.models.chat.turn_form import FencedForm, RefusedTurns

OTHER = "I list the files.\n\n```python\nimport os\n```\n"


def form(scaffold, lines):
    return FencedForm(loop_of(scaffold_of(scaffold)[1]), RefusedTurns(lines.append))


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
    assert "\n" not in line


def test_an_answer_without_any_block_is_said_to_have_none():
    lines = []
    refuse(form("demo", lines), "I am done.", 5)
    assert "the last answer has no block" in lines[0]
