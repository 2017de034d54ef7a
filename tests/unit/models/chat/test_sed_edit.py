"""Substitutions, run by real GNU sed."""

import random
import subprocess

import pytest

from swelab.models.chat.sed_edit import substitution


def sed(expression, line):
    done = subprocess.run(["sed", expression], input=line + "\n", capture_output=True, text=True, check=True)
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize(
    ("before", "after", "expression"),
    [
        ("    return a - b", "    return a + b", "s/-/+/"),
        ("    return a * b", "    return a + b", r"s/\*/+/"),
        ("    return b - a", "    return a - b", "s/b - a/a - b/"),
        ("    return a < b", "    return a <= b", "s/</<=/"),
        ("    return rows[1:]", "    return rows[2:]", "s/1/2/"),
        ("    total", "    return total", "s/total/return total/"),
        ("    return a / b", "    return a // b", r"s/\//\/\//"),
        ("    return x & 1", "    return x | 1", "s/&/|/"),
        ("    return x | 1", "    return x & 1", r"s/|/\&/"),
        ("x = a + a + b", "x = a + a - b", "s/+ b/- b/"),
        ("value[0].name", "value[0]", r"s/\.name//"),
    ],
)
def test_smallest_expression(before, after, expression):
    assert substitution(before, after) == expression
    assert sed(expression, before) == after


def test_nothing_to_say():
    assert substitution("a", "a") is None
    assert substitution("    ", "x") is None
    assert substitution("a\nb", "a") is None


def test_any_pair_of_lines_is_edited_by_real_sed():
    rng = random.Random(5)
    alphabet = ["a", "b", "ab", " ", "  ", *r"\/.*[]^$&+-<>=|{}()?'\"~#,:"]
    for _ in range(300):
        before, after = ("x" + "".join(rng.choices(alphabet, k=rng.randint(0, 12))) for _ in range(2))
        expression = substitution(before, after)
        assert (expression is None) == (before == after)
        if expression:
            assert sed(expression, before) == after
