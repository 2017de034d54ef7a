"""A turn's commands are those that the agent recorded, in any form of turns."""

import pytest

from swelab.records.attempt_records import Message
from swelab.rollouts.recorded_actions import text_and_commands


def read(content, *commands):
    extra = {"actions": [{"command": command} for command in commands]} if commands else {}
    return text_and_commands(content, Message(role="assistant", content=content, extra=extra))


@pytest.mark.parametrize(
    "written",
    ["```bash\n{}\n```", "```shell\n\n{}\n```", "~~~ sh\n{}\n~~~", "<run>\n{}\n</run>", "<run>{}</run>"]
    + ["COMMAND: {}", "{}"],
)
@pytest.mark.parametrize("command", ["ls", "cat > a <<E\n(*.+)\nE"])
def test_recorded_command_leaves_the_text_in_any_form(written, command):
    assert read(f"First ls, then more.\n\n{written.format(command)}", command) == (
        "First ls, then more.",
        [command],
    )


def test_other_blocks_stay_in_the_text():
    text = "I write:\n```python\nx = 1\n```\nand run"
    assert read(f"{text}\n```shell\nls\n```\n", "ls") == (text, ["ls"])


def test_a_command_that_the_text_does_not_hold():
    assert read("I look.", "ls") == ("I look.", ["ls"])


def test_blocks_of_a_format_that_records_no_actions():
    assert read("A\n```bash\nls\n```\n```python\n1\n```") == ("A\n\n```python\n1\n```", ["ls"])
    assert read("A <mswea_bash_command>ls</mswea_bash_command>") == ("A", ["ls"])
    assert read("A\n```shell\nls\n```")[1] == []
