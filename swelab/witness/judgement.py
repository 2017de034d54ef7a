"""Judges the values that a patch's run emitted, given the gold patch's values. Takes linear time. A value
confirms the patch if it equals the gold patch's value, or if the test's `==` holds for it. Relations that are
easy to satisfy (`!=`, `in`, truth, both sides from the patch) alone prove nothing. A relation contradicts
only if it held for the gold patch's own values."""

import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from swelab.records.witness_records import (
    GoldTest,
    GoldValue,
    GoldValues,
    Slot,
    Testimony,
    TestTestimony,
    Witnessed,
    WitnessManifest,
)
from swelab.witness import bits as weights
from swelab.witness.asserted import CANNOT_SAY, is_strong, public_text, relation
from swelab.witness.changes import Guesses
from swelab.witness.emitted import Data, Key, TestOutput, read
from swelab.witness.node_ids import case_of
from swelab.witness.relations import OPAQUE, equal, margins
from swelab.witness.visible_constants import hash_of

_WRITTEN = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y%m%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m/%d/%y",
    "%d %b %Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)


def today() -> list[datetime.date]:
    """Returns the current dates in local time and in UTC, since a sandbox may use either time zone."""
    now = datetime.datetime.now(datetime.UTC)
    return sorted({now.date(), now.astimezone().date()})


def tells_the_day(values: Sequence[Any], days: Sequence[datetime.date]) -> bool:
    """Returns whether canonical data contain one of the dates, in one of the usual spellings."""
    text = json.dumps(values)
    return any(each in text for day in days for each in _spellings(day))


def _spellings(day: datetime.date) -> set[str]:
    plain = f"({day.year}, {day.month}, {day.day}"  # start of the repr of a date or a datetime
    listed = json.dumps([["i", str(part)] for part in (day.year, day.month, day.day)])[1:-1]
    return {day.strftime(form) for form in _WRITTEN} | {f"{plain})", f"{plain},", listed}


ENOUGH_BITS = 8.0
_NOT_RUN = "its question did not run with the gold patch"
_ONCE = 3.0  # a value with at least this many bits counts once, even if several assertions emit it
_OPERATORS = {"==": 0, "!=": 1, "is": 2, "is not": 2, "in": 0, "not in": 1, "<": 0, "<=": 1, ">": 2, ">=": 3}


def gold_values(manifest: WitnessManifest, gold: Sequence[bytes], answers: bytes, bug: bytes) -> GoldValues:
    """Returns the values of the gold patch in a task's question. gold: outputs of two or more runs of
    `Question.files` with the gold patch. answers: output of one run of `Question.answers` with the gold
    patch, which also shows each test's case. bug: output of one run of `Question.files` with the bug. Values
    that differ between gold runs, values that contain the date, and objects without data are excluded."""
    runs = [read(each, manifest) for each in gold]
    answered, buggy = read(answers, manifest), read(bug, manifest)
    slots = {slot.slot: slot for slot in manifest.slots}
    cases = {(base, each.parameters): case for (base, case), each in answered.items()}
    tests: dict[str, GoldTest] = {}
    for test, base in manifest.tests.items():
        at = (base, case_of(test, base, cases))
        emitted = [run[at] for run in runs if at[1] >= 0 and at in run]
        if len(emitted) < len(runs):
            tests[test] = GoldTest(
                case=max(at[1], 0), occurrences=[], bits=0.0, standing="unwitnessed", reason=_NOT_RUN
            )
            continue
        near = answered.get(at, TestOutput()), buggy.get(at, TestOutput())
        sight = frozenset(manifest.sight.get(base, ())) | _hashes(buggy.get(at))
        shown = sight, Guesses(manifest.shown.get(base, ()))
        tests[test] = _gold_test(slots, at[1], emitted, near, shown)
    values = GoldValues(tests=tests, bits=0.0, testimony="not_witnessed")
    own_run = judge(manifest, values, gold[0])
    counted = {test: each | {"bits": own_run.tests[test].bits} for test, each in tests.items()}
    return values | {"tests": counted, "bits": own_run.bits, "testimony": own_run.testimony}


def _gold_test(
    slots: dict[int, Slot],
    case: int,
    runs: Sequence[TestOutput],
    near: tuple[TestOutput, TestOutput],
    shown: tuple[frozenset[str], Guesses],
) -> GoldTest:
    """Returns how strongly the gold patch confirms a test, and the values that all runs share. near: values
    from the run with the expected values, and from the run with the bug. shown: hashes of the values that an
    agent can see, and guesses from visible constants."""
    first, days = runs[0], today()
    steady = [
        _gold_value(slots[key[0]], key, values, *near, *shown)
        for key, values in first.values.items()
        if key[0] in slots
        and all(run.values.get(key) == values for run in runs)
        and _has_data(key, values)
        and not tells_the_day([values, near[0].values.get(key, [])], days)
    ]
    own = GoldTest(case=case, occurrences=steady, bits=0.0, standing="unwitnessed")
    judged = _test(own, slots, first, set())
    reason = "" if judged.standing == "confirmed" else judged.reason or _why_not(first, steady)
    return own | {"bits": judged.bits, "standing": judged.standing, "reason": reason}


