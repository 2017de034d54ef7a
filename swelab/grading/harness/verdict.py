"""Computes the verdict on a run's evidence. This needs no sandbox and no files, so a stored run can be judged
again.

The sources of evidence are the log, the test command's exit code, pytest's JUnit file and the observer's
one-way record. A listed test succeeds only if it succeeds in every source that reports it. If one source
reports a success and another a failure, the success is forged.
"""

import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from swelab.files.text_lines import lines_of
from swelab.grading.evidence import ObserverReport, RunEvidence
from swelab.grading.harness import lasting_state, logs, parsers
from swelab.grading.harness.observer_record import STATES
from swelab.grading.harness.reward_verdict import reward_verdict
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


Verdict = tuple[str, str, TestVerdicts | None]
"""(status, reason, per-test verdicts or None)."""

ENDED: dict[str, str] = {"not_applied": GradeEnd.APPLY_FAILED}
"""Maps an early end of a run to a grade. Ends that are not listed have the name of their grade."""

PASSING = (GradeEnd.RESOLVED, GradeEnd.SUSPECT)
"""Verdicts of patches whose tests pass."""

_LIBRARY = "stdlib."
_HOOKS = frozenset(
    "stdlib.sys.excepthook stdlib.sys.displayhook stdlib.sys.unraisablehook stdlib.threading.excepthook "
    "stdlib.warnings.showwarning stdlib.warnings.formatwarning".split()
)
"""Functions that Python programs often replace for good reasons. No test outcome depends on them."""

_WORDS = {
    "passed": "PASSED",
    "xpassed": "PASSED",
    "xfailed": "XFAIL",
    "skipped": "SKIPPED",
    "failed": "FAILED",
}
_NOT_FAILING = {"PASSED", "SKIPPED", "XFAIL"}
_MOST_TAGS = 1_000_000
"""Maximum number of tags in a JUnit file that is read, since patched code may write into the file."""

_ENDS_ITSELF = (0, 1, 5)
"""Exit codes of pytest after a complete session. After any other code the record may be incomplete."""


def verdict(spec: RunSpec, run: RunEvidence) -> Verdict:
    """Returns the verdict on a run's evidence (see `grade.run_patch`).

    Raises InputError if the log parser is unknown.
    """
    status, reason, tests = _test_verdict(spec, run)
    if status == GradeEnd.RESOLVED and not run.reference and (why := suspicion(run)):
        return GradeEnd.SUSPECT, why, tests
    return status, reason, tests


def suspicion(run: RunEvidence) -> str:
    """Returns why a patch's code could have forged the result, or "" if nothing suggests that."""
    if run.findings:
        return "the patch's code reaches for the test run: " + "; ".join(run.findings[:3])
    if run.observed and run.observed.powers:
        return "patched code used a reserved power: " + ", ".join(run.observed.powers[:3])
    if run.observed and (replaced := [each for each in run.observed.changed if _is_replaced(each)]):
        return "patched code took the place of " + ", ".join(replaced[:3])
    return ""


def doubt(spec: RunSpec, run: RunEvidence) -> str:
    """Returns why a patch whose tests do not all pass could have forged those that do, or ""."""
    if why := suspicion(run) or run.get("echo", ""):
        return why
    if not run.observed:
        return ""
    signs = signs_of_tampering(run, run.observed)
    status = logs.official_statuses(run.log, spec.parser)
    contradictions = _contradictions(spec, run.observed, status, _outcomes(run.observed))
    return next(signs, "") or next(contradictions, "")


def reaches_out(run: RunEvidence) -> bool:
    """Returns whether a patch's code uses state that outlives a run.

    Earlier runs may have left values in such state.
    """
    powers = [power.rpartition(" ")[2] for power in run.observed.powers] if run.observed else []
    found = any(lasting_state.OUTLIVES in each for each in run.findings)
    return found or not lasting_state.POWERS.isdisjoint(powers)


def _is_replaced(label: str) -> bool:
    """Returns whether a changed part belongs to the standard library.

    Packages replace such parts for good reasons, so the change does not prove tampering.
    """
    return label.startswith(_LIBRARY) and label not in _HOOKS


