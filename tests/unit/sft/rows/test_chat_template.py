"""Chat templates as transformers renders them: marks of generated text, and thoughts that are stripped."""

import json

import pytest

from swelab.records import InputError
from swelab.records.training_records import RowMessage, SftRow, Tool
from swelab.sft.rows.chat_template import ChatTemplate, PlainRows, stripped_thoughts

FUNCTION = {"name": "bash", "description": "Läuft.", "parameters": {"type": "object", "properties": {}}}
TOOLS = [Tool.of({"type": "function", "function": FUNCTION})]
CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
HEAD = "{% if tools %}<|im_start|>system\n{% for tool in tools %}TOOL{% endfor %}<|im_end|>\n{% endif %}"
TURN = "{{ '<|im_start|>' + m.role + '\n' }}CONTENT<|im_end|>\n"
BODY = "{% for m in messages %}" + TURN + "{% endfor %}"
PLAIN = HEAD.replace("TOOL", "{{ tool | tojson }}") + BODY.replace("CONTENT", "{{ m.content }}")
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' and not m.content.startswith('no') %}"
    + TURN.replace("CONTENT", "{% generation %}{{ m.content }}{% endgeneration %}")
    + "{% else %}" + TURN.replace("CONTENT", "{{ m.content }}") + "{% endif %}{% endfor %}"
)  # fmt: skip
STRIPS = BODY.replace(
    "CONTENT", "{{ m.content if loop.last else m.content.split('</think>')[-1] }}{{ tools | length if 0 }}"
)


def opened(folder, template, **settings):
    settings |= {"chat_template": template, "eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return ChatTemplate(folder)


def talk(*turns):
    return [RowMessage.of({"role": role, "content": content}) for role, content in turns]


TALK = talk(("user", "Schön"), ("assistant", "Go."))


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        ("{{ tool | tojson(ensure_ascii=False) }}", "Läuft."),
        ("{{ tool | tojson(indent=2) }}", '\n    "name": "bash"'),
        ("{{ tool | tojson(separators=(',', ':')) }}", '"name":"bash"'),
        ("{{ tool | tojson(sort_keys=True) }}", '"description"'),
        ("{{ tool | tojson }}{% if loop.index > 3 %}{% break %}{% endif %}", "bash"),
        ("{% if not tool %}{% continue %}{% endif %}{{ tool | tojson }}", "bash"),
        ("{{ tool | tojson }}{{ strftime_now('%%') }}", "%"),
        ("{{ tool | tojson }}{{ eos_token | length }}", "10"),
    ],
)
def test_what_transformers_renders_is_rendered(tmp_path, tool, written):
    template = HEAD.replace("TOOL", tool) + BODY.replace("CONTENT", "{{ m.content }}")
    found = opened(tmp_path, template).plain(TALK, TOOLS)
    assert written in found[0].content and found[1:] == TALK


def test_a_list_of_templates_has_one_for_tools(tmp_path):
    plain = BODY.replace("CONTENT", "{{ m.content }}")
    rows = [{"name": "default", "template": plain}, {"name": "tool_use", "template": PLAIN}]
    template = opened(tmp_path, rows)
    assert template.plain(TALK, []) == TALK and len(template.plain(TALK, TOOLS)) == 3


@pytest.mark.parametrize(
    "template", [None, [], "{% for m in messages %}", "{{ raise_exception('no') }}", "{{ 1 + messages }}"]
)
def test_a_template_that_does_not_render_is_one_line(tmp_path, template):
    with pytest.raises(InputError, match="chat_template") as error:
        opened(tmp_path, template).plain(TALK, [])
    assert "\n" not in str(error.value)


def test_a_turn_that_the_template_does_not_mark_is_not_trained(tmp_path, capsys):
    said = talk(("user", "a"), ("assistant", "yes"), ("user", "b"), ("assistant", "no"), ("assistant", "y"))
    found = opened(tmp_path, MARKED).plain(said, [])
    assert [turn.weight for turn in found if turn.role == "assistant"] == [1, 0, 1]
    assert capsys.readouterr().err == ""


def test_a_turn_that_is_marked_in_part_is_told(tmp_path, capsys):
    template = MARKED.replace("{% endgeneration %}", "{% endgeneration %} behind")
    found = opened(tmp_path, template).plain(TALK, [])
    assert found[-1].content == "Go. behind" and found[-1].weight == 1
    assert "marks a part of a turn as generated, without 'behind'" in capsys.readouterr().err


def test_thoughts_that_the_template_strips_are_told_once(tmp_path, capsys):
    opened(tmp_path, HEAD.replace("TOOL", "{{ tool | tojson }}") + STRIPS)
    said = talk(("user", "a"), ("assistant", "<think>x</think>b"), ("user", "c"), ("assistant", "d"))
    row = SftRow.of({"instance_id": "one", "policy": "p", "resolved": True, "messages": said, "tools": TOOLS})
    rows = PlainRows(tmp_path)
    assert rows.of(row)[2].content == "b" and rows.of(row)[2].content == "b"
    told = capsys.readouterr().err
    assert told.count("strips the thoughts of earlier turns (1 in one)") == 1
    said[1].update(weight=0)
    PlainRows(tmp_path).of(row | {"messages": said})
    assert capsys.readouterr().err == ""


def test_a_template_that_writes_empty_thoughts_strips_them_too():
    said = talk(("assistant", "<think>\nwhy\n</think>\n\na"))
    assert stripped_thoughts(said, talk(("assistant", "<think>\n\n</think>\n\na"))) == 1
    assert stripped_thoughts(said, talk(("assistant", "<think>why</think>a"))) == 0
    assert stripped_thoughts(talk(("assistant", "a")), talk(("assistant", "a"))) == 0
