"""The allowed content of the service's report, and reports that are unusable."""

import pytest

from swelab import patience
from swelab.configs.kinds.subset import DatasetSubset
from swelab.records import InputError
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task
from swelab.service import ServiceError, SubmissionRefused
from swelab.service.submission import (
    ServiceBenchmark,
    ServiceRun,
    Waiting,
    benchmark_of,
    fault,
    judge_by_service,
    patch_digest,
    pending,
    run_name,
    sendable,
    service_grades,
    verdicts,
)

IDS = ["a", "b", "c", "d"]
SENT = {name: name == "d" for name in IDS}


def report(**lists):
    found = {"submitted": IDS, "completed": IDS[:3], "resolved": ["a"], "unresolved": ["b"], "error": ["c"]}
    found |= {"failed": ["d"], "pending": [], **lists}
    record = {"total_instances": 500, "schema_version": 2}
    for name, ids in found.items():
        record |= {f"{name}_instances": len(ids), f"{name}_ids": ids}
    return record


def test_every_list_becomes_a_verdict():
    assert verdicts(report(), SENT) == {"a": "resolved", "b": "unresolved", "c": "error", "d": "failed"}
    empty = report(failed=[], empty_patch=["d"], unresolved=["b", "d"])
    assert verdicts(empty, SENT)["d"] == "empty_patch"
    unnamed = {k: v for k, v in report().items() if k != "completed_ids"}
    assert verdicts(unnamed, SENT)["a"] == "resolved"


@pytest.mark.parametrize(
    ("harmed", "words"),
    [
        (report() | {"resolved_instances": 3}, "resolved_instances of the report is 3, but it names 1"),
        ({k: v for k, v in report().items() if k != "resolved_ids"}, "resolved_instances .* names 0"),
        (report() | {"resolved_ids": "a"}, "expected a list of instance ids"),
        (report() | {"resolved_ids": [1]}, "expected a list of instance ids"),
        (report(resolved=["a", "a"]), "names an instance twice"),
        (report(resolved=["a", "b"]), "b is both resolved and unresolved"),
        (report(unresolved=[]), "no verdict on instances: 1, such as b"),
        (report(submitted=IDS[:3]), "does not know instances that were submitted: 1, such as d"),
        (report(submitted=[*IDS, "e"]), "not submitted: 1, such as e"),
        (report(unresolved=["b", "e"]), "judges instances that were not submitted: 1, such as e"),
        (report(resolved=["d"], failed=["a"]), "empty patches resolved: 1, such as d"),
        (report(resolved=[], unresolved=[], error=[], failed=IDS), "evaluated none of 4 instances"),
        (report() | {"total_instances": 3}, "of 3 tasks, 4 were sent"),
        ({}, "is None"),
    ],
)
def test_a_report_that_cannot_be_is_refused(harmed, words):
    with pytest.raises(ServiceError, match=words) as error:
        verdicts(harmed, SENT)
    assert "\n" not in str(error.value)


def test_pending_is_a_count():
    assert pending(report()) == 0 and pending(report(pending=["a", "b"])) == 2
    assert pending(report(pending=["a"]) | {"pending_instances": 0}) == 1
    for wrong in ({}, {"pending_instances": "0"}, {"pending_instances": True}, {"pending_instances": -1}):
        with pytest.raises(ServiceError, match="expected a count"):
            pending(wrong)


def predictions(**changes):
    rows = {name: {"instance_id": name, "model_name_or_path": "x", "model_patch": name} for name in IDS}
    rows["d"]["model_patch"] = None
    return {name: Prediction.of(row | changes.get(name, {})) for name, row in rows.items()}


def test_lost_rollouts_are_not_submitted_and_empty_patches_are():
    rows = sendable(predictions(b={"outcome": "model_lost"}), IDS, "p")
    assert [row["instance_id"] for row in rows] == ["a", "c", "d"]
    assert rows[2] == {"instance_id": "d", "model_name_or_path": "p", "model_patch": ""}
    with pytest.raises(InputError, match="1 predictions match no task, such as d"):
        sendable(predictions(), IDS[:3], "p")
    with pytest.raises(InputError, match="none of 4 predictions can be submitted"):
        sendable(predictions(**{name: {"outcome": "sandbox_lost"} for name in IDS}), IDS, "p")