def _hashes(bug: TestOutput | None) -> frozenset[str]:
    """Returns hashes of all values that the test emits with the bug. An agent sees these values if it runs
    the test."""
    values = bug.values.items() if bug else ()
    return frozenset(hash_of(each) for key, data in values if key[2] != "op" for each in data)


def _has_data(key: Key, values: Sequence[Data]) -> bool:
    if key[2] == "op":
        return True
    return any(each[0] not in OPAQUE for each in values)


def _why_not(emitted: TestOutput, steady: Sequence[GoldValue]) -> str:
    if emitted.outcome not in ("", "passed"):
        return f"its question ended as {emitted.outcome} with the gold patch"
    if not emitted.values:
        return "its question emitted no value"
    if not steady:
        return "its values differ between runs or days, or are objects without data"
    return "no value differs with the bug" if not any(each.bits for each in steady) else ""


def _gold_value(
    slot: Slot,
    key: Key,
    values: list[Data],
    answers: TestOutput,
    bug: TestOutput,
    sight: frozenset[str],
    guesses: Guesses,
) -> GoldValue:
    """Returns the record of a value that all runs share. It has the assertion's expected values and result,
    and the value's bits."""
    number, at, part = key
    answered = answers.values.get(key, []) if part == "v" else []
    cut = [answered[at] if each and at < len(answered) else None for at, each in enumerate(slot.cut)]
    gold = GoldValue(slot=number, at=at, part=part, said=values, cut=cut if any(slot.cut) else [])
    other = bug.values.get(key)
    if part == "v":
        gold |= {"held": relation(slot, values, cut)}
    if other == values:
        return gold
    if part == "op":
        return gold | {"bits": weights.BARE_TRUTH}
    if part == "v" and other is not None and relation(slot, other, cut) and is_strong(slot, cut):
        return gold
    worth, guess = _worth(slot, part, values, other, sight, guesses)
    return gold | {"bits": round(worth, 2)} | ({"guess": guess} if guess else {})


def _worth(
    slot: Slot, part: str, values: list[Data], bug: list[Data] | None, sight: frozenset[str], guesses: Guesses
) -> tuple[float, str]:
    """Returns (bits of the operand that is hardest to guess, how it could be guessed or "")."""
    if part == "v" and slot.asserts in ("raises", "warns"):
        kind = str(values[0][1]) if values[0][0] == "E" else ""
        return weights.exception_bits(kind), f"raises {kind}" if kind and slot.asserts == "raises" else ""
    if part == "v" and slot.asserts == "truth" and values[0][0] == "b":
        return weights.BARE_TRUTH, ""
    costs = []
    for at, each in enumerate(values):
        if each[0] in OPAQUE:
            continue
        other = bug[at] if bug is not None and at < len(bug) else None
        if other == each:
            continue
        guess, cost = guesses.of(each, other)
        worth = weights.surprise(each, other, sight)
        costs.append((cost, guess) if guess and cost < worth else (worth, ""))
    return max(costs, default=(0.0, ""))


def judge(manifest: WitnessManifest, values: GoldValues, emitted: bytes) -> Testimony:
    """Judges the output of a patch's run. No content of `emitted` makes it raise. The output is hostile, and
    the tests' regular expressions are searched in it. So call this function with limits on time and memory.
    """
    run = read(emitted, manifest)
    slots = {slot.slot: slot for slot in manifest.slots}
    counted: set[str] = set()
    tests = {
        test: _test(gold, slots, run.get((manifest.tests[test], gold.case)), counted)
        for test, gold in values.tests.items()
    }
    tests |= {
        test: TestTestimony(standing="unwitnessed", reason=why) for test, why in manifest.unformed.items()
    }
    word, reason, bits = standing(tests, tests)
    return Testimony(testimony=word, reason=reason, bits=bits, tests=tests)


def standing(tests: Mapping[str, TestTestimony], repaired: Collection[str]) -> tuple[Witnessed, str, float]:
    """Returns (strength of a task's witness evidence, why it is not stronger, bits). Any test can contradict
    a patch. Only the tests to be repaired can confirm it, and only their bits count."""
    mine = {test: each for test, each in tests.items() if test in repaired}
    bits = round(sum(each.bits for each in mine.values()), 2)
    for word in ("contradicted", "unconfirmed"):
        for test, each in tests.items():
            if each.standing == word:
                found: Witnessed = "contradicted" if word == "contradicted" else "not_witnessed"
                return found, f"{test} is {word}: {each.reason}", bits
    short = [(test, each) for test, each in mine.items() if each.standing != "confirmed"]
    if mine and not short and bits >= ENOUGH_BITS:
        return "witnessed", "", bits
    why = f"{bits:g} bits, fewer than {ENOUGH_BITS:g}"
    if short:
        test, each = short[0]
        why = f"{test} is {each.standing}: {each.reason}"
    return ("weakly_witnessed" if bits else "not_witnessed"), why, bits


