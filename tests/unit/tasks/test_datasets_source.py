"""Published sets as task rows: criteria, schemas of two benchmarks, broken rows."""

import json

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.records import InputError, write_json
from swelab.records.task_records import Task
from swelab.tasks.datasets_source import make_tasks
from swelab.tasks.exports import gold_prediction
from swelab.tasks.identity import Identities
from swelab.tasks.task_rows import read_tasks
from tests.at_hand import DATA, needs_rows


def row(number: int, kind: str = "pr_7", tests: int = 2, **changes) -> dict:
    return Task.of(
        {
            "instance_id": f"owner__pack.0123abcd.{kind}{number}",
            "repo": "swesmith/owner__pack.0123abcd",
            "patch": "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-a\n+b\n",
            "FAIL_TO_PASS": [f"tests/test_m.py::test_{n}" for n in range(tests)],
            "PASS_TO_PASS": [],
            "image_name": "swebench/swesmith.x86_64.owner_1776_pack.0123abcd",
            "problem_statement": "",
            "rationale": {"kept": True},
            **changes,
        }
    )


@pytest.fixture
def make(tmp_path):
    """Makes tasks from rows with a recipe file, as the script does."""

    def run(rows, name="rows.json", **settings):
        path = tmp_path / name
        if isinstance(rows, list):
            write_json(path, rows)
        else:
            path.write_text(rows)
        recipe = tmp_path / "subset.yaml"
        recipe.write_text(yaml.safe_dump({"source": "dataset", "path": str(path), **settings}))
        made, drops = make_tasks(recipes.load(SUBSET, recipe))
        return list(made), drops

    return run


def test_all_keys_are_kept_and_the_result_is_a_subset(make, tmp_path):
    rows, drops = make([row(1)])
    assert drops == {}
    assert rows == [{**row(1), "source": "dataset"}]
    write_json(tmp_path / "out.json", rows)
    assert list(read_tasks(tmp_path / "out.json")) == rows


def test_criteria_drop_rows_with_a_count(make):
    rows = [row(1), row(2, "lm_modify__"), row(3, tests=1), row(4, tests=9), row(5, repo="other/repo")]
    criteria = {
        "id_pattern": r"\.pr_",
        "min_fail_to_pass": 2,
        "max_fail_to_pass": 5,
        "repos": ["swesmith/owner__pack.0123abcd"],
    }
    kept, drops = make(rows, criteria=criteria)
    assert [r["instance_id"] for r in kept] == [row(1)["instance_id"]]
    assert drops == {"id_pattern": 1, "max_fail_to_pass": 1, "min_fail_to_pass": 1, "repos": 1}


def test_a_larger_limit_keeps_the_first_rows(make):
    rows = [row(n) for n in range(30)]
    few, drops = make(rows, limit=5)
    more, _ = make(rows[::-1], limit=12)
    assert more[:5] == few
    assert drops == {"over_limit": 25}
    assert make(rows, limit=5, seed=1)[0] != few


def test_lists_as_json_strings_are_parsed(make):
    text = row(1, FAIL_TO_PASS=json.dumps(["t::a b"]), PASS_TO_PASS="[]")
    [kept], _ = make([text])
    assert kept["FAIL_TO_PASS"] == ["t::a b"] and kept["PASS_TO_PASS"] == []


def test_a_row_without_image_gets_the_one_of_its_benchmark(make):
    [kept], _ = make([{k: v for k, v in row(1).items() if k != "image_name"}])
    assert kept["image_name"] == "swebench/sweb.eval.x86_64.owner_1776_pack.0123abcd.pr_71:latest"


def test_json_lines_and_parquet_hold_the_same(make, tmp_path):
    rows = [row(n) for n in range(3)]
    plain, _ = make(rows)
    lines, _ = make("".join(json.dumps(r) + "\n" for r in rows), "rows.jsonl")
    assert lines == plain
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    recipe = recipes.complete(SUBSET, {"source": "dataset", "path": str(tmp_path / "rows.parquet")}, "it")
    assert list(make_tasks(recipe)[0]) == plain


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{k: v for k, v in row(1).items() if k != "FAIL_TO_PASS"}], "row 0: field FAIL_TO_PASS is missing"),
        ([row(1, repo="")], "row 0: field repo is missing"),
        ([row(1, PASS_TO_PASS="{oops")], r"row 0 \(owner.*\): field PASS_TO_PASS is no JSON list"),
        ([row(1, PASS_TO_PASS=[1])], "field PASS_TO_PASS is no list of strings"),
        ([row(1, patch=7)], "field patch is a int"),
        ([row(1, patch="")], r"no row meets the criteria \({'empty_patch': 1}\)"),
        ([row(1), row(1, tests=3)], "row 1: duplicate instance_id owner__pack.*"),
        (["text"], "row 0: a str; expected a JSON object"),
        ([], "holds no row"),
        ("{}", "a dict; expected a JSON list"),
        ("[{", "not JSON"),
    ],
)
def test_broken_rows_name_file_row_and_field(make, rows, message):
    with pytest.raises(InputError, match=message) as caught:
        make(rows)
    assert "rows.json" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "o/n"}, "o/n without revision; expected `revision`: its commit of 40 digits"),
        ({}, "neither path nor dataset"),
    ],
)
def test_a_published_set_needs_a_revision(settings, message):
    with pytest.raises(InputError, match=message):
        make_tasks(recipes.complete(SUBSET, {"source": "dataset", **settings}, "it"))


def test_tasks_whose_answers_are_private_are_counted(make):
    rows = [row(1), row(2, FAIL_TO_PASS=[]), row(3, FAIL_TO_PASS=None, PASS_TO_PASS=None), row(4, patch=None)]
    kept, drops = make(rows)
    assert len(kept) == 1 and drops == {"empty_FAIL_TO_PASS": 2, "empty_patch": 1}


def test_tasks_whose_answers_are_private_are_kept_where_a_service_judges(make, tmp_path):
    rows = [row(1), row(2, FAIL_TO_PASS="[]"), row(3, patch=None), row(4, "lm_modify__", patch="")]
    bounds = {"max_patch_lines": 1, "max_patch_files": 1, "id_pattern": "pr_"}
    kept, drops = make(rows, answers="private", scorer="sb-cli", criteria=bounds)
    assert [each.get("answers") for each in kept] == ["private", "private"]
    assert drops == {"id_pattern": 1, "max_patch_lines": 1}  # the patch of row 1 is known
    write_json(tmp_path / "out.json", kept)
    assert list(read_tasks(tmp_path / "out.json")) == kept
    shared = Identities.of(kept)
    assert not shared.shares(row(9, patch="", repo="a/b"))
    assert shared.shares(row(3)) == "excluded_instance"
    assert [gold_prediction(each) for each in kept] == [None, None]
    with pytest.raises(InputError, match="scorer"):
        make(rows, answers="private")
    write_json(tmp_path / "out.json", [{**row(5), "patch": ""}])
    with pytest.raises(InputError, match="row 0 .*patch"):
        list(read_tasks(tmp_path / "out.json"))


@needs_rows
@pytest.mark.parametrize(
    ("name", "expected"), [("swebench_lite5.json", {}), ("swebench_dev_easy5.json", {"repeated_row": 1})]
)
def test_real_rows(name, expected, tmp_path, make):
    rows, drops = make((DATA / name).read_text())
    assert drops == expected
    assert len(rows) == 5 - sum(drops.values())
    write_json(tmp_path / "out.json", rows)
    assert list(read_tasks(tmp_path / "out.json")) == rows
    assert all(r["image_name"].startswith("swebench/sweb.eval.x86_64.") for r in rows)
