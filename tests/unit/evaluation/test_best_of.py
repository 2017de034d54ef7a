"""The rule that chooses one of several attempts. It does not use verdicts."""

import pytest

from swelab.evaluation.attempt_result import AttemptResult
from swelab.evaluation.best_of import best_of, choose, decided_by, patches_of
from swelab.grading.visible_tests import VisibleRun
from swelab.outcomes import RolloutEnd
from swelab.records.attempt_records import Grade, Usage


def attempts(*patches, ends=(), right=()):
    usage = Usage(calls=1, prompt_tokens=None, completion_tokens=None, cost=None)
    ends = dict(enumerate(ends))
    return [
        AttemptResult(
            instance_id="t",
            sample=sample,
            outcome=ends.get(sample, RolloutEnd.SUBMITTED),
            model_patch=patch,
            grade=Grade(instance_id="t", status="resolved", resolved=True) if sample in right else None,
            usage=usage,
        )
        for sample, patch in enumerate(patches)
    ]


def seen(**passed):
    run = {"instance_id": "t", "ended": "ran", "failed": 0}
    return {("t", patch): VisibleRun(passed=count, **run) for patch, count in passed.items()}


@pytest.mark.parametrize(
    ("patches", "ends", "passed", "sample", "by"),
    [
        ("abc", (), {"a": 1, "b": 3, "c": 2}, 1, "visible_tests"),
        ("abb", (), {"a": 2, "b": 2}, 1, "tie"),  # the patch of most attempts
        ("ab", (RolloutEnd.STEP_LIMIT,), {"a": 2, "b": 2}, 1, "tie"),  # then a submitted patch
        ("ab", (), {"a": 2, "b": 2}, 0, "tie"),  # then the earliest
        ("ab", (), {"a": 0, "b": 0}, 0, "no_visible_test"),
        (("", "a", "a"), (), {}, 1, "one_patch"),
        (("", ""), (RolloutEnd.MODEL_LOST,), {}, 1, "one_patch"),
        (("", "a", "b"), (), {"a": 0, "b": 0}, 1, "no_visible_test"),  # no empty patch if there is another
    ],
)
def test_the_rule(patches, ends, passed, sample, by):
    rows, runs = attempts(*patches, ends=ends), seen(**passed)
    assert choose(rows, runs).sample == sample and decided_by(rows, runs) == by


def test_a_verdict_changes_no_choice_and_counts_afterwards():
    runs = seen(a=1, b=2)
    for right, resolved in (({0}, 0), ({1}, 1)):
        found = best_of(attempts("a", "b", right=right), runs, 2)
        assert found["chosen"] == {"t": 1} and (found["resolved"], found["total"]) == (resolved, 1)
    assert patches_of(attempts("", "a", "a", "\n")) == ["a"]
