"""The text of a witness question: what it shows and hides. test_judgement.py runs the questions."""

import ast
import re

import pytest

from swelab.witness.forming import form

SECRETS = '''
"""The secret of the module."""
import unittest
import pytest
from pkg import Thing, parse

TABLE = [("in1", "secret1"), ("in2", "secret2")]
NAMES = {"in3": "secret3"}
OTHER = "secret of another test"

def check(text, expected, note="secret note"):
    # a secret comment
    assert parse(text) == expected, note

@pytest.fixture
def expected_thing():
    return "secret4"

class TestSecretName:
    """A secret."""

    @pytest.mark.parametrize("text, want", [("in5", "secret5"), pytest.param("in6", "secret6", id="secret")],
                             ids=["secret7", "secret8"])
    def test_columns(self, text, want, expected_thing):
        "secret docstring"
        wanted = want.upper()
        wanted += "secret9"
        assert parse(text) == wanted
        assert parse("in0") == expected_thing

    def test_raises(self):
        with pytest.raises(LookupError, match="secret10") as caught:
            parse("in7")
        assert "secret11" in str(caught.value)
        caught.match("secret12")

def test_loops():
    for text, want in TABLE:
        check(text, want)
    assert all(parse(text) == want for text, want in NAMES.items())
    if parse("in8") != "secret13":
        raise AssertionError("secret14")
    if not parse("in9").startswith("secret15"):
        pytest.fail("secret16")

def test_other():
    assert parse(OTHER) == "secret17"

class Cases(unittest.TestCase):
    def setUp(self):
        self.__thing = Thing("in10")
        self.want = "secret18"

    def test_unit(self):
        self.assertEqual(self.want, self.__thing.text, "secret19")
        self.assertRegex(self.__thing.text, "secret20")
        with self.assertRaisesRegex(LookupError, "secret21"):
            self.__thing.go()
        self.assertIn("secret22", self.__thing)
        self.assertIsInstance(self.__thing, (LookupError, Thing))
'''
PATH = "tests/test_secret.py"
TESTS = [f"{PATH}::{each}" for each in (
    "TestSecretName::test_columns[secret7]", "TestSecretName::test_raises", "test_loops", "Cases::test_unit"
)]  # fmt: skip


@pytest.fixture(scope="module")
def question():
    return form({PATH: SECRETS}, TESTS)


def test_what_is_expected_is_nowhere_in_the_question(question):
    assert not question.unformed
    assert len(question.files) == len(TESTS)
    for text in question.files.values():
        assert not re.search("secret|LookupError", text, re.IGNORECASE), text
        assert not re.search(r"==|assert|fail|raise|startswith|Regex", text), text
        assert "in" in text, "inputs stay"
    assert question.removed == [PATH]


def test_answers_have_it_and_the_same_slots(question):
    answers = "".join(question.answers.values())
    for number in [*range(1, 14), 15, 18, 20, 21, 22]:
        assert re.search(rf"\bsecret{number}\b", answers), number
    for name, text in question.files.items():
        slots = [re.findall(r"q_\.(?!part)\w+\((\d+)", each) for each in (text, question.answers[name])]
        assert slots[0] == slots[1] != []
    assert [slot.slot for slot in question.manifest.slots] == list(range(len(question.manifest.slots)))


def test_the_manifest_says_what_was_cut(question):
    told = {slot.line: slot for slot in question.manifest.slots}
    lines = SECRETS.splitlines()

    def of(text):
        return told[next(at for at, line in enumerate(lines, 1) if text in line)]

    assert (of("== wanted").ops, of("== wanted").cut) == (["=="], [False, True])
    assert of('!= "secret13"').negated
    assert of("secret11").cut == [True, False]
    assert of("pytest.raises").asserts == "raises"
    assert of("assertIsInstance").asserts == "isinstance"
    assert of("assertEqual").cut == [True, False], "an attribute that setUp makes is expected"
    assert of("secret15").ops == ["startswith"]


