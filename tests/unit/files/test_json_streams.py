"""Lists and objects read one element at a time, and lines as git, Python and JSON Lines count them."""

import ast
import json
import random

import pytest

from swelab.files import json_streams
from swelab.files.json_streams import Outline, list_items, object_items, write_list, write_object
from swelab.files.text_lines import lines_of, python_lines
from swelab.records import InputError, digest, read_json

NASTY = ["}, {", '"}', "{", "}\n,", "\u2028", "caf\udce9", 'a\\"b', "],", "a" * 300, "}}}}, {{{{"]


def rows(count):
    draw = random.Random(0)
    return [
        {"instance_id": f"i{n}", "text": draw.choice(NASTY), "more": [{"x": draw.choice(NASTY)}, n]}
        for n in range(count)
    ]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(json_streams, "CHUNK", 61)


LAYOUTS = {
    "ours": write_list,
    "indented": lambda path, found: path.write_text(json.dumps(found, indent=2)),
    "one line": lambda path, found: path.write_text(json.dumps(found)),
    "two a line": lambda path, found: path.write_text(
        "[\n" + ",\n".join(json.dumps(found[n : n + 2])[1:-1] for n in range(0, len(found), 2)) + "\n]"
    ),
    "keys spread": lambda path, found: path.write_text(
        "[\n" + ",\n".join(json.dumps(row).replace(', "more"', ',\n "more"') for row in found) + "\n]"
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lists_of_every_layout(tmp_path, layout):
    path, found = tmp_path / "rows.json", rows(40)
    LAYOUTS[layout](path, found)
    assert read_json(path) == found
    assert list(list_items(path)) == list(enumerate(found))
    some = [(n, row) for n, row in enumerate(found) if n % 7 == 3]
    names = {row["instance_id"] for _, row in some}
    assert list(list_items(path, names.__contains__)) == some


@pytest.mark.parametrize("indent", [None, 1])
def test_objects_of_every_layout(tmp_path, indent):
    path, found = tmp_path / "rows.json", {row["instance_id"]: row for row in rows(40)}
    if indent:
        path.write_text(json.dumps(found, indent=indent))
    else:
        assert write_object(path, found.items()) == 40
    assert read_json(path) == found and dict(object_items(path)) == found
    assert dict(object_items(path, {"i3", "i39"}.__contains__)) == {key: found[key] for key in ("i3", "i39")}


def test_an_unwanted_row_of_ours_is_not_parsed(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    write_list(path, [{"instance_id": f"i{n}", "text": "x"} for n in range(50)])
    parsed = []
    value = json_streams._Text.value
    monkeypatch.setattr(json_streams._Text, "value", lambda self: parsed.append(1) or value(self))
    assert [row["instance_id"] for _, row in list_items(path, lambda name: name == "i7")] == ["i7"]
    assert len(parsed) <= 2  # the requested element, and the last, which has no comma after it


@pytest.mark.parametrize("found", [[], rows(1)])
def test_few_rows(tmp_path, found):
    path = tmp_path / "rows.json"
    assert write_list(path, iter(found)) == len(found)
    assert [row for _, row in list_items(path)] == read_json(path) == found


@pytest.mark.parametrize(
    "read, text, words",
    [
        (list_items, '{"a": 1}', "a dict; expected a JSON list"),
        (list_items, '[\n{"a": 1},\n{"a": oops}\n]', "line 3"),
        (list_items, '[\n{"a": 1}\n{"a": 2}]', "line 3"),
        (list_items, '[\n{"a": 1},', "line 2"),
        (list_items, "[1] 2", "extra data"),
        (list_items, "", "an empty file"),
        (object_items, "[1]", "a list; expected a JSON object"),
        (object_items, '{"a": 1,\n b: 2}', "line 2"),
    ],
)
def test_faults_name_their_line(tmp_path, read, text, words):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        list(read(path))
    assert words in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        list(read(tmp_path / "none.json"))


def test_a_fault_early_in_a_long_file_is_found_early(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_text('[\n{"a": oops},\n' + "x" * 100_000)
    reads = []
    more = json_streams._Text._more
    monkeypatch.setattr(json_streams._Text, "_more", lambda self: reads.append(1) or more(self))
    with pytest.raises(InputError, match="line 2"):
        list(list_items(path))
    assert len(reads) < 5


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_outline_has_the_digest_of_the_list(count):
    outline = Outline.of(iter(rows(count)))
    assert outline.digest == digest(rows(count)) and outline.ids == [f"i{n}" for n in range(count)]


ODD = ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("odd", [*ODD, "\r"])
def test_a_line_feed_alone_ends_a_line(odd):
    assert lines_of(f"a{odd}b\nc\n") == [f"a{odd}b", "c"] and lines_of("a\n\nb") == ["a", "", "b"]
    assert lines_of("") == []


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_a_program_are_those_of_its_tree(odd, end):
    source = f"A = '''a{odd}b'''{end}{end}def f():{end}    return 1"
    lines = python_lines(source)
    assert "".join(lines) == source and len(lines) == 4
    assert lines[ast.parse(source).body[1].lineno - 1].startswith("def f")
