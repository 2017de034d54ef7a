"""What the witness makes of a verdict."""

import pytest

from swelab.grading.harness.testimony import standing, with_witness
from swelab.records.attempt_records import GradeWitness
from swelab.records.witness_records import Testimony


def told(**tests):
    rows = {name: {"standing": word, "bits": bits, "reason": "why"} for name, (word, bits) in tests.items()}
    return Testimony.of({"testimony": "not_witnessed", "bits": 0.0, "tests": rows})


@pytest.mark.parametrize(
    "tests, expected, reason",
    [
        ({"a": ("confirmed", 9.0)}, "witnessed", ""),
        ({"a": ("confirmed", 9.0), "other": ("unwitnessed", 0.0)}, "witnessed", ""),
        ({"a": ("confirmed", 9.0), "other": ("contradicted", 0.0)}, "contradicted", "other is contradicted"),
        ({"a": ("confirmed", 9.0), "other": ("unconfirmed", 0.0)}, "not_witnessed", "other is unconfirmed"),
        ({"a": ("confirmed", 5.0)}, "weakly_witnessed", "5 bits, fewer than 8"),
        ({"a": ("confirmed", 9.0), "b": ("weak", 0.0)}, "weakly_witnessed", "b is weak"),
        ({"a": ("weak", 0.0)}, "not_witnessed", "a is weak"),
        ({"other": ("confirmed", 20.0)}, "not_witnessed", "0 bits"),
    ],
)
def test_tests_to_be_repaired_decide_and_others_may_contradict(tests, expected, reason):
    found = standing(told(**tests), ["a", "b"])
    assert found.standing == expected and found.reason.startswith(reason)


@pytest.mark.parametrize("before", ["resolved", "suspect"])
@pytest.mark.parametrize(
    "word, unconfirmed, after",
    [
        ("witnessed", False, "resolved"),
        ("weakly_witnessed", False, "same"),
        ("not_witnessed", False, "same"),
        ("not_witnessed", True, "suspect"),
        ("contradicted", False, "tampered"),
    ],
)
def test_a_suspect_patch_is_resolved_only_where_it_is_witnessed(before, word, unconfirmed, after):
    found = with_witness(before, "a reason", GradeWitness(standing=word, reason="why"), unconfirmed)
    assert found[0] == (before if after == "same" else after)
    assert bool(found[1]) == (found[0] != "resolved" or after == "same")
