"""Compares the values that a patch emits with the gold patch's values.

The comparison confirms or corrects the verdict.
"""

import base64
from collections.abc import Collection, Mapping
from typing import Any

from swelab.grading.evidence import RunEvidence
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import BoundedCalls, Unread
from swelab.outcomes import GradeEnd
from swelab.records.attempt_records import GradeWitness
from swelab.records.witness_records import GoldValues, TestTestimony, WitnessManifest
from swelab.witness.emitted import asked_cases
from swelab.witness.judgement import gold_values, judge, standing

_APART = BoundedCalls()

UNCONFIRMED = "the witness does not confirm the patch"


def testimony(witness: KeptWitness, run: RunEvidence) -> tuple[GradeWitness, bool]:
    """Returns (how strongly the witness confirms a patch, whether a test is unconfirmed that the gold patch
    confirms).

    Nothing is confirmed if the question could run on a patch but did not.
    """
    judged, fault = _judgement(witness, run)
    if judged is None:
        return GradeWitness(standing="not_witnessed", reason=fault), True
    grade_witness = _grade_witness(judged.tests, witness.repaired)
    unconfirmed = any(each.standing == "unconfirmed" for each in judged.tests.values())
    if run.said_ended and grade_witness.standing != "witnessed":
        reason = f"{grade_witness.reason} (the question's run ended with {run.said_ended})"
        if grade_witness.standing == "contradicted":  # the patch may have run out of time
            return grade_witness | {"standing": "not_witnessed", "reason": reason}, True
        grade_witness = grade_witness | {"reason": reason}
    return grade_witness, unconfirmed


def doubt_of(witness: KeptWitness, run: RunEvidence, passed: Collection[str]) -> str:
    """Returns why the witness doubts that tests which passed did so honestly, or "".

    passed: ids of tests that pass, of an unresolved patch.
    """
    judged, fault = _judgement(witness, run)
    for test in passed if judged else ():
        found = judged.tests.get(test)
        if found and found.standing in ("contradicted", "unconfirmed"):
            return f"{test} passes, and the values that the patched code computes say otherwise"
    return fault


def _judgement(witness: KeptWitness, run: RunEvidence) -> tuple[Any, str]:
    """Returns (the judgement of each test, ""), or (None, why there is none)."""
    if run.said is None:
        return None, "the question was not asked"
    try:
        return _APART.call(judge, witness.manifest, witness.gold, base64.b64decode(run.said)), ""
    except Unread as fault:
        return None, f"its values cannot be judged: {fault}"


def gold_apart(manifest: WitnessManifest, gold: list[bytes], answers: bytes, bug: bytes) -> GoldValues:
    """Returns the gold patch's values in a question; see `witness.judgement.gold_values`. Raises Unread."""
    return _APART.call(gold_values, manifest, gold, answers, bug)


def cases_apart(manifest: WitnessManifest, answers: bytes) -> dict[str, list[int]]:
    """Returns the numbers of the cases in a question's tests (see `witness.emitted.asked_cases`).

    Empty if unreadable.
    """
    try:
        return _APART.call(asked_cases, manifest, answers)
    except Unread:
        return {}


def own_standing(manifest: WitnessManifest, values: GoldValues, repaired: Collection[str]) -> GradeWitness:
    """Returns how strongly the witness confirms the gold patch's own run. No other patch can reach more."""
    tests = {
        test: TestTestimony(standing=each.standing, reason=each.reason, bits=each.bits)
        for test, each in values.tests.items()
    }
    tests |= {
        test: TestTestimony(standing="unwitnessed", reason=why) for test, why in manifest.unformed.items()
    }
    return _grade_witness(tests, repaired)


def _grade_witness(tests: Mapping[str, TestTestimony], repaired: Collection[str]) -> GradeWitness:
    word, reason, bits = standing(tests, repaired)
    return GradeWitness(standing=word, reason=reason, bits=bits)


def with_witness(
    status: str, reason: str, witness: GradeWitness, unconfirmed: bool, reaches: bool
) -> tuple[str, str]:
    """Returns the final (status, reason) of a patch whose tests pass, once the witness has judged the patch.

    status: resolved or suspect. reaches: whether the patch's code uses state that outlives a sandbox. In that
    case correct values do not clear a suspicion.
    """
    if witness.standing == "contradicted":
        return (
            GradeEnd.TAMPERED,
            f"the values that the patched code computes contradict the tests: {witness.reason}",
        )
    if unconfirmed:
        return GradeEnd.SUSPECT, f"{UNCONFIRMED}: {witness.reason}"
    return (GradeEnd.RESOLVED, "") if witness.standing == "witnessed" and not reaches else (status, reason)