def _test(
    gold: GoldTest, slots: dict[int, Slot], emitted: TestOutput | None, counted: set[str]
) -> TestTestimony:
    """Returns how strongly a patch's values confirm a test. counted: names of values whose bits are already
    counted. The names of this test's values are added."""
    reasons: dict[str, str] = {}
    total, again = 0.0, False
    plain = {(each.slot, each.at): each.said for each in gold.occurrences if each.part == "v"}
    for each in gold.occurrences:
        slot = slots[each.slot]
        now = emitted.values.get((each.slot, each.at, each.part)) if emitted else None
        try:
            verdict, why = _occurrence(slot, each, now, emitted, plain.get((each.slot, each.at)))
        except CANNOT_SAY:
            verdict, why = "unconfirmed", "data cannot be compared"
        reasons.setdefault(verdict, f"line {slot.line}: {why}" if slot.line else why)
        if verdict != "confirmed":
            continue
        worth = each.bits if now == each.said else min(each.bits, weights.RAISED)
        name = each.guess or json.dumps(each.said)
        again = again or worth > 0
        if name not in counted or (worth < _ONCE and not each.guess):
            total += worth
        if worth:
            counted.add(name)
    for standing in ("contradicted", "unconfirmed"):
        if standing in reasons:
            return TestTestimony(standing=standing, reason=reasons[standing])
    if total > 0:
        return TestTestimony(standing="confirmed", bits=round(total, 2))
    if any(each.bits for each in gold.occurrences):
        if again and gold.standing == "confirmed" and "weak" not in reasons:
            return TestTestimony(standing="confirmed")
        return TestTestimony(standing="weak", reason="only relations that are easy to satisfy")
    if not gold.occurrences:
        return TestTestimony(standing="unwitnessed", reason=gold.reason)
    return TestTestimony(standing="unwitnessed", reason=gold.reason or "no value differs with the bug")


def _occurrence(
    slot: Slot, gold: GoldValue, now: list[Data] | None, emitted: TestOutput | None, both: list[Data] | None
) -> tuple[str, str]:
    """Returns (verdict, reason) for one value. The verdict is confirmed, weak, unconfirmed, contradicted, or
    "" if the value may differ."""
    if now is None and gold.part in ("v", "op") and emitted and (slot.slot, 1, gold.part) in emitted.values:
        return (
            "unconfirmed",
            "its value is emitted less often",
        )  # correct code may evaluate the assertion less often too
    if gold.part == "op":
        verdict, why = _operator(slot, gold, now)
        own = emitted.values.get((slot.slot, gold.at, "v")) if emitted else None
        return ("weak", why) if verdict == "confirmed" and own != both else (verdict, why)
    if gold.part == "rest":
        return (
            ("confirmed", "") if now == gold.said else ("unconfirmed", "values of further occurrences differ")
        )
    if gold.part != "v":
        return ("confirmed", "") if now == gold.said else ("", "")
    if now is None:
        return "contradicted", "a value was not emitted"
    if now == gold.said:
        return "confirmed", ""
    if margins(now) != margins(gold.said):
        return "unconfirmed", "the patch chooses how near is near enough"
    held = relation(slot, now, gold.cut)
    if held is None and slot.ops == ["=="] and len(now) == len(gold.said):
        held = True if all(map(equal, now, gold.said)) else None
    if held is False and gold.held is True:
        return "contradicted", "a relation that holds on the gold patch's data is false"
    if held is True:
        return ("confirmed" if is_strong(slot, gold.cut) else "weak"), "relation"
    two_sided = not any(slot.cut) and (slot.slot, gold.at, "op") in (emitted.values if emitted else {})
    if two_sided or public_text(now) == public_text(gold.said) != "":
        return "weak", "objects whose contents differ"
    if slot.asserts == "calls":
        return "unconfirmed", "a mock was called differently"
    return "unconfirmed", "the data cannot show whether the relation holds"


def _operator(slot: Slot, gold: GoldValue, now: list[Data] | None) -> tuple[str, str]:
    """Returns (verdict, reason) from the results of an operator and its opposite, compared with the gold
    patch's results."""
    if slot.ops[0] not in _OPERATORS:
        return "", ""
    at = _OPERATORS[slot.ops[0]]
    if at >= len(gold.said) or gold.said[at][0] != "b":
        return "", ""
    if now is None:
        return "contradicted", "a value was not emitted"
    if now == gold.said:
        return "confirmed", ""
    opposite = {0: 1, 1: 0}.get(at) if len(gold.said) < 4 else None
    wanted = [at] if opposite is None or slot.ops[0].startswith("is") else [at, opposite]
    if all(each < len(now) and now[each] == gold.said[each] for each in wanted):
        return "weak", "operator"
    return "contradicted", "an operator of the patch's objects has another result"
