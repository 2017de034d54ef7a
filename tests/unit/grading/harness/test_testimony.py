"""The witness's effect on a verdict."""

import base64

import pytest

from swelab.grading.evidence import ObserverReport, ended_run
from swelab.grading.harness import testimony
from swelab.grading.harness.audit import findings as read
from swelab.grading.harness.verdict import reaches_out, suspicion
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import BoundedCalls
from swelab.records.attempt_records import GradeWitness
from swelab.records.witness_records import TestTestimony
from swelab.witness.judgement import standing


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
    judged = {
        name: TestTestimony(standing=word, bits=bits, reason="why") for name, (word, bits) in tests.items()
    }
    found, why, _ = standing(judged, ["a", "b"])
    assert found == expected and why.startswith(reason)


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
    found = testimony.with_witness(
        before, "a reason", GradeWitness(standing=word, reason="why"), unconfirmed, False
    )
    assert found[0] == (before if after == "same" else after)
    assert bool(found[1]) == (found[0] != "resolved" or after == "same")


@pytest.mark.parametrize(
    "findings, powers",
    [
        (read("a.py", "import mmap", "", ""), []),
        (read("a.py", "import os\nos.preadv(f, [b], 0, os.RWF_NOWAIT)", "", ""), []),
        ([], ["a.py fcntl.fcntl"]),
    ],
)
def test_right_values_do_not_clear_code_that_reads_what_outlives_a_run(findings, powers):
    run = ended_run("ran") | {"findings": findings, "observed": ObserverReport.of({"powers": powers})}
    assert reaches_out(run)
    witnessed = GradeWitness(standing="witnessed", reason="")
    status = testimony.with_witness("suspect", suspicion(run), witnessed, False, reaches=True)
    assert status == ("suspect", suspicion(run)) and suspicion(run)


def test_other_findings_are_cleared_by_right_values():
    run = ended_run("ran") | {"findings": read("a.py", "import gc", "", "")}
    assert run.findings and not reaches_out(run)


@pytest.mark.parametrize("before", ["resolved", "suspect"])
def test_a_patch_that_was_never_asked_is_not_resolved(before):
    """For example, its log was first read as a failure and later as a success."""
    told, unconfirmed = testimony.testimony(KeptWitness.of({}), ended_run("ran"))
    assert (told.standing, told.reason) == ("not_witnessed", "the question was not asked")
    status, reason = testimony.with_witness(before, "", told, unconfirmed, False)
    assert status == "suspect" and "the question was not asked" in reason


def searching():
    """Returns the witness of a test that searches a pattern in a value."""
    slot = {"slot": 0, "test": "t.py::test_a", "line": 1, "asserts": "compare", "ops": ["search"]}
    manifest = {
        "tests": {"t.py::test_a": "t.py::test_a"},
        "unformed": {},
        "questions": {"test_question_0.py": "t.py::test_a"},
        "slots": [slot | {"cut": [False, True]}],
        "sight": {},
    }
    value = {"slot": 0, "at": 1, "part": "v", "said": [["s", "aaa"]], "bits": 9.0, "held": True}
    gold = {"case": 0, "occurrences": [value | {"cut": [None, ["s", "(a+)+$"]]}], "bits": 9.0}
    gold |= {"standing": "confirmed"}
    values = {"tests": {"t.py::test_a": gold}, "bits": 9.0, "testimony": "witnessed"}
    return KeptWitness.of({"manifest": manifest, "gold": values, "repaired": ["t.py::test_a"]})


def said_by(text):
    """Returns the run of a patch that emits a text as the value."""
    said = b'[0,"case",0,"test_question_0.py::test_q"]\n'
    said += b'[1,"value",0,0,1,"v",[["s","%s"]]]\n' % text.encode()
    return ended_run("ran") | {"said": base64.b64encode(said).decode(), "said_ended": ""}


def test_values_that_take_for_ever_to_be_judged_confirm_nothing(monkeypatch):
    """A test's pattern, searched in a text of the patch's choice, is ended at its time limit."""
    monkeypatch.setattr(testimony, "_APART", BoundedCalls(cpu_seconds=0.5))

    def told(text):
        found, unconfirmed = testimony.testimony(searching(), said_by(text))
        return found.standing, found.reason, unconfirmed

    assert told("aaa")[0] == "witnessed"
    word, reason, unconfirmed = told("a" * 60 + "!")
    assert word == "not_witnessed" and "cannot be judged: it took more than 0.5 s" in reason and unconfirmed


def test_the_witness_doubts_a_test_that_passes_with_other_values():
    passed = ["t.py::test_a"]
    assert testimony.doubt_of(searching(), said_by("aaa"), passed) == ""
    assert "t.py::test_a passes" in testimony.doubt_of(searching(), said_by("bbb"), passed)
    assert testimony.doubt_of(searching(), said_by("bbb"), []) == "", "a test that fails is in no doubt"
    assert testimony.doubt_of(searching(), ended_run("ran"), passed) == "the question was not asked"
