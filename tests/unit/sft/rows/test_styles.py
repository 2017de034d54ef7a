"""Rows in the styles xml, ticks and tool are whole conversations that the student's parser understands."""

import itertools
import json
import random
from collections import Counter

import pytest

from swelab.configs.kinds.sft import Selection
from swelab.records import InputError, check
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.rollouts.trajectory_files import Broken
from swelab.sft.rows import compat
from swelab.sft.rows.dataset import kept_text
from swelab.sft.rows.student_parsers import parse_ticks, parse_xml, write_argument
from swelab.sft.rows.styles import Style, Unfit, definitions, write_conversation
from tests.unit.recorded_runs import (
    PATCH,
    SYSTEM,
    acted,
    asked,
    call,
    mini,
    mini_text,
    seen,
    system,
    trajectory,
    usual,
    write_mini,
    write_run,
)


@pytest.fixture
def record(tmp_path):
    """A function that turns a SWE-agent or mini-swe-agent trajectory into its record."""
    numbers = itertools.count()

    def make(content):
        name = f"i{next(numbers)}"
        if "messages" in content:
            return read_recording(write_mini(tmp_path, name, content) / f"{name}.traj.json")
        return read_recording(write_run(tmp_path, name, content) / f"{name}.traj")

    return make


def written(record, style, **settings):
    return write_conversation(record, Style(style, **settings))


def spoken(conversation):
    return [m["content"] for m in conversation.messages if m["role"] == "assistant"]


def conversation(*turns, **changes):
    last = [acted("Done.", "submit", {}, "submit", 9), seen(PATCH, 9)]
    return trajectory([system(), asked(), *turns, *last], **changes)


def test_xml_is_whole_and_ends_with_the_submit(record):
    rows = written(record(trajectory()), "xml", system="Use functions.").messages
    assert [row["role"] for row in rows] == ["system", "user"] + ["assistant", "user"] * 2 + ["assistant"]
    assert rows[0]["content"] == "Use functions." and all(set(row) == {"role", "content"} for row in rows)
    assert rows[2]["content"] == (
        "Let me look.\n\n<function=bash>\n<parameter=command>cat pkg/a.py</parameter>\n</function>"
    )
    edit = parse_xml(rows[4]["content"])
    assert edit.arguments["new_str"] == "a = 2\n"  # the last newline survives
    assert rows[-1]["content"] == "Done.\n\n<function=submit>\n</function>"


def test_ticks_and_tool(record):
    ticks = written(record(trajectory()), "ticks")
    assert ticks.messages[0]["content"] == SYSTEM and ticks.messages[3]["content"] == "a = 1\n"
    assert spoken(ticks)[0] == "Let me look.\n\n```\ncat pkg/a.py\n```" and "submit" in spoken(ticks)[-1]
    tool = written(record(trajectory()), "tool")
    assert [tool["function"]["name"] for tool in tool.tools] == ["bash", "str_replace_editor", "submit"]
    assert tool.messages[2] == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [call("bash", {"command": "cat pkg/a.py"}, 1)],
    }
    assert tool.messages[3] == {"role": "tool", "tool_call_id": "call_1", "content": "a = 1\n"}
    assert tool.messages[-1]["tool_calls"][0]["function"] == {"name": "submit", "arguments": "{}"}


@pytest.mark.parametrize("style", ["xml", "ticks", "tool"])
def test_recorded_command_of_a_scaffold_with_another_regex(style):
    """The rows are those of a scaffold with bash blocks. Other blocks of the text stay."""

    def rows(block):
        say = "I try.\n```python\n1\n```\n"
        answer = {"role": "assistant", "content": say + block, "extra": {"actions": [{"command": "ls"}]}}
        messages = [system(), {"role": "user", "content": "Mend it."}, answer]
        found = {"instance_id": "a", "outcome": "submitted", "model_patch": "", "info": {}}
        format_of = {"trajectory_format": "mini-swe-agent-1.1", "messages": messages}
        return write_conversation(Trajectory.of(found | format_of), Style(style)).messages

    usual_rows = rows("```bash\nls\n```")
    assert "python" in usual_rows[-1]["content"]
    for block in ("```shell\nls\n```", "<bash>ls</bash>", "RUN: ls"):
        assert rows(block) == usual_rows


@pytest.mark.parametrize("style", ["xml", "ticks", "tool"])
@pytest.mark.parametrize("program", [mini, mini_text])
def test_mini_swe_agent_in_every_style(record, style, program):
    found = written(record(program()), style)
    assert len(spoken(found)) == 2 and found.messages[-1]["role"] == "assistant"
    if style == "tool":
        assert [m["role"] for m in found.messages[3:]] == ["tool", "assistant"]
        assert found.messages[3]["tool_call_id"] == found.messages[2]["tool_calls"][0]["id"]
        command = json.loads(found.messages[2]["tool_calls"][0]["function"]["arguments"])["command"]
    else:
        read = parse_xml if style == "xml" else parse_ticks
        action = read(spoken(found)[0])
        command = action.arguments["command"] if style == "xml" else action[1].strip()
    assert command == "sed -i s/1/2/ pkg/a.py"
    assert spoken(found)[0].startswith("I edit it.")


