"""What the witness makes of a verdict: values that a patch's code said, beside those of the gold patch."""

import base64
from collections.abc import Collection

from swelab.grading.evidence import RunEvidence
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import BoundedCalls, Unread
from swelab.outcomes import GradeEnd
from swelab.records.attempt_records import GradeWitness
from swelab.records.witness_records import GoldValues, Testimony, TestTestimony, Witnessed, WitnessManifest
from swelab.witness.judgement import ENOUGH_BITS, gold_values, judge

_APART = BoundedCalls()

UNCONFIRMED = "the witness does not confirm the patch"


def testimony(witness: KeptWitness, run: RunEvidence) -> tuple[GradeWitness, bool]:
    """(how well a patch is witnessed, whether a test is unconfirmed that the gold patch confirms)."""
    if run.said is None:
        return GradeWitness(standing="not_witnessed", reason="the question was not run"), False
    try:
        told = _APART.call(judge, witness.manifest, witness.gold, base64.b64decode(run.said))
    except Unread as fault:
        return GradeWitness(standing="not_witnessed", reason=f"its values cannot be judged: {fault}"), True
    found = standing(told, witness.repaired)
    unconfirmed = any(each.standing == "unconfirmed" for each in told.tests.values())
    if run.said_ended and found.standing != "witnessed":
        reason = f"{found.reason} (the question's run ended with {run.said_ended})"
        if found.standing == "contradicted":  # it may have had no time to say more
            return found | {"standing": "not_witnessed", "reason": reason}, True
        found = found | {"reason": reason}
    return found, unconfirmed


def gold_apart(manifest: WitnessManifest, gold: list[bytes], answers: bytes, bug: bytes) -> GoldValues:
    """What the gold patch says in a question; see `witness.judgement.gold_values`. Raises Unread."""
    return _APART.call(gold_values, manifest, gold, answers, bug)


def standing(told: Testimony, repaired: Collection[str]) -> GradeWitness:
    """How well a task is witnessed by what its tests say: contradicted by any test, confirmed by those to be
    repaired."""
    mine = {test: each for test, each in told.tests.items() if test in repaired}
    bits = round(sum(each.bits for each in mine.values()), 2)
    for word in ("contradicted", "unconfirmed"):
        for test, each in told.tests.items():
            if each.standing == word:
                found: Witnessed = "contradicted" if word == "contradicted" else "not_witnessed"
                return GradeWitness(standing=found, reason=f"{test} is {word}: {each.reason}", bits=bits)
    short = [(test, each) for test, each in mine.items() if each.standing != "confirmed"]
    why = f"{short[0][0]} is {short[0][1].standing}: {short[0][1].reason}" if short else ""
    if mine and not short and bits >= ENOUGH_BITS:
        return GradeWitness(standing="witnessed", bits=bits)
    why = why or f"{bits:g} bits, fewer than {ENOUGH_BITS:g}"
    return GradeWitness(standing="weakly_witnessed" if bits else "not_witnessed", reason=why, bits=bits)


def own_standing(manifest: WitnessManifest, values: GoldValues, repaired: Collection[str]) -> GradeWitness:
    """How well the gold patch's own run is witnessed: no patch's can be better."""
    told = {
        test: TestTestimony(standing=each.standing, reason=each.reason, bits=each.bits)
        for test, each in values.tests.items()
    }
    told |= {
        test: TestTestimony(standing="unwitnessed", reason=why) for test, why in manifest.unformed.items()
    }
    return standing(Testimony(testimony=values.testimony, bits=values.bits, tests=told), repaired)


def with_witness(status: str, reason: str, told: GradeWitness, unconfirmed: bool) -> tuple[str, str]:
    """The status and reason of a patch whose tests pass (resolved or suspect), after its witness."""
    if told.standing == "contradicted":
        return (
            GradeEnd.TAMPERED,
            f"the values that the patched code computes contradict the tests: {told.reason}",
        )
    if unconfirmed:
        return GradeEnd.SUSPECT, f"{UNCONFIRMED}: {told.reason}"
    return (GradeEnd.RESOLVED, "") if told.standing == "witnessed" else (status, reason)
