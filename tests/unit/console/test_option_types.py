"""Numbers as options: a wrong value gets a message with the expected form."""

import argparse
import re

import pytest

from swelab.console.option_types import at_least, number, title, whole
from tests.conftest import ROOT


@pytest.mark.parametrize("text", ["", "abc", "-1", "0", "1.5", "²", "٣", " 1"])
def test_what_is_no_number_of_at_least_one_is_said(text):
    with pytest.raises(argparse.ArgumentTypeError, match="; expected a whole number of at least 1"):
        at_least(1)(text)


def test_numbers_from_the_least_on_are_read():
    assert [at_least(0)("0"), at_least(1)("1"), at_least(1)("007")] == [0, 1, 7]


@pytest.mark.parametrize("text", ["", "abc", "1.5", "²", " 1", "1_0"])
def test_what_is_no_whole_number_is_said(text):
    with pytest.raises(argparse.ArgumentTypeError, match="; expected a whole number$"):
        whole(text)
    assert [whole("-3"), whole("0")] == [-3, 0]


@pytest.mark.parametrize("text", ["", "abc", "nan", "inf", "1,5"])
def test_what_is_no_number_is_said(text):
    with pytest.raises(argparse.ArgumentTypeError, match="; expected a number$"):
        number(text)
    assert [number("-0.5"), number("2e-6")] == [-0.5, 2e-6]


@pytest.mark.parametrize("text", ["", " a", "a|b", "a/b", "a\nb", "ü", "-a", "x" * 101])
def test_what_is_no_name_for_tables_and_files_is_said(text):
    with pytest.raises(argparse.ArgumentTypeError, match="; expected up to 100 letters, digits, spaces and"):
        title(text)
    assert title("gpt-4o at t=1, no".replace(",", "")) == "gpt-4o at t=1 no"


def test_options_of_commands_are_read_by_these_types():
    """argparse itself says only `invalid int value`, without the expected form."""
    folders = ("scripts", "swe-rl", "swe-pdb", "examples", "swelab/evaluation")
    texts = {path: path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert [path for path, text in texts.items() if re.search(r"type=(int|float)\b", text)] == []