def test_every_text_survives_the_reader_of_xml():
    """All texts of up to five characters (newline, letter, blank), in both ways of writing."""
    for size in range(6):
        for letters in itertools.product("\nx ", repeat=size):
            text = "".join(letters)
            for own_line in (True, False):
                content = f"a\n\n<function=f>\n{write_argument('k', text, own_line)}\n</function>"
                assert parse_xml(content).arguments == {"k": text}


@pytest.mark.parametrize(
    ("style", "turn", "fault"),
    [
        ("xml", acted("t", "bash", {"command": "echo '</parameter>'"}), "unreadable_call"),
        ("xml", acted("t", "bash", {"command": "echo '</function>'"}), "unreadable_call"),
        ("xml", acted("see <function=x>\n</function>", "bash", {"command": "ls"}), "unreadable_call"),
        ("xml", acted("t", "str_replace_editor", {"path": "a", "view_range": [1, -1]}), "unreadable_call"),
        ("xml", acted("t", "str_replace_editor", {"command": "view", "path": None}), "unreadable_call"),
        ("xml", acted("t", "str_replace_editor", {"command": "view", "path": True}), "unreadable_call"),
        ("xml", acted("t", "bash", {"command": ["ls"]}), "unreadable_call"),
        ("xml", acted("t", "oracle", {"command": "ls"}), "undefined_tool"),
        ("xml", acted("t", "bash", {}), "undefined_arguments"),
        ("xml", acted("t", "submit", {"now": "1"}), "undefined_arguments"),
        ("xml", acted("t", "bash", "{"), "bad_arguments"),
        ("xml", acted("t", "bash", "[1]"), "bad_arguments"),
        ("ticks", acted("t", "bash", {}, "cat <<E\n```\nE"), "unreadable_call"),
        ("ticks", acted("open\n```python\nx", "bash", {}, "ls"), "unreadable_call"),
        ("tool", acted("t", "oracle", {}), "undefined_tool"),
        ("tool", acted("t", "bash", {"cmd": "ls"}), "undefined_arguments"),
        ("tool", acted("t", "bash", {"command": "ls", "more": 1}), "undefined_arguments"),
        ("xml", {**acted("t", "a", {}), "tool_calls": [call("a", {}), call("b", {})]}, "several_calls"),
        ("xml", {**acted("t", "a", {}, ""), "tool_calls": None}, "no_call"),
    ],
)
def test_a_turn_at_fault_is_dropped_masked_or_kept(record, style, turn, fault):
    content = conversation(turn, seen("x"))
    with pytest.raises(Unfit, match=fault):
        written(record(content), style)
    masked = written(record(content), style, malformed_turns="mask")
    assert [m.get("weight") for m in masked.messages if m["role"] == "assistant"] == [0, None]
    assert masked.notes == {f"{fault}_masked": 1}
    kept = written(record(content), style, malformed_turns="keep")
    assert not any("weight" in m for m in kept.messages) and kept.notes == {f"{fault}_kept": 1}


@pytest.mark.parametrize(
    ("style", "turn"),
    [
        ("xml", acted("t", "str_replace_editor", {"command": "view", "path": "a", "view_range": [1, 20]})),
        ("xml", acted("t", "str_replace_editor", {"command": "insert", "path": "a", "insert_line": 3})),
        ("xml", acted("`<function` \u2028", "bash", {"command": "\n\necho 'a\\n' <<E\n```\nE\n\n"})),
        ("ticks", acted("like\n```python\nx = 1\n```\nso", "bash", {}, "ls -l\n\n  pwd\n")),
        ("tool", acted("t", "bash", {"command": "</parameter>\n"})),
    ],
)
def test_a_strange_turn_that_survives(record, style, turn):
    assert not written(record(conversation(turn, seen("x"))), style).notes


SHOWN = "OBSERVATION:\nHere's the result of running `cat -n` on /testbed/a.py:\n"


