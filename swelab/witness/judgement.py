"""Judges the values that a patch's run emitted by those of the gold patch. Linear in its input.

A value equal to the gold patch's confirms; so does another one for which the test's `==` holds. A relation
that is easy to satisfy (`!=`, `in`, truth, both sides from the patch) neither confirms nor contradicts by
itself. A relation contradicts only if it held on the gold patch's own values.
"""

import json
from collections.abc import Sequence

from swelab.records.witness_records import (
    GoldTest,
    GoldValue,
    GoldValues,
    Slot,
    Standing,
    Testimony,
    TestTestimony,
    Witnessed,
    WitnessManifest,
)
from swelab.witness import bits as weights
from swelab.witness.asserted import CANNOT_SAY, is_strong, relation, said_of
from swelab.witness.clock import tells_the_day, today
from swelab.witness.emitted import Data, Heard, Key, read
from swelab.witness.node_ids import parameters_of
from swelab.witness.relations import OPAQUE, equal, margins
from swelab.witness.sight import hash_of

ENOUGH_BITS = 8.0
_ONCE = 3.0  # bits from which a value that several assertions ask for is counted once
_OPERATORS = {"==": 0, "!=": 1, "is": 2, "is not": 2, "in": 0, "not in": 1, "<": 0, "<=": 1, ">": 2, ">=": 3}


def gold_values(manifest: WitnessManifest, gold: Sequence[bytes], answers: bytes, bug: bytes) -> GoldValues:
    """The values of the gold patch in a task's question.

    gold: what two or more runs of `Question.files` with the gold patch emitted; answers: one run of
    `Question.answers` with it, which also says which case is which test; bug: one run of `Question.files`
    with the bug. Values that differ between gold runs or tell the day, and objects that say nothing, are
    left out.
    """
    runs = [read(each, manifest) for each in gold]
    told, buggy = read(answers, manifest), read(bug, manifest)
    slots = {slot.slot: slot for slot in manifest.slots}
    cases = {(base, heard.parameters): case for (base, case), heard in told.items()}
    tests: dict[str, GoldTest] = {}
    days = today()
    for test, base in manifest.tests.items():
        case = cases.get((base, parameters_of(test)), -1)
        at = (base, case)
        sight = frozenset(manifest.sight.get(base, ())) | _said(buggy.get(at))
        first = runs[0].get(at)
        if case < 0 or first is None or any(run.get(at) is None for run in runs):
            missing = "its question did not run with the gold patch"
            tests[test] = GoldTest(
                case=max(case, 0), occurrences=[], bits=0.0, standing="unwitnessed", reason=missing
            )
            continue
        steady = [
            _gold_value(slots[key[0]], key, values, told.get(at, Heard()), buggy.get(at, Heard()), sight)
            for key, values in first.values.items()
            if key[0] in slots
            and all(run[at].values.get(key) == values for run in runs)
            and _tells(key, values)
            and not tells_the_day([values, told.get(at, Heard()).values.get(key, [])], days)
        ]
        own = GoldTest(case=case, occurrences=steady, bits=0.0, standing="unwitnessed")
        judged = _test(own, slots, first, set())
        reason = judged.reason or _why_not(first, steady)
        tests[test] = own | {
            "bits": judged.bits,
            "standing": judged.standing,
            "reason": "" if judged.standing == "confirmed" else reason,
        }
    values = GoldValues(tests=tests, bits=0.0, testimony="not_witnessed")
    own_run = judge(manifest, values, gold[0])
    return values | {"bits": own_run.bits, "testimony": own_run.testimony}


def _said(bug: Heard | None) -> frozenset[str]:
    """Hashes of all values of the bug in the test: whoever runs the question with the bug sees them."""
    values = bug.values.items() if bug else ()
    return frozenset(hash_of(each) for key, said in values if key[2] != "op" for each in said)


def _tells(key: Key, values: Sequence[Data]) -> bool:
    if key[2] == "op":
        return True
    return any(each[0] not in OPAQUE for each in values)


def _why_not(heard: Heard, steady: Sequence[GoldValue]) -> str:
    if heard.outcome not in ("", "passed"):
        return f"its question ended as {heard.outcome} with the gold patch"
    if not heard.values:
        return "its question emitted no value"
    if not steady:
        return "its values differ between runs or days, or are objects without data"
    return "no value differs with the bug" if not any(each.bits for each in steady) else ""


def _gold_value(
    slot: Slot, key: Key, values: list[Data], answers: Heard, bug: Heard, sight: frozenset[str]
) -> GoldValue:
    """A steady value with what was cut beside it, whether its relation held, and its bits."""
    number, at, part = key
    told = answers.values.get(key, []) if part == "v" else []
    cut = [told[at] if each and at < len(told) else None for at, each in enumerate(slot.cut)]
    made = GoldValue(slot=number, at=at, part=part, said=values, cut=cut if any(slot.cut) else [])
    other = bug.values.get(key)
    if part == "v":
        made |= {"held": relation(slot, values, cut)}
    if other == values:
        return made
    if part == "op":
        return made | {"bits": weights.BARE_TRUTH}
    if part == "v" and other is not None and relation(slot, other, cut) and is_strong(slot, cut):
        return made
    return made | {"bits": round(_worth(slot, part, values, other, sight), 2)}


