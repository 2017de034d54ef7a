"""The table of ends: the meaning of each, and that schemas, pages and modules have no list of their own."""

import ast
import json

import pytest

from scripts.write_schemas import RECORDS
from swelab import outcomes
from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS
from swelab.grading import evidence, swebench_report
from swelab.grading.harness import verdict
from swelab.outcomes import FAILED_GRADES, LOST_GRADES, LOST_ROLLOUTS, GradeEnd, RolloutEnd, with_tables
from swelab.records import InputError, check
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.typed import schema
from swelab.scores.report.html_page import PAGE
from swelab.service import submission
from tests.unit.test_house import LIBRARY, ROOT, parsed

SCHEMAS = {record.kind(): schema(record) for record in RECORDS}
SCHEMAS |= {name: schema_of(kind) for name, kind in RECIPE_KINDS.items()}
PAGES = sorted((ROOT / "docs").glob("*.md"))
EVERY_END = [*RolloutEnd, *GradeEnd]


@pytest.mark.parametrize("end", EVERY_END)
def test_what_an_end_means_is_consistent(end):
    means = end.meaning
    assert end.words and json.loads(json.dumps({end: end})) == {str(end): str(end)}
    assert means.attempted or not means.trainable
    assert means.infrastructure == (means.retried == "at once")
    assert not means.infrastructure or not means.attempted


def test_what_the_stages_read_from_it():
    assert {"sandbox_lost", "model_lost", "model_refused", "not_recorded", "budget_spent"} == LOST_ROLLOUTS
    assert {"sandbox_lost", "model_lost"} == outcomes.RETRIED_ROLLOUTS
    assert {"budget_spent"} == outcomes.WAITING_ROLLOUTS
    assert {"infra_error"} == LOST_GRADES
    assert {"unresolved", "empty_patch", "apply_failed", "timeout"} == FAILED_GRADES
    assert set(outcomes.FINAL_ROLLOUTS) == set(RolloutEnd) - {"budget_spent"}
    assert set(outcomes.TRAINABLE_ROLLOUTS) == set(RolloutEnd) - LOST_ROLLOUTS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_as_the_table_writes_them(path):
    text = path.read_text()
    assert with_tables(text) == text, "run python -m scripts.write_schemas"


def test_a_stale_table_is_written_anew():
    page = (ROOT / "docs/scores.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `cost_limit` |")]
    assert len(rows) == 1 and with_tables(page.replace(rows[0] + "\n", "")) == page


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_lists_ends_only_from_the_table(name):
    """An enumeration that contains an end names its list.

    An object with a field `status` allows every status.
    """

    def nodes(node):
        yield node
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from nodes(child)

    for node in nodes(SCHEMAS[name]):
        if not isinstance(node, dict):
            continue
        if set(map(str, node.get("enum", []))) & set(EVERY_END):
            assert node["$comment"].startswith("swelab.outcomes "), node
        if "infra_error" in node.get("properties", {}):
            assert list(node["properties"]) == list(GradeEnd)


def test_a_record_takes_every_end_and_no_other_word():
    for outcome in outcomes.FINAL_ROLLOUTS:
        for status in GradeEnd:
            row = Grade.of({"instance_id": "a", "status": status, "resolved": False, "outcome": outcome})
            check(row, Grade, "test")
    with pytest.raises(InputError, match="money_limit"):
        check(
            Grade.of({"instance_id": "a", "status": "resolved", "resolved": True, "outcome": "money_limit"}),
            Grade,
            "",
        )
    with pytest.raises(InputError, match="budget_spent"):
        prediction = {"instance_id": "a", "model_name_or_path": "p", "model_patch": ""}
        check(prediction | {"outcome": "budget_spent"}, Prediction, "")


OWN = {
    "sandbox_lost",
    "model_lost",
    "not_recorded",
    "budget_spent",
    "malformed",
    "context_limit",
    "time_limit",
}
OWN |= {"apply_failed", "suspect", "tampered", "infra_error"}
"""Ends whose words have no other meaning, unlike `timeout` and `resolved`."""


def test_no_other_module_spells_an_end():
    spelt = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in LIBRARY
        if path.is_relative_to(ROOT / "swelab") and path != ROOT / "swelab/outcomes.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OWN
    ]
    assert spelt == []


def test_every_grade_is_in_the_lists_of_swe_benchs_report():
    lists = {name: ends for name, ends in swebench_report.LISTS.items() if name != "completed_ids"}
    assert sorted(end for ends in lists.values() for end in ends) == sorted(GradeEnd)
    assert {GradeEnd.RESOLVED, GradeEnd.UNRESOLVED} <= set(swebench_report.LISTS["completed_ids"])


def test_every_way_in_which_a_run_ends_before_its_tests_is_a_grade():
    """The evidence of a run says in `ended` why it has no test results."""
    words = set()
    for path in LIBRARY:
        if not path.is_relative_to(ROOT / "swelab/grading"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values):
                    if isinstance(key, ast.Constant) and key.value == "ended":
                        words.add(ast.unparse(value))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ended_run":
                words.add(ast.unparse(node.args[0]))
    words -= {"status", "run.ended"}  # the parameter of `ended` itself, and one that is passed on
    assert words >= {"'ran'", "'not_applied'", "GradeEnd.TAMPERED", "GradeEnd.INFRA_ERROR"}
    for word in words - {"'ran'"}:
        ended = eval(word, {"GradeEnd": GradeEnd})
        status, reason, tests = verdict.verdict(None, evidence.ended_run(ended, "why"))
        assert status in set(GradeEnd) and (reason, tests) == ("why", None)


def test_every_verdict_of_the_scoring_service_is_a_grade():
    assert all(isinstance(end, GradeEnd) for end in submission.VERDICTS.values())


def test_the_page_has_a_colour_for_every_grade():
    style = (PAGE / "page.css").read_text()
    assert [end for end in GradeEnd if f".status-{end} " not in style] == []