@pytest.mark.parametrize(
    ("lines", "first", "wanted"),
    [
        ("     7\tx = 1\n     8\t3\ty\n     9\t", 7, [7, 9]),
        ("    99\ta\n   100\tb\n\n", 99, [99, 100]),
        ("     7\tx\n     8", 7, [7, 8]),  # the end of an observation is stripped
        ("     8\tx", 7, None),
        ("     7\tx\n     9\ty", 7, None),
        ("     7\tx\nmore", 7, None),
        ("     7\tx<response clipped><NOTE>...", 7, None),
        ("", 7, None),
    ],
)
def test_the_end_of_a_file_becomes_a_number(record, lines, first, wanted):
    """The parser of functions in XML rejects -1. The tool style's definitions accept it."""
    arguments = {"command": "view", "path": "/testbed/a.py", "view_range": [first, -1]}
    content = conversation(acted("t", "str_replace_editor", arguments), seen(SHOWN + lines))
    if wanted:
        found = written(record(content), "xml")
        assert parse_xml(spoken(found)[0]).arguments["view_range"] == str(wanted)
        assert found.notes == {"view_range_completed": 1}
    else:
        with pytest.raises(Unfit, match="unreadable_call"):
            written(record(content), "xml")
    call = written(record(content), "tool").messages[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"])["view_range"] == [first, -1]


def test_what_cannot_be_a_row(record):
    look, done = acted("t", "bash", {"command": "ls"}), acted("d", "submit", {})
    for turns, reason in [
        ([system(), asked()], "no_assistant_turn"),
        ([system(), look, seen("x"), done], "begins_with_the_policy"),
        ([system(), asked(), look, done], "two_turns_of_the_policy"),
        ([system(), asked(), system(), look], "system_prompt_inside"),
        ([system(), {**asked(), "content": [{"type": "image_url"}]}, look], "not_plain_text"),
    ]:
        with pytest.raises(Unfit, match=reason):
            written(record(trajectory(turns)), "xml")
    lost = trajectory([system(), asked(), acted("t", "bash", "{")])
    with pytest.raises(Unfit, match="nothing_to_learn"):
        written(record(lost), "xml", malformed_turns="mask")


def test_a_demonstration_is_shown_and_not_learnt(record):
    shown = [{**turn, "is_demo": True} for turn in usual()[2:4]]
    turns = [system(), {**asked("Watch."), "message_type": "demonstration"}, *shown, *usual()[1:]]
    found = written(record(trajectory(turns)), "xml")
    weights = [m.get("weight") for m in found.messages if m["role"] == "assistant"]
    assert weights == [0, None, None, None] and found.notes == {"user_turns_joined": 1}


def test_a_masked_end_is_cut(record):
    turns = [*usual(), acted("t", "bash", "{"), seen("x")]
    found = written(record(trajectory(turns)), "xml", malformed_turns="mask")
    assert spoken(found)[-1].endswith("<function=submit>\n</function>")


def test_a_refused_turn_of_mini(record):
    content = mini_text()
    told = {"role": "user", "content": "Write one block.", "extra": {"interrupt_type": "FormatError"}}
    content["messages"][2:2] = [{"role": "assistant", "content": "```bash\na\n```\n```bash\nb\n```"}, told]
    with pytest.raises(Unfit, match="malformed_turn"):
        written(record(content), "xml")
    assert written(record(content), "xml", malformed_turns="mask").notes == {"refused_masked": 1}


def row_of_tools():
    """Returns a row of a published set with messages in SWE-agent's form."""
    return {"messages": usual()[:-2], "instance_id": "a", "patch": PATCH, "resolved": True, "model": "m"}


def row_of_text():
    """Returns a row of a published set in the style xml."""
    row = row_of_tools()
    return row | {"messages": compat.xml(row["messages"], SYSTEM)}


def test_harmed_recordings_never_end_in_a_traceback(tmp_path):
    """Values anywhere in a recording are replaced by others. It is then refused, unfit, or a row."""
    draw = random.Random(7)
    values = [None, 0, "", "x", [], {}, [None], {"a": 1}, True, [{}], {"role": "user"}, "[" * 5000]
    ends = Counter()

    def places(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield node, key
            if isinstance(node[key], dict | list):
                yield from places(node[key])

    makes = (trajectory, mini, mini_text, row_of_tools, row_of_text)
    for number in range(400):
        make = makes[number % len(makes)]
        content = json.loads(json.dumps(make()))
        for _ in range(draw.randint(1, 2)):
            node, key = draw.choice([place for place in places(content) if place[1] != "trajectory"])
            node[key] = draw.choice(values)
        path = (
            tmp_path / f"a.{'traj' if make is trajectory else 'traj.json' if number % 5 < 3 else 'row.json'}"
        )
        path.write_text(json.dumps(content))
        for style in ("text", "xml", "ticks", "tool"):
            for malformed in ("drop", "mask"):
                try:
                    record = read_recording(path)
                    check({**record, "policy": "p", "subset": "s"}, Trajectory, path)
                    if style == "text":
                        kept_text(
                            record["messages"], Selection(malformed_turns=malformed, failed_turns="mask")
                        )
                        continue
                    found = write_conversation(record, Style(style, malformed, failed_turns="mask"))
                    assert all(isinstance(message["content"], str) for message in found.messages)
                    ends["row"] += 1
                except (Broken, Unfit) as fault:
                    ends[type(fault).__name__] += 1
    assert min(ends["row"], ends["Broken"], ends["Unfit"]) > 100, ends


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[{"function": {"name": "x"}}]'])
def test_tool_definitions_are_checked(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError) as error:
        definitions(tmp_path / "t.json")
    assert "\n" not in str(error.value)