def _worth(slot: Slot, part: str, values: list[Data], bug: list[Data] | None, sight: frozenset[str]) -> float:
    if part == "v" and slot.asserts in ("raises", "warns"):
        return weights.RAISED
    if part == "v" and slot.asserts == "truth" and values[0][0] == "b":
        return weights.BARE_TRUTH
    found = []
    for at, each in enumerate(values):
        if each[0] in OPAQUE:
            continue
        other = bug[at] if bug is not None and at < len(bug) else None
        found.append(weights.surprise(each, other, sight))
    return max(found, default=0.0)


def judge(manifest: WitnessManifest, values: GoldValues, said: bytes) -> Testimony:
    """Judges what the run of a patch emitted. `said` is hostile: call this under limits of time and memory,
    since regular expressions of the tests are searched in it. No content of `said` makes it raise."""
    run = read(said, manifest)
    slots = {slot.slot: slot for slot in manifest.slots}
    counted: set[str] = set()
    tests = {
        test: _test(gold, slots, run.get((manifest.tests[test], gold.case)), counted)
        for test, gold in values.tests.items()
    }
    tests |= {
        test: TestTestimony(standing="unwitnessed", reason=why) for test, why in manifest.unformed.items()
    }
    total = round(sum(each.bits for each in tests.values()), 2)
    standings = {each.standing for each in tests.values()}
    word, reason = _task(standings, total)
    return Testimony(testimony=word, reason=reason, bits=total, tests=tests)


def _task(standings: set[Standing], total: float) -> tuple[Witnessed, str]:
    if "contradicted" in standings:
        return "contradicted", "a test is contradicted"
    if "unconfirmed" in standings:
        return "not_witnessed", "a test is not confirmed, although the gold patch's run confirms it"
    if standings == {"confirmed"} and total >= ENOUGH_BITS:
        return "witnessed", ""
    if total > 0:
        few = f"{total:g} bits, which is less than {ENOUGH_BITS:g}"
        return "weakly_witnessed", "not every test is confirmed" if standings != {"confirmed"} else few
    return "not_witnessed", "no test is confirmed"


def _test(gold: GoldTest, slots: dict[int, Slot], heard: Heard | None, counted: set[str]) -> TestTestimony:
    """The standing of a test. `counted` has the values whose bits were counted, and takes its own."""
    found: dict[str, str] = {}
    total, again = 0.0, False
    plain = {(each.slot, each.at): each.said for each in gold.occurrences if each.part == "v"}
    for each in gold.occurrences:
        slot = slots[each.slot]
        now = heard.values.get((each.slot, each.at, each.part)) if heard else None
        try:
            verdict, why = _occurrence(slot, each, now, heard, plain.get((each.slot, each.at)))
        except CANNOT_SAY:
            verdict, why = "unconfirmed", "data cannot be compared"
        found.setdefault(verdict, f"line {slot.line}: {why}" if slot.line else why)
        if verdict != "confirmed":
            continue
        worth = each.bits if now == each.said else min(each.bits, weights.RAISED)
        name = json.dumps(each.said)
        again = again or worth > 0
        if worth < _ONCE or name not in counted:
            total += worth
        if worth:
            counted.add(name)
    for standing in ("contradicted", "unconfirmed"):
        if standing in found:
            return TestTestimony(standing=standing, reason=found[standing])
    if total > 0:
        return TestTestimony(standing="confirmed", bits=round(total, 2))
    if any(each.bits for each in gold.occurrences):
        if again and gold.standing == "confirmed" and "weak" not in found:
            return TestTestimony(standing="confirmed")
        return TestTestimony(standing="weak", reason="only relations that are easy to satisfy")
    if not gold.occurrences:
        return TestTestimony(standing="unwitnessed", reason=gold.reason)
    return TestTestimony(standing="unwitnessed", reason=gold.reason or "no value differs with the bug")


def _occurrence(
    slot: Slot, gold: GoldValue, now: list[Data] | None, heard: Heard | None, both: list[Data] | None
) -> tuple[str, str]:
    """(verdict, reason) of an occurrence: confirmed, weak, unconfirmed, contradicted; "" if it may differ."""
    if now is None and gold.part in ("v", "op") and heard and (slot.slot, 1, gold.part) in heard.values:
        return (
            "unconfirmed",
            "its value is emitted less often",
        )  # right code, too, may go through fewer things
    if gold.part == "op":
        verdict, why = _operator(slot, gold, now)
        own = heard.values.get((slot.slot, gold.at, "v")) if heard else None
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
        return "unconfirmed", "it says itself how near is near enough"
    held = relation(slot, now, gold.cut)
    if held is None and slot.ops == ["=="] and len(now) == len(gold.said):
        held = True if all(map(equal, now, gold.said)) else None
    if held is False and gold.held is True:
        return "contradicted", "a relation that holds on the gold patch's data is false"
    if held is True:
        return ("confirmed" if is_strong(slot, gold.cut) else "weak"), "relation"
    two_sided = not any(slot.cut) and (slot.slot, gold.at, "op") in (heard.values if heard else {})
    if two_sided or said_of(now) == said_of(gold.said) != "":
        return "weak", "objects whose contents differ"
    if slot.asserts == "calls":
        return "unconfirmed", "a mock was called differently"
    return "unconfirmed", "the data cannot show whether the relation holds"


def _operator(slot: Slot, gold: GoldValue, now: list[Data] | None) -> tuple[str, str]:
    """(verdict, reason) by the results of an operator, and its opposite, between two values of the patch."""
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
