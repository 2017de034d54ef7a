"""Lines as git, Python and JSON Lines count them."""

import ast

import pytest

from swelab.files.text_lines import lines_of, python_lines

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