def _test_verdict(spec: RunSpec, run: RunEvidence) -> Verdict:
    """Returns the verdict from all sources of evidence, except the findings in the patch's code."""
    if run.ended != "ran":
        ended: str = run.ended
        return ENDED.get(ended, ended), run.reason, None
    if run.timed_out:
        return GradeEnd.TIMEOUT, f"the tests ran longer than {spec.seconds} s", None
    if spec.verifier:
        return reward_verdict(run, _end(run))
    if run.code is None:
        return GradeEnd.UNRESOLVED, f"the tests did not come to an end ({run.limit or 'exit'})", None
    if run.reference:
        return reference_verdict(spec, run)
    if refusal := logs.official_refusal(run.log, spec.has_markers):
        return GradeEnd.UNRESOLVED, refusal, None
    status = logs.official_statuses(run.log, spec.parser)
    if run.guarded:
        return _guard_verdict(spec, run, status)
    return _by_log(spec, run, status)


def _by_log(spec: RunSpec, run: RunEvidence, status: dict[str, str]) -> Verdict:
    """Returns the verdict of an unguarded run from its log and exit code only."""
    fail_only = spec.eval_type == "fail_only"
    if not status and not (fail_only and logs.SUITE_RAN.search(run.log)):
        return GradeEnd.UNRESOLVED, "the log reports no test", None
    tests = logs.judge(spec.tests, status, logs.not_failed if fail_only else None)
    missed = list(logs.failed_tests(tests))
    if missed:
        return GradeEnd.UNRESOLVED, f"{len(missed)} tests do not pass, such as {missed[0]}", tests
    if run.code and not {"FAILED", "ERROR"} & set(status.values()):
        reason = f"the tests exit with {run.code} but the log reports no failure"
        return GradeEnd.UNRESOLVED, reason, tests
    return GradeEnd.RESOLVED, "", tests


def _guard_verdict(spec: RunSpec, run: RunEvidence, status: dict[str, str]) -> Verdict:
    observation = run.observed
    if observation is None or run.sealed != "whole":
        return _without_record(spec, run, status)
    fault = next(signs_of_tampering(run, observation), "")
    outcomes = _outcomes(observation)
    tests = _test_verdicts(spec, observation, status, outcomes)
    if fault := fault or next(_contradictions(spec, observation, status, outcomes), ""):
        return _conflict_status(spec, status), fault, tests
    missed = list(logs.failed_tests(tests))
    if missed:
        return GradeEnd.UNRESOLVED, f"{len(missed)} tests do not pass, such as {missed[0]}", tests
    if fault := run.get("echo", ""):
        return GradeEnd.TAMPERED, fault, tests
    return GradeEnd.RESOLVED, "", tests


def _conflict_status(spec: RunSpec, status: dict[str, str]) -> GradeEnd:
    """Returns the status of a run whose sources disagree.

    The status is TAMPERED if all listed tests pass in the log, otherwise UNRESOLVED.
    """
    claims_success = not any(logs.failed_tests(logs.judge(spec.tests, status)))
    return GradeEnd.TAMPERED if claims_success else GradeEnd.UNRESOLVED


def _without_record(spec: RunSpec, run: RunEvidence, status: dict[str, str]) -> Verdict:
    if run.sealed == "cut":
        return GradeEnd.UNRESOLVED, STATES["cut"], None
    if run.sealed == "unstarted" and (run.code or not run.code_is_runners):
        return GradeEnd.UNRESOLVED, f"no test runner started that loads the guard: {_end(run)}", None
    if run.sealed == "unended" and not (run.code in _ENDS_ITSELF and run.code_is_runners):
        tests = logs.judge(spec.tests, {})
        return GradeEnd.UNRESOLVED, f"the test runner broke off with {_end(run)}", tests
    return _conflict_status(spec, status), f"{STATES[run.sealed]} though the runner ended by itself", None


def _end(run: RunEvidence) -> str:
    """Returns how a run ended: its exit code and the last line of its log."""
    lines = [line.strip() for line in lines_of(run.log) if line.strip()]
    return f"exit code {run.code}" + (f"; the log ends with {lines[-1][:200]!r}" if lines else "")