def test_each_test_is_alone_under_a_neutral_name(question):
    for text in question.files.values():
        tests = [each.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
        assert [name for name in tests if name.startswith("test")] == ["test_q"]
    assert question.manifest.questions["tests/test_question_2.py"] == f"{PATH}::test_loops"
    assert question.targets[-1] == "tests/test_question_3.py::Q::test_q"


@pytest.mark.parametrize("test, source, reason", [
    ("tests/other.py::test_a", "", "not among the sources"),
    (f"{PATH}::test_b", "def test_a(): assert f() == 1", "not defined in its file"),
    (f"{PATH}::test_a", "def test_a(: pass", "not Python"),
    (f"{PATH}::test_a", "import pkg\ndef test_a(): print(1)", "asserts nothing"),
    (f"{PATH}::test_a", "@given(x)\ndef test_a(x): assert f(x) == 1", "at random"),
    (f"{PATH}::test_a", "def test_a():\n    assert f(" + "(" * 150 + "1" + ")" * 150 + ") == 1", ""),
    (f"{PATH}::test_a", "def test_a():\n    assert f(" + "-" * 20_000 + "1) == 1", "too deeply"),
])  # fmt: skip
def test_a_test_without_a_form_has_its_reason(test, source, reason):
    made = form({PATH: source}, [test])
    assert reason in made.unformed.get(test, "") and bool(made.unformed) == bool(reason), made.unformed
    assert made.manifest.unformed == made.unformed


def test_conftest_and_modules_of_helpers_are_formed_too():
    sources = {
        "tests/conftest.py": (
            "import pytest, pkg\n@pytest.fixture\ndef thing():\n    made = pkg.make()\n"
            "    assert made.ok == 5\n    return made\n"
        ),
        "tests/tools.py": (
            "from pkg import go\nWANT = 'secret'\ndef check(text, want):\n    assert go(text) == want\n"
        ),
        "tests/test_a.py": (
            "from .tools import check, WANT\n"
            "def test_a(thing):\n    check('a', 1)\n    assert thing.name == WANT\n"
        ),
        "tests/test_b.py": "from .test_a import check\ndef test_b():\n    assert check('b', 2) == 3\n",
    }
    others = {"tests/test_c.py": "def test_c(): assert 1\n", "tests/data.py": "assert True\n"}
    made = form(sources | others, ["tests/test_a.py::test_a", "tests/test_b.py::test_b"])
    assert not made.unformed
    assert "made).ok, q_.CUT)" in made.files["tests/conftest.py"]
    assert "q_.same" in made.files["tests/tools.py"], "both operands may be the package's, as far as it knows"
    assert "def test_a" not in made.files["tests/test_a.py"], "what others import of a module of tests stays"
    assert made.removed == ["tests/test_b.py", "tests/test_c.py"], "tests that nothing asks must not answer"
    assert "tests/data.py" not in made.files
    question = made.files["tests/test_question_0.py"]
    assert "WANT" not in question.replace("import check, WANT", ""), (
        "a constant of a helper module is expected"
    )


def test_a_test_that_a_class_has_from_another_module():
    sources = {
        "tests/test_a.py": (
            "import pkg\nclass TestA:\n    def test_go(self):\n        assert pkg.go(self.n) == 'secret'\n"
        ),
        "tests/test_b.py": "from .test_a import TestA\nclass TestB(TestA):\n    n = 2\n",
    }
    made = form(sources, ["tests/test_b.py::TestB::test_go"])
    assert not made.unformed
    assert made.targets[-1] == "tests/test_question_0.py::TestQ::test_go"
    assert "class TestQ(TestA):\n    n = 2" in made.files["tests/test_question_0.py"]
    assert "q_.emit" in made.files["tests/test_a.py"] and "secret" not in made.files["tests/test_a.py"]


def test_names_that_classes_mangle_survive():
    source = (
        "class TestA:\n    def __go(self):\n        return pkg.go()\n"
        "    def test_a(self):\n        assert self.__go() == 1\n"
    )
    made = form({PATH: "import pkg\n" + source}, [f"{PATH}::TestA::test_a"])
    text = made.files["tests/test_question_0.py"]
    assert "def __go" in text and "self.__go()" in text and "__q" not in text


@pytest.mark.parametrize("test, found", [
    ("test_x (app.tests.Cases)", "Cases::test_x"),
    ("test_alone", "test_alone"),
    ("tests.py::Cases::test_x", "Cases::test_x"),
])  # fmt: skip
def test_other_ways_to_name_a_test(test, found):
    source = (
        "from pkg import f\ndef test_alone():\n    assert f() == 1\n"
        "class Cases:\n    def test_x(self):\n        assert f() == 2\n"
    )
    assert list(form({"app/tests.py": source}, [test]).manifest.questions.values()) == [
        f"app/tests.py::{found}"
    ]


def test_a_fixture_may_have_another_name_than_its_function():
    source = (
        "import pytest, pkg\n@pytest.fixture(name='made')\ndef _make():\n    return pkg.make()\n"
        "@pytest.fixture(name='want')\ndef _want():\n    return 'secret'\n"
        "@pytest.mark.usefixtures('made')\ndef test_a(): assert pkg.go() == 1\n"
        "def test_b(made, want): assert made == want\n"
    )
    made = form({"tests/test_a.py": source}, ["tests/test_a.py::test_a", "tests/test_a.py::test_b"])
    used, asked = made.files["tests/test_question_0.py"], made.files["tests/test_question_1.py"]
    assert "def _make" in used and "def _make" in asked and "secret" not in asked
    assert "q_.emit(1, made, q_.CUT)" in asked


def test_a_test_that_asserts_nothing_emits_the_results_of_its_calls():
    source = (
        "import pkg\ndef test_a():\n    pkg.run('a')\n    made = pkg.make()\n    print(1)\n"
        "    for each in made:\n        each.go(lambda: 1)\n"
    )
    made = form({"tests/test_a.py": source}, ["tests/test_a.py::test_a"])
    question = made.files["tests/test_question_0.py"]
    assert re.findall(r"q_\.result\((\d), (\d), ([\w.]+)", question) == [
        ("0", "1", "pkg.run"), ("0", "2", "pkg.make"), ("0", "3", "each.go"),
    ]  # fmt: skip
    assert [slot.cut for slot in made.manifest.slots] == [[False]]


TESTING = """
import unittest
from contextlib import contextmanager
from typing import Optional
from .core import Refused, parse
LIMIT = 3
class testing:
    class Asserts(unittest.TestCase):
        def assertValue(self, value, want=None, size=None, msg=None):
            if want is not None:
                self.assertEqual(value.text, want, msg)
            if size is not None:
                self.assertEqual(len(value.text), size, msg)
        def assertParsed(self, given: Optional[str], want, msg="secret note"):
            self.assertValue(parse(given, LIMIT), want, msg=msg)
        @contextmanager
        def assertRefused(self):
            with self.assertRaises(Refused):
                yield
"""
INHERITED = """
import unittest
import pkg
from pkg import helpers
WANT = "secret1"
class Tests(helpers.Asserts, unittest.TestCase):
    def test_parse(self):
        self.assertParsed("in1", WANT)
        self.assertValue(pkg.parse("in2", 1), size=777)
    def test_refused(self):
        with self.assertRefused():
            pkg.parse("", 1)
"""


def test_assertions_that_the_package_gives_its_tests_are_taken_over():
    tests = [f"tests/test_a.py::Tests::{name}" for name in ("test_parse", "test_refused")]
    made = form({"tests/test_a.py": INHERITED}, tests, ["pkg"], {"src/pkg/testing.py": TESTING})
    assert not made.unformed
    assert "src/pkg/testing.py" not in {**made.files, **made.answers}.keys() | {*made.removed}
    question, refused = made.files["tests/test_question_0.py"], made.files["tests/test_question_1.py"]
    assert "from pkg.testing import parse as held0_parse" in question
    assert "from contextlib import contextmanager as held0_contextmanager" in refused
    assert "self.assertParsed('in1', q_.CUT)" in question and "size=q_.CUT" in question
    assert re.search(r"q_\.emit\(\d+, q_\.part\(\d+, 1, value\)\.text, q_\.CUT\)", question)
    assert re.search(r"with q_\.caught\(\d+\):\n +yield", refused)
    assert not re.findall("secret|777", "".join(made.files.values()))
    assert "secret1" in made.answers["tests/test_question_0.py"]


def test_a_base_of_the_standard_library_is_not_the_packages():
    source = (
        "import unittest, pkg\nclass Tests(unittest.TestCase):\n"
        "    def test_a(self):\n        self.assertEqual(pkg.go(), 1)\n"
    )
    package = {"pkg/testing.py": "class TestCase:\n    def assertEqual(self, a, b):\n        pass\n"}
    made = form({"tests/test_a.py": source}, ["tests/test_a.py::Tests::test_a"], ["pkg"], package)
    assert "class TestQ(unittest.TestCase)" in made.files["tests/test_question_0.py"]


def test_a_mixin_in_the_package_of_the_tests_stays_where_tests_import_it_from_there():
    mixin = "class Mixin:\n    def test_made(self):\n        self.assertEqual(self.make(3), 9)\n"
    test = (
        "import unittest\nimport pkg\nfrom . import Mixin\n"
        "class LowTest(unittest.TestCase, Mixin):\n    make = pkg.make\n"
        "    def test_own(self):\n        self.assertEqual(pkg.make(4), 16)\n"
    )
    sources = {"tests/__init__.py": mixin, "tests/test_low.py": test}
    question = form(sources, ["tests/test_low.py::LowTest::test_own"], roots=["pkg"])
    assert not question.unformed and question.removed == ["tests/test_low.py"]
    text = question.files.get("tests/__init__.py", "")
    assert "9" not in text, text
