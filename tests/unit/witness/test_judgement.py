"""Witness questions run with the right code, with the bug, with other right code, and with forgeries."""

import copy
import datetime
import json

import pytest

from swelab.records.witness_records import GoldTest, GoldValue, GoldValues, Slot, WitnessManifest
from swelab.witness import judgement
from swelab.witness.emitted import asked_cases, read
from swelab.witness.forming import form
from swelab.witness.judgement import gold_values, judge
from tests.unit.witness.toy_question import run

TESTS = """
import pytest
from pkg import Price, double, parse, split

ROWS = [("12 EUR", (12, "EUR")), pytest.param("7 USD", (7, "USD"), id="usd")]

@pytest.mark.parametrize("text, expected", ROWS)
def test_parse(text, expected):
    assert parse(text) == expected, "a price has an amount and a currency"

class TestPrice:
    def test_order_and_text(self):
        assert Price(3, "EUR") != Price(4, "EUR")
        assert str(Price(3, "EUR")) == "3.00 EUR"

    def test_refused(self):
        with pytest.raises(ValueError, match="no currency"):
            parse("12")

def test_words():
    assert "banana" in split("apple banana cherry")
    assert len(split("a b c d")) == 4

def test_unchanged():
    assert double(21) == 42
"""
GOLD = """
class Price:
    def __init__(self, amount, currency):
        self.amount, self.currency = amount, currency
    def __eq__(self, other):
        return (self.amount, self.currency) == (other.amount, other.currency)
    def __str__(self):
        return f"{self.amount:.2f} {self.currency}"

def parse(text):
    amount, space, currency = text.partition(" ")
    if not currency:
        raise ValueError(f"no currency in {text!r}")
    return int(amount), currency

def split(text):
    return text.split()

def double(number):
    return number * 2
"""
BUG = GOLD.replace("if not currency", "if currency").replace(".2f", ".1f").replace("text.split()", "[text]")
HONEST = (
    GOLD.replace("return int(amount), currency", "return (amount := int(amount), currency)")
    .replace('f"no currency in {text!r}"', '"there is no currency in it"')
    .replace("text.split()", "tuple(word for word in text.split(' ') if word)")
    .replace(
        "self.amount, self.currency = amount, currency",
        "self.amount, self.currency, self._seen = amount, currency, 1",
    )
)
PATH = "tests/test_price.py"
REPAIRED = [
    f"{PATH}::test_parse[12 EUR-expected0]",
    f"{PATH}::test_parse[usd]",
    f"{PATH}::TestPrice::test_order_and_text",
    f"{PATH}::TestPrice::test_refused",
    f"{PATH}::test_words",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gold")
    question = form({PATH: TESTS}, [*REPAIRED, f"{PATH}::test_unchanged"], roots=["pkg"])
    answers, _ = run(folder / "answers", GOLD, question, answers=True)
    cases = None, asked_cases(question.manifest, answers)
    golds = [run(folder / str(at), GOLD, question, cases=each)[0] for at, each in enumerate(cases)]
    bug, _ = run(folder / "bug", BUG, question)
    return question, gold_values(question.manifest, golds, answers, bug), bug


def test_gold_confirms_what_the_bug_gets_wrong(made):
    question, values, bug = made
    assert {test: told.standing for test, told in values.tests.items()} == {
        **dict.fromkeys(REPAIRED, "confirmed"),
        f"{PATH}::test_unchanged": "unwitnessed",
    }
    assert values.tests[f"{PATH}::test_unchanged"].reason == "no value differs with the bug"
    assert judge(question.manifest, values, bug).testimony == "contradicted"
    assert values.tests[REPAIRED[1]].case == 1, "the case is known by the parameters of the answers' run"


def test_only_the_cases_that_are_tests_of_the_task_are_run(tmp_path):
    question = form({PATH: TESTS}, REPAIRED[1:2], roots=["pkg"])
    answers, _ = run(tmp_path / "answers", GOLD, question, answers=True)
    cases = asked_cases(question.manifest, answers)
    assert cases == {"test_question_0.py": [1]}
    asked, _ = run(tmp_path / "asked", GOLD, question, cases=cases)
    (base,) = question.manifest.questions.values()
    assert set(read(asked, question.manifest)) == {(base, 1)}
    everything, _ = run(tmp_path / "all", GOLD, question)
    assert {case for _, case in read(everything, question.manifest)} >= {0, 1}


def test_an_id_that_was_cut_at_a_space_means_the_case_that_begins_so(tmp_path):
    cut = f"{PATH}::test_parse[12"
    question = form({PATH: TESTS}, [cut], roots=["pkg"])
    golds = [run(tmp_path / str(at), GOLD, question)[0] for at in range(2)]
    answers, _ = run(tmp_path / "answers", GOLD, question, answers=True)
    values = gold_values(question.manifest, golds, answers, run(tmp_path / "bug", BUG, question)[0])
    assert values.tests[cut].standing == "confirmed" and values.tests[cut].case == 0


def test_other_right_code_is_confirmed(made, tmp_path):
    question, values, _ = made
    said, text = run(tmp_path / "honest", HONEST, question)
    told = judge(question.manifest, values, said)
    assert {each.standing for test, each in told.tests.items() if "unchanged" not in test} == {"confirmed"}, (
        text
    )


def test_code_that_pretends_is_not(made, tmp_path):
    question, values, _ = made
    always = (
        "class Any:\n    __eq__ = __contains__ = lambda self, other: True\n    __ne__ = lambda *_: False\n"
    )
    pretends = BUG + "\n" + always + "def parse(text): return Any()\nsplit = parse\n"
    told = judge(question.manifest, values, run(tmp_path / "any", pretends, question)[0])
    assert told.testimony == "contradicted"
    assert told.tests[REPAIRED[0]].standing == "unconfirmed"
    assert told.tests[f"{PATH}::TestPrice::test_order_and_text"].standing == "contradicted"
    assert told.tests[f"{PATH}::test_words"].standing in ("unconfirmed", "contradicted")


def test_wrong_operators_and_a_late_difference_are_seen(tmp_path):
    tests = """
from pkg import Price, square
def test_differ():
    assert Price(3) != Price(4)
def test_many():
    for number in range(1000):
        assert square(number) == number ** 2
"""
    gold = """
class Price:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
def square(n): return n * n
"""
    bug = gold.replace("self.n == other.n", "True").replace("n * n", "n * min(n, 900)")
    question = form({PATH: tests}, [f"{PATH}::test_differ", f"{PATH}::test_many"])
    golds = [run(tmp_path / str(at), gold, question)[0] for at in range(2)]
    said = run(tmp_path / "bug", bug, question)[0]
    values = gold_values(question.manifest, golds, golds[0], said)
    assert {told.standing for told in values.tests.values()} == {"confirmed"}
    told = judge(question.manifest, values, said).tests
    assert [each.standing for each in told.values()] == ["contradicted", "unconfirmed"]
    assert values.tests[f"{PATH}::test_differ"].bits < 1, "an operator's answer is easily guessed"


@pytest.mark.parametrize(
    "held, word", [(True, "contradicted"), (False, "unconfirmed"), (None, "unconfirmed")]
)
def test_a_relation_contradicts_only_if_it_held_on_the_gold_patchs_data(held, word):
    slot = Slot(slot=0, test="a", line=1, asserts="compare", ops=["=="], cut=[False, True])
    manifest = WitnessManifest(tests={"a": "a"}, unformed={}, questions={"q.py": "a"}, slots=[slot], sight={})
    value = GoldValue(slot=0, at=1, part="v", said=[["i", "5"]], cut=[None, ["i", "5"]], held=held, bits=9.0)
    test = GoldTest(case=0, occurrences=[value], bits=9.0, standing="confirmed")
    gold = GoldValues(tests={"a": test}, bits=9.0, testimony="witnessed")
    said = b'[0,"case",0,"q.py::test_q"]\n[1,"value",0,0,1,"v",[["i","%d"]]]\n'
    assert judge(manifest, gold, said % 5).tests["a"].standing == "confirmed"
    assert judge(manifest, gold, said % 6).tests["a"].standing == word


def test_silence_and_a_second_story_contradict(made, tmp_path):
    question, values, bug = made
    assert judge(question.manifest, values, b"").tests[REPAIRED[0]].standing == "contradicted"
    gold, _ = run(tmp_path / "gold", GOLD, question)
    assert (
        judge(question.manifest, values, gold).testimony
        == judge(question.manifest, values, gold + gold).testimony
    )
    assert judge(question.manifest, values, bug + gold).testimony == "contradicted", "the first story counts"
    lines = gold.split(b"\n")
    assert judge(question.manifest, values, b"\n".join(lines[:3] + lines[4:])).testimony == "contradicted", (
        "a gap"
    )


def test_noise_is_judged_without_an_exception(made):
    question, values, _ = made
    for noise in (
        b"\xff\x00",
        b"[" * 100_000,
        b'[0,"case",0,7]',
        b"[0,1,2,3]",
        b'[0,"value",0,0,1,"v",[["l",[["i"]]]]]',
    ):
        assert judge(question.manifest, values, noise).testimony == "contradicted"


def said_by(values, change):
    """Returns a run's data with gold's values, of which `change` alters each."""
    events = [
        ["value", told.case, each.slot, each.at, each.part, change(test, each)]
        for test, told in values.tests.items()
        for each in told.occurrences
    ]
    return b"".join(json.dumps([at, *each]).encode() + b"\n" for at, each in enumerate(events))


FIGURES = """
from pkg import area, counts, edge
def test_area(): assert area(7, 6) == 42.5
def test_edge(): assert edge(9) == 123456.5
def test_counts(): assert counts("banana") == {"a": 3, "b": 1, "n": 2}
"""
FIGURES_GOLD = """
def area(a, b): return a * b + 0.5
def edge(a): return 123456.5
def counts(text): return {each: text.count(each) for each in sorted(set(text))}
"""


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    names = ("test_area", "test_edge", "test_counts")
    question = form({PATH: FIGURES}, [f"{PATH}::{name}" for name in names], roots=["pkg"])
    golds = [run(folder / str(at), FIGURES_GOLD, question)[0] for at in range(2)]
    answers = run(folder / "answers", FIGURES_GOLD, question, answers=True)[0]
    bug = FIGURES_GOLD.replace("0.5", "0").replace("6.5", "0").replace("text.count(each)", "3")
    values = gold_values(question.manifest, golds, answers, run(folder / "bug", bug, question)[0])
    assert values.testimony == "witnessed"
    return question.manifest, values


ONE = ["d", [[["s", "a"], ["i", "3"]]] * 3]
HOSTILE = {
    "chooses how near is near": ["A", ["i", "0"], ["n"], ["f", "inf"]],
    "is near whatever it is": ["l", [["A", ["i", "0"], ["f", "inf"], ["n"]]]],
    "says one right entry again and again": ONE,
    "has a key of 20,000 digits": ["d", [[["i", "0x" + "f" * 19_000], ["n"]]] * 3],
    "has a number of 20,000 digits": ["i", "0x" + "f" * 19_000],
    "carries what no value has": ["S", [], [[[[]]]]],
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_value_stands_for_those_that_it_is_not(figures, value):
    manifest, values = figures
    told = judge(manifest, values, said_by(values, lambda _, each: [value, *each.said[1:]]))
    assert told.testimony in ("contradicted", "not_witnessed")
    assert "confirmed" not in {each.standing for each in told.tests.values()} and told.bits == 0


def test_a_test_is_not_confirmed_by_what_another_says(made):
    question, bug = made[0], made[2]
    values = copy.deepcopy(made[1])
    assert values.tests[REPAIRED[2]].bits > 0
    runs = read(bug, question.manifest)

    def one_repaired(test, each):
        heard = runs.get((question.manifest.tests[test], values.tests[test].case))
        is_bug = test == REPAIRED[2] and each.bits
        return (heard.values.get((each.slot, each.at, each.part), []) if is_bug else each.said) or each.said

    partly = {REPAIRED[0]: values.tests[REPAIRED[0]], REPAIRED[2]: values.tests[REPAIRED[2]]}
    for each in partly[REPAIRED[2]].occurrences:
        if each.part == "v" and each.bits:
            each["part"] = "s1"  # as if the bug showed only in an operand's argument
    told = judge(question.manifest, values | {"tests": partly}, said_by(values, one_repaired))
    assert told.tests[REPAIRED[0]].standing == "confirmed"
    assert told.tests[REPAIRED[2]].standing == "weak"


def test_what_tells_the_day_is_no_evidence(tmp_path, monkeypatch):
    monkeypatch.setattr(judgement, "today", lambda: [datetime.date(2031, 4, 7)])
    tests = """
import datetime
from pkg import day, parse
def test_day():
    assert day() == datetime.date(2031, 4, 7)
    assert parse("12 EUR") == (12, "EUR")
"""
    gold = GOLD + "import datetime\ndef day(): return datetime.date(2031, 4, 7)\n"
    question = form({PATH: tests}, [f"{PATH}::test_day"], roots=["pkg"])
    runs = [run(tmp_path / str(at), gold, question, answers=at == 1)[0] for at in range(2)]
    values = gold_values(question.manifest, [runs[0], runs[0]], runs[1], b"")
    assert values.testimony == "witnessed"
    told = judge(question.manifest, values, runs[0].replace(b"datetime.date(", b"datetime.date(1"))
    assert told.tests[f"{PATH}::test_day"].standing == "confirmed", "asked on another day"


def test_a_value_that_is_said_less_often_is_no_contradiction(tmp_path):
    tests = """
from pkg import words
def test_words():
    for word in words():
        assert word == word.lower()
        assert len(word) < 9
"""
    gold = "def words(): return ['several', 'words', 'words']"
    question = form({PATH: tests}, [f"{PATH}::test_words"], roots=["pkg"])
    said = run(tmp_path / "gold", gold, question)[0]
    values = gold_values(question.manifest, [said, said], said, b"")
    fewer = run(tmp_path / "fewer", "def words(): return ['several', 'words']", question)[0]
    assert judge(question.manifest, values, fewer).tests[f"{PATH}::test_words"].standing == "unconfirmed"
    assert judge(question.manifest, values, b"").tests[f"{PATH}::test_words"].standing == "contradicted"
