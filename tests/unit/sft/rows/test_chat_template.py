"""Chat templates as transformers renders them: marks of generated text, and thoughts that are stripped."""

import json
import shutil

import pytest

from swelab.records import InputError
from swelab.records.training_records import RowMessage, SftRow, Tool
from swelab.sft.rows.chat_template import ChatTemplate, PlainRows, stripped_thoughts
from swelab.sft.rows.lengths import ChatTokenizer
from swelab.sft.train.token_rows import TokenRows
from tests.toy_checkpoint import make_checkpoint

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


INNER = "{{ m.content }}"
MARKS = {
    "the answer": "{% generation %}" + INNER + "{% endgeneration %}<|im_end|>\n",
    "the answer and its end": "{% generation %}" + INNER + "<|im_end|>{% endgeneration %}{{ '\n' }}",
    "the whole turn but its header": "{% generation %}" + INNER + "<|im_end|>\n{% endgeneration %}",
    "what follows the thoughts": (
        "{{ m.content.split('</think>')[0] }}</think>{% generation %}"
        "{{ m.content.split('</think>')[-1] }}<|im_end|>{% endgeneration %}{{ '\n' }}"
    ),
    "two parts": "{% generation %}{{ m.content[:9] }}{% endgeneration %}{{ m.content[9:12] }}"
    "{% generation %}{{ m.content[12:] }}<|im_end|>{% endgeneration %}{{ '\n' }}",
    "thoughts beside the text": "{% generation %}<think>{{ m.reasoning_content }}</think>"
    + INNER
    + "<|im_end|>{% endgeneration %}{{ '\n' }}",
}
"""Templates that mark parts of a turn, after its header."""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkpoint with a tokenizer."""
    return make_checkpoint(tmp_path_factory.mktemp("base") / "toy")


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("part", MARKS)
def test_exactly_the_marked_text_has_a_loss(tmp_path, base, part, header):
    """transformers' own mask is the standard, token by token."""
    folder = tmp_path / "toy"
    shutil.copytree(base, folder)
    begins = "{{ '<|im_start|>' + m.role + '\n' }}"
    marked = begins + MARKS[part]
    if header:
        marked = "{% generation %}" + begins + "{% endgeneration %}" + MARKS[part]
    template = "{% for m in messages %}{% if m.role == 'assistant' %}" + marked
    template += "{% else %}" + begins + INNER + "<|im_end|>\n{% endif %}{% endfor %}"
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    said = talk(
        ("user", "Schön, mend it."),
        ("assistant", "<think>well, über\n</think>\n\nThe ans wer is 42.\n"),
        ("user", "b"),
        ("assistant", "<think></think>no"),
    )
    for turn in (1, 3):
        said[turn] |= {"reasoning_content": f"Größe {turn}?"}
    row = SftRow.of({"instance_id": "one", "policy": "p", "resolved": True, "messages": said})
    rendered = PlainRows(folder).of(row)
    tokens, trained = ChatTokenizer(folder).encode(rendered)
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [dict(each) for each in said], return_dict=True, return_assistant_tokens_mask=True
    )
    assert theirs["input_ids"][: len(tokens)] == tokens
    assert [bool(each) for each in theirs["assistant_masks"][: len(tokens)]] == trained
    assert 0 < sum(trained) < len(tokens)
    assert ChatTokenizer(folder).measure(rendered).assistant_tokens == sum(trained)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    sample = TokenRows(rows, folder)[0]
    assert [label != -100 for label in sample.labels][1:] == trained[1:]


def test_thoughts_beside_the_text_are_written_by_a_template_without_marks_too(tmp_path, base, capsys):
    said = talk(("user", "a"), ("assistant", "b"))
    said[1] |= {"reasoning_content": "why"}
    row = SftRow.of({"instance_id": "one", "policy": "p", "resolved": True, "messages": said})
    for content, written in (("{{ m.reasoning_content }}{{ m.content }}", "whyb"), ("{{ m.content }}", "b")):
        opened(tmp_path, BODY.replace("CONTENT", content))
        assert PlainRows(tmp_path).of(row)[1].content == written
        assert ("strips the thoughts" in capsys.readouterr().err) == (written == "b")


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