def signs_of_tampering(run: RunEvidence, observed: ObserverReport) -> Iterator[str]:
    """Yields signs of tampering in the observer's record `observed` that do not depend on the listed
    tests.
    """
    if changed := [label for label in observed.changed if not label.startswith(_LIBRARY)]:
        yield f"the test runner was changed while it ran: {', '.join(changed[:3])}"
    if observed.junit == "" and observed.exit in _ENDS_ITSELF:
        yield "pytest's JUnit file is missing though the runner ended by itself"
    if run.code_is_runners and run.code != observed.exit:
        yield f"the runner ended with {observed.exit}, its process with {run.code}"


def _outcomes(observed: ObserverReport) -> dict[str, str]:
    """Returns the status by test id in the observer's record.

    Only marked tests can have an expected failure.
    """
    words = {}
    marked = set(observed.marked)
    for test, outcome in observed.outcomes.items():
        word = _WORDS.get(outcome or "", "ERROR")
        if word == "XFAIL" and test not in marked:
            word = "SKIPPED"
        words[test] = word
    return words


def _test_verdicts(
    spec: RunSpec, run: ObserverReport, status: dict[str, str], outcomes: dict[str, str]
) -> TestVerdicts:
    """Returns the per-test verdicts from the log and the observer's record.

    If the log's format does not name a test, only the record decides. In that case the observer must have
    seen the test run. Where skips count as passes, only skips by protected files and by marks do.
    """
    observed, called = logs.Results(outcomes), logs.Results(dict.fromkeys(run.raised, "PASSED"))

    by_code = {test: "SKIPPED" for test, file in run.skippers.items() if not spec.protects(file)}
    skips = logs.Results(by_code)

    def accepts(group: str, test: str, statuses: set[str]) -> bool:
        if spec.skips_pass and (seen_of := observed.of(test)) and seen_of <= _NOT_FAILING:
            return logs.not_failed(group, test, statuses) and not skips.of(test)
        by_log = logs.has_passed(group, test, statuses) if statuses else bool(called.of(test))
        return by_log and logs.has_passed(group, test, observed.of(test))

    return logs.judge(spec.tests, status, accepts)


def _contradictions(
    spec: RunSpec, observed: ObserverReport, status: dict[str, str], outcomes: dict[str, str]
) -> Iterator[str]:
    """Yields a message for each contradiction between two sources about a listed test."""
    junit, calls_are_recorded = _junit(observed.junit), not observed.raised.keys().isdisjoint(spec.listed)
    for test in spec.listed:
        outcome = outcomes.get(test)
        raised = observed.raised.get(test)
        if outcome == "PASSED" and raised is None and calls_are_recorded:
            yield f"{test} is reported as passed but was not seen to run"
        if outcome == "PASSED" and raised:
            yield f"{test} raised {raised} and is reported as passed"
        if outcome in ("FAILED", "ERROR") and status.get(test) == "PASSED":
            yield f"the log says that {test} passed, but it did not"
        written = junit.get(_junit_name(test), outcome)
        if "PASSED" in (outcome, written) and {outcome, written} & {"FAILED", "ERROR"}:
            yield f"the JUnit file says {written} of {test}, the runner {outcome}"


def _junit(text: str | None) -> dict[tuple[str, str], str]:
    """Returns the status by (class name, name) in a JUnit file."""
    if not text or "<!" in text or text.count("<") > _MOST_TAGS:
        return {}  # pytest writes no entities, so this file is forged
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return {}
    words: dict[tuple[str, str], str] = {}
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        word = "ERROR" if "error" in kinds else "FAILED" if "failure" in kinds else "PASSED"
        name = (case.get("classname", ""), case.get("name", ""))
        word = "SKIPPED" if "skipped" in kinds else word
        words[name] = words[name] if words.get(name) in ("FAILED", "ERROR") else word
    return words


def _junit_name(test: str) -> tuple[str, str]:
    head, bracket, rest = test.partition("[")
    path, *names = head.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names[:-1]]
    return ".".join(parts), (names[-1] if names else "") + bracket + rest
