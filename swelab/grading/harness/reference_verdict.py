"""Judges a run as SWE-bench's own harness does.

That harness's code reads the log, and our own checks do not count.
"""

import tempfile

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness import logs, parsers
from swelab.grading.harness.spec import RunSpec
from swelab.outcomes import GradeEnd
from swelab.records.attempt_records import TestVerdicts


def reference_verdict(spec: RunSpec, run: RunEvidence) -> tuple[str, str, TestVerdicts | None]:
    """Returns (status, reason, per-test verdicts or None) as swebench's grading does (pinned in `envs/`).

    The whole log counts if the script prints no markers. Raises InputError if the log parser is unknown.
    """
    harness = parsers.module("grading")
    text = run.log
    if not spec.has_markers:
        text = f"{logs.OFFICIAL_START}\n{text}\n{logs.OFFICIAL_END}\n>>>>> Test Exit Code: {run.code}\n"
    has_log, status = True, {}
    if spec.parser in logs.PARSER_REGISTRY:
        test_spec = harness.TestSpec(
            spec.instance_id,
            "",
            [],
            "",
            "",
            list(spec.fail_to_pass),
            list(spec.pass_to_pass),
            spec.parser,
            spec.eval_type,
        )
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
            stream.flush()
            status, has_log = harness.get_logs_eval(test_spec, stream.name)
    else:
        status = logs.statuses(run.log, spec.parser)
    if not has_log:
        return GradeEnd.UNRESOLVED, "the reference harness finds no result in the log", None
    report = harness.get_eval_tests_report(status, spec.tests, eval_type=harness.EvalType(spec.eval_type))
    tests = TestVerdicts.of({group: report[group] for group in logs.GROUPS})
    if harness.get_resolution_status(report) == harness.ResolvedStatus.FULL.value:
        return GradeEnd.RESOLVED, "", tests
    missed = [test for test in spec.listed if not any(test in tests[group].success for group in logs.GROUPS)]
    return GradeEnd.UNRESOLVED, f"{len(missed)} tests do not pass, such as {(missed or [''])[0]}", tests
