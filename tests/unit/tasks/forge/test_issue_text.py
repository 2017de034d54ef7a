"""Issue texts name the symptom, the test and the place, never the changed line."""

import pytest

from swelab.tasks.forge.issue_text import OPENINGS, issue_text, module_name, scrub, symptom

CHANGED = ("return word[:1]", "return word[1:]")


def text(
    message: str = "AssertionError: assert 'a' == 'b'", broken=("t.py::a",), bug: str = "00000000"
) -> str:
    return issue_text("src/pack/mod.py::C.name", list(broken), message, CHANGED, bug)


@pytest.mark.parametrize("bug", [f"{n:08x}" for n in range(len(OPENINGS))])
def test_every_wording_names_function_file_and_test(bug):
    made = text(bug=bug)
    head = made.split("\n\n")[0]
    assert len(head.splitlines()) == 2
    assert "name" in head and "src/pack/mod.py" in head and "t.py::a fails." in head
    assert "`pack.mod.C.name`" in made
    assert "    AssertionError: assert 'a' == 'b'" in made


def test_it_is_a_function_of_its_facts():
    assert text() == text()
    assert text(bug="00000001") != text()


def test_a_message_with_the_changed_line_is_left_out():
    made = text("SyntaxWarning: in return word[1:] of name")
    assert "word" not in made


def test_many_failing_tests_are_counted():
    made = text(broken=[f"t.py::a{n}" for n in range(9)])
    assert made.count("- t.py") == 4
    assert made.endswith("\n- and 4 more")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("AssertionError: assert 1 == 2", "gives a wrong result"),
        ("assert 1 == 2", "gives a wrong result"),
        ("", "gives a wrong result"),
        ("TypeError: 'int' object is not callable", "ends in TypeError"),
        ("schema.SchemaError: wrong key", "ends in SchemaError"),
        ("StopIteration", "ends in StopIteration"),
        ("Failed: DID NOT RAISE <class 'KeyError'>", "does not raise the error it should"),
        ("AssertionError: TypeError not raised by f", "does not raise the error it should"),
    ],
)
def test_symptoms(message, expected):
    assert symptom(message) == expected


def test_what_differs_between_runs_is_scrubbed():
    message = "E <f at 0x7f00deadbeef> in /tmp/x-1/y.py and '/testbed/a.py', took 0.35s\nmore"
    assert scrub(message) == "E <f at 0x...> in <path> and '<path>', took <time> more"
    assert len(scrub("x" * 5000)) < 400


def test_dotted_names():
    assert module_name("pack/__init__.py") == "pack"
    assert module_name("src/pack/mod.py") == "pack.mod"
    assert module_name("mod.py") == "mod"