def test_a_runs_name_is_its_content():
    at, rows = ServiceBenchmark("swe-bench_lite", "test"), sendable(predictions(), IDS, "p")
    assert run_name("p", at, rows) == run_name("p", at, sendable(predictions(), IDS[::-1], "p"))
    assert run_name("p", at, rows) != run_name("p", ServiceBenchmark("swe-bench_lite", "dev"), rows)
    assert run_name("p", at, rows) != run_name(
        "p", at, sendable(predictions(a={"model_patch": "z"}), IDS, "p")
    )
    assert run_name("a b/c", at, rows).startswith("a-b-c-")


def test_names_of_benchmarks():
    for dataset, name in (
        ("SWE-bench/SWE-bench_Verified", "swe-bench_verified"),
        ("princeton-nlp/SWE-Bench_Lite", "swe-bench_lite"),
        ("SWE-bench/SWE-bench_Multimodal", "swe-bench-m"),
    ):
        assert benchmark_of(
            DatasetSubset(source="dataset", dataset=dataset, split="test"), "x"
        ) == ServiceBenchmark(name, "test")
    of_my_own = DatasetSubset(source="dataset", service="swe-bench-m", split="dev")
    assert benchmark_of(of_my_own, "x") == ServiceBenchmark("swe-bench-m", "dev")
    with pytest.raises(InputError, match="does not judge; expected one of swe-bench-m, "):
        benchmark_of(DatasetSubset(source="dataset", dataset="SWE-bench/SWE-smith"), "x")


class Stubborn:
    """A program that submits as `plan` says: an exception, or the ids that it refuses."""

    def __init__(self, *plan):
        self.plan, self.submitted = list(plan), []

    def quota(self, at):
        return None

    def submit(self, path, at, run, ids, whole):
        self.submitted.append(ids)
        step = self.plan.pop(0) if self.plan else []
        if isinstance(step, Exception):
            raise step
        return dict.fromkeys(step, "status code 500: boom")


def judge(program, folder):
    rows = sendable(predictions(), IDS, "p")
    return judge_by_service(rows, ServiceBenchmark("s", "test"), "p", folder, program, Waiting(30, 60))


def test_only_what_was_not_accepted_is_submitted_again_and_each_pause_is_twice_the_last(
    tmp_path, monkeypatch
):
    pauses = []
    monkeypatch.setattr(patience, "sleep", pauses.append)
    program = Stubborn(ServiceError("down"), ["b", "c"], ["c"], ["c"])
    with pytest.raises(ServiceError, match="1 of 4 predictions were not taken, such as c: status code 500"):
        judge(program, tmp_path)
    assert program.submitted == [IDS, IDS, ["b", "c"], ["c"]] and pauses == [30, 60, 120]


def test_a_refusal_that_lasts_is_not_repeated(tmp_path):
    for step in (
        SubmissionRefused("no key"),
        ServiceError("API request failed with status code 401: no key"),
    ):
        program = Stubborn(step)
        with pytest.raises(SubmissionRefused, match="no key"):
            judge(program, tmp_path)
        assert len(program.submitted) == 1


def test_grades_say_what_the_service_said():
    rows = predictions(b={"outcome": "sandbox_lost"})
    words = {"a": "resolved", "c": "error", "d": "unresolved"}
    run = {
        "run_id": "p-1",
        "instances": {
            name: {"verdict": word, "patch_sha256": patch_digest(rows[name]), "empty": name == "d"}
            for name, word in words.items()
        },
    }
    tasks = [Task.of({"instance_id": name}) for name in [*IDS, "e"]]
    grades = {row["instance_id"]: row for row in service_grades(tasks, rows, ServiceRun.of(run), "p", "s")}
    assert {name: row["status"] for name, row in grades.items()} == {
        "a": "resolved", "b": "infra_error", "c": "apply_failed", "d": "empty_patch",
    }  # fmt: skip
    assert [name for name, row in grades.items() if row["resolved"]] == ["a"]
    assert grades["a"]["patch_sha256"] == patch_digest(rows["a"]) and grades["a"]["run_id"] == "p-1"
    with pytest.raises(InputError, match="a was judged for another patch"):
        list(service_grades(tasks, predictions(a={"model_patch": "new"}), ServiceRun.of(run), "p", "s"))


def test_what_sb_cli_printed_becomes_a_fault():
    said = "Traceback ...\nrequests.exceptions.RequestException: API request failed with status code {}: {}\n"
    assert isinstance(fault("get-report", said.format(401, "Invalid key")), SubmissionRefused)
    assert isinstance(fault("submit", said.format(402, "quota exceeded")), SubmissionRefused)
    assert not isinstance(fault("submit", said.format(500, "boom")), SubmissionRefused)
    assert str(fault("get-report", "x\nKeyError: 'report'\n")) == "sb-cli get-report: KeyError: 'report'"
