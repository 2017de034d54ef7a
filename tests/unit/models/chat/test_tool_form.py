"""Turns that call one of several tools, in each of the three forms."""

import json

import pytest
from minisweagent.exceptions import FormatError

from swelab.agents.debugger.definitions import definitions, in_words
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.models.chat.tool_form import ToolForm, as_command

TOOLS = definitions(DebuggerSettings(tools=["pdb", "view", "rewrite", "eval", "grep"]))


def form(calls="qwen", **changes):
    shown = {"observation_template": "{{output.output}}", "format_error_template": "{{error}}"}
    return ToolForm(TOOLS, calls, **(shown | {"max_observation_chars": 100} | changes))


def call(name, arguments, id="call_1_0"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def refused(of, content="", calls=(), finish="stop"):
    with pytest.raises(FormatError) as raised:
        of.parse(content, list(calls), finish)
    (message,) = raised.value.messages
    assert message["role"] == "user" and message["extra"]["interrupt_type"] == "FormatError"
    return message["content"]


BLOCK = '<tool_call>\n{"name": "eval", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "said", "name"),
    [
        (f"a {BLOCK}", "a", "eval"),
        (f'{BLOCK}\n<tool_call>{{"name": "grep"}}</tool_call>', BLOCK, "grep"),
        (f"<think>{BLOCK}</think> b {BLOCK} c", f"<think>{BLOCK}</think> b", "eval"),
        ('open <tool_call>{"name": "eval"}', "open", "eval"),
        (f"{BLOCK} <tool_call>no json</tool_call>", None, None),
        ("<tool_call>[1]</tool_call>", None, None),
        (f"<think>{BLOCK}", None, None),
        ("nothing", None, None),
    ],
)
def test_the_last_call_in_the_text_counts(text, said, name):
    found, calls = form().read(text, 7)
    assert (found, [each["function"]["name"] for each in calls]) == ((said, [name]) if name else (text, []))
    assert [each["id"] for each in calls] == (["call_7_0"] if name else [])


@pytest.mark.parametrize("calls", ["qwen", "api", "xml"])
def test_what_a_script_writes_is_read_again(calls):
    of = form(calls)
    given = {"path": "a.py", "start": 3, "end": 4, "new_code": "\n\tx = '<b>'\n  # \u00e4"}
    content, told = of.format_call("I see.", "rewrite", given, 5)
    (action,) = of.parse(content, told, "stop")
    assert (action["tool"], action["arguments"]) == ("rewrite", given)
    assert of.calls == (calls != "xml") and bool(of.offered) == of.calls
    shown = of.show({"extra": {"actions": [action]}}, [{"output": "x" * 300, "returncode": 0}], {}, False)
    assert (
        shown[0]["role"] == ("tool" if of.calls else "user")
        and "[200 characters left out]" in shown[0]["content"]
    )


def test_what_is_optional_may_be_null_or_absent():
    given = {"path": "a.py", "start": None, "end": None, "include_line_numbers_and_breakpoints": None}
    (action,) = form().parse("", [call("view", given)], "stop")
    assert action["arguments"] == {"path": "a.py"}
    (action,) = form().parse("", [call("eval", "")], "stop")
    assert action["arguments"] == {}
    assert form().parse("", [call("eval", "null")], "stop")[0]["arguments"] == {}


def test_numbers_and_flags_may_be_words():
    given = {"path": "a.py", "start": "3", "end": 4.0, "include_line_numbers_and_breakpoints": "False"}
    (action,) = form().parse("", [call("view", given)], "stop")
    assert list(action["arguments"].values()) == ["a.py", 3, 4, False]
    text = "<function=view><parameter=path>\na.py\n</parameter><parameter=start>none</parameter></function>"
    assert form("xml").parse(text, [], "stop")[0]["arguments"] == {"path": "a.py"}


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fly", {}, "no tool is called 'fly'; there are pdb, view, rewrite, eval, grep"),
        ("view", {}, "view wants path; view takes path (string), start (integer, optional), end"),
        ("view", {"path": None}, "view wants path"),
        ("view", {"path": "a", "line": 3}, "view has no argument 'line'; view takes path"),
        ("view", {"path": ["a"]}, "view: path is ['a']; expected string"),
        ("view", {"path": "a", "start": True}, "view: start is True; expected integer"),
        ("view", {"path": "a", "start": "x"}, "view: start is 'x'; expected integer"),
        ("pdb", {"command": "start", "runner": "node"}, "pdb: runner is 'node'; expected python"),
        ("eval", {"x": 1}, "eval has no argument 'x'; eval takes no arguments"),
        ("eval", "{", "the arguments of 'eval' are no JSON: "),
        ("eval", "[1]", "the arguments of 'eval' are no JSON object"),
        ("eval", "[" * 100_000, "the arguments of 'eval' are no JSON: "),
    ],
)
def test_a_wrong_call_is_explained(name, arguments, told):
    text = refused(form(), calls=[call(name, arguments)])
    assert text.startswith(f"Nothing was done: {told}")
    assert text.endswith('<tool_call>\n{"name": "pdb", "arguments": {"command": "VALUE"}}\n</tool_call>')


def test_a_turn_without_a_call_is_explained():
    assert "no tool was called" in refused(form(), "I think so.")
    assert "what stands in <tool_call> is no JSON: Expecting" in refused(form(), "<tool_call>{x}</tool_call>")
    assert "but a list" in refused(form(), "<tool_call>[]</tool_call>")
    assert "cut off at its limit of tokens" in refused(form(), '<tool_call>{"na', finish="length")
    assert refused(form("api"), "x").endswith("Call one tool, such as pdb.")
    assert "no <function=NAME> in the answer.\nCall one tool like this:\n<function=pdb>" in refused(
        form("xml"), "x"
    )


def test_a_service_s_calls_are_all_carried_out_and_answered():
    of = form("api")
    actions = of.parse("", [call("eval", {}, "a"), call("grep", {"pattern": "x"}, "b")], "tool_calls")
    shown = of.show({"extra": {"actions": actions}}, [{"output": "1", "returncode": 0}], {}, True)
    assert [each["tool_call_id"] for each in shown] == ["a", "b"]
    assert shown[1]["content"] == "This call was not carried out."


def test_a_call_is_told_to_people():
    assert as_command("pdb", {"command": "b a.py:3"}) == "pdb b a.py:3"
    told = as_command("rewrite", {"path": "a.py", "start": 3, "new_code": "x = 1\ny = 2\n"})
    assert told == "rewrite a.py start=3\nx = 1\ny = 2"


def test_definitions():
    full, short = (definitions(DebuggerSettings(tool_descriptions=kind)) for kind in ("full", "short"))
    for one, other in zip(full, short, strict=True):
        kinds = [
            {name: told["type"] for name, told in each["function"]["parameters"]["properties"].items()}
            for each in (one, other)
        ]
        assert kinds[0] == kinds[1] and one["function"]["name"] == other["function"]["name"]
    assert len(json.dumps(short)) < 1700 < 3000 < len(json.dumps(full)) < 3600
    assert "null" not in json.dumps(full) and "at most 110 lines" in json.dumps(full)
    assert "  runner (python or pytest, optional): with start: python or pytest" in in_words(full)
