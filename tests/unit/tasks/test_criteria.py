"""Subsets of published sets: criteria as data, order, decontamination, real rows."""

import contextlib
import json
from collections import Counter
from datetime import datetime

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.experiment import check_subset, load_experiment
from swelab.configs.kinds import SUBSET, subset
from swelab.records import InputError, write_json, write_jsonl
from swelab.records.patch_reader import read_patch
from swelab.tasks.criteria import Criteria, read_ratings
from swelab.tasks.datasets_source import make_tasks
from swelab.tasks.patch_text import language, patch_size
from swelab.tasks.task_rows import read_tasks
from tests.at_hand import DATA, needs_rows
from tests.unit.tasks.test_datasets_source import row


def make(rows, tmp_path, excluded=(), ratings=None, **settings):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, rows)
    recipe = recipes.complete(SUBSET, {"source": "dataset", "path": str(path), **settings}, "it")
    made, drops = make_tasks(recipe, excluded=excluded, ratings=ratings)
    return list(made), drops


def patch(path="m.py", removed=1, added=1):
    hunk = f"@@ -1,{removed + 1} +1,{added + 1} @@\n x\n" + "-a\n" * removed + "+b\n" * added
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{hunk}"


def real_rows(name):
    text = (DATA / name).read_text()
    return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def test_a_patch_is_measured_by_its_hunks():
    text = (
        patch("a.py", 2, 1) + "diff --git a/b.go b/c.go\nrename from b.go\nrename to c.go\n" + patch("d.go")
    )
    # A removed line that looks like a header, and a removed file.
    text += "diff --git a/e.sql b/e.sql\n--- a/e.sql\n+++ /dev/null\n@@ -1,2 +0,0 @@\n--- drop\n-++ it\n"
    assert [(change.path, change.size) for change in read_patch(text).changes] == [
        ("a.py", 3),
        ("c.go", 0),
        ("d.go", 2),
        ("e.sql", 2),
    ]
    assert patch_size(text) == (7, 4)
    assert patch_size("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n") == (2, 1)


@pytest.mark.parametrize("limit", ["max_patch_lines", "min_patch_lines", "max_patch_files"])
def test_a_patch_that_cannot_be_read_meets_no_limit(limit):
    broken = patch("a.py", 2, 1) + "@@ -1,9 +1,9 @@\n a\n"
    criteria = Criteria(subset.Criteria.model_validate({limit: 1 if "min" in limit else 99}))
    assert criteria.miss(row(1, patch=patch("a.py"))) == ""
    assert criteria.miss(row(1, patch=broken)) == limit


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"patch": patch("a.py", 2, 2) + patch("b.go")}, "python"),
        ({"patch": patch("a.py") + patch("b.go", 2)}, "go"),
        ({"patch": patch("a.h")}, "c"),
        ({"patch": patch("a.h", 9) + patch("a.cc")}, "cpp"),
        ({"patch": patch("README.md")}, ""),
        ({"patch": patch("a.tsx"), "language": "JS"}, "javascript"),
    ],
)
def test_the_language_is_that_of_most_changed_lines(changes, expected):
    assert language(row(1, **changes)) == expected


def test_each_criterion_drops_with_its_own_count(tmp_path):
    rows = [
        row(1, problem_statement="x" * 50, patch=patch("m.py", 2, 3)),
        row(2, problem_statement="x" * 50, patch=patch("m.rs")),
        row(3, problem_statement="x" * 9),
        row(4, problem_statement="x" * 101),
        row(5, problem_statement="x" * 50, patch=patch("m.py", 9, 9)),
        row(6, problem_statement="x" * 50, patch=patch("m.py", 0, 1)),
        row(7, problem_statement="x" * 50, patch=patch("m.py", 2) + patch("n.py", 2)),
        row(8, problem_statement="x" * 50, patch=patch("m.py", 2, 3), difficulty=">4 hours"),
    ]
    rows = [{"difficulty": "<15 min fix", **each} for each in rows]
    criteria = {
        "languages": ["python", "go"],
        "difficulties": ["<15 min fix"],
        "min_statement_chars": 10,
        "max_statement_chars": 100,
        "min_patch_lines": 2,
        "max_patch_lines": 10,
        "max_patch_files": 1,
    }
    kept, drops = make(rows, tmp_path, criteria=criteria)
    assert [each["instance_id"] for each in kept] == [rows[0]["instance_id"]]
    assert drops == dict.fromkeys([*criteria], 1)


def test_ratings_are_a_criterion(tmp_path):
    rated = [
        {"instance_id": row(n)["instance_id"], "outcome": "rated", "difficulty": "w", "rating": rating}
        for n, rating in ((1, 1), (2, 9))
    ]
    lost = {"instance_id": row(3)["instance_id"], "outcome": "unreadable", "difficulty": None, "rating": None}
    write_jsonl(tmp_path / "r.jsonl", [{**each, "answer": "", "attempts": 1} for each in [*rated, lost]])
    ratings = read_ratings(tmp_path / "r.jsonl")
    rows = [row(n) for n in range(1, 5)]
    kept, drops = make(rows, tmp_path, ratings=ratings, criteria={"ratings": [1, 5]})
    assert [each["instance_id"] for each in kept] == [rows[0]["instance_id"]]
    assert drops == {"not_rated": 2, "ratings": 1}
    with pytest.raises(InputError, match="criteria.ratings without ratings"):
        make(rows, tmp_path, criteria={"ratings": [1]})


def test_ratings_of_the_published_rater_are_read(tmp_path):
    words = {"a": "easy", "b": "hard", "c": "error", "d": "medium"}
    write_jsonl(
        tmp_path / "x_difficulties.jsonl", [{"instance_id": k, "difficulty": w} for k, w in words.items()]
    )
    assert read_ratings(tmp_path / "x_difficulties.jsonl") == {"a": 1, "b": 9, "d": 5}
    write_jsonl(tmp_path / "bad.jsonl", [{"id": "a"}])
    with pytest.raises(InputError, match="bad.jsonl: a row without instance_id or difficulty"):
        read_ratings(tmp_path / "bad.jsonl")


def stratified(tmp_path, how, limit):
    rows = [row(n, repo=f"o/{'a' if n < 80 else 'b' if n < 115 else 'c'}") for n in range(120)]
    kept, drops = make(rows, tmp_path, stratify=how, limit=limit)
    assert drops == {"over_limit": 120 - limit}
    return [each["repo"] for each in kept], kept


def test_repositories_take_turns_or_have_their_share(tmp_path):
    equal, _ = stratified(tmp_path, "equal", 12)
    assert Counter(equal) == {"o/a": 4, "o/b": 4, "o/c": 4}
    longer, _ = stratified(tmp_path, "equal", 40)
    assert longer[:12] == equal and Counter(longer)["o/c"] == 5
    share, few = stratified(tmp_path, "proportional", 24)
    assert Counter(share) == {"o/a": 16, "o/b": 7, "o/c": 1}
    assert stratified(tmp_path, "proportional", 60)[1][:24] == few


def test_a_benchmark_takes_its_rows_out_of_a_subset(tmp_path):
    def issue(name, commit, text):
        return row(0, instance_id=name, repo="Own/Pack", base_commit=commit, patch=text, test_patch="t")

    benchmark = [issue("b-1", "0123abcd" * 5, patch("m.py")), issue("b-2", "ffffffff" * 5, patch("n.py"))]
    backwards = patch("n.py").replace("-a\n+b\n", "-b\n+a\n")
    rows = [
        issue("b-1", "1" * 40, patch("k.py")),
        row(2, repo="swesmith/own__pack.0123abcd", patch=patch("k.py")),
        row(3, repo="swesmith/other__fork.00000000", patch=backwards),
        row(4, repo="swesmith/own__pack.77777777", patch=patch("k.py", 3)),
    ]
    kept, drops = make(rows, tmp_path, excluded=benchmark)
    assert [each["instance_id"] for each in kept] == [rows[3]["instance_id"]]
    assert drops == {"excluded_instance": 1, "excluded_repo_commit": 1, "excluded_patch": 1}


ODD = [None, 0, 1.5, True, "", "x", [], [1], [None], {}, {"a": [1]}]
FIELDS = (
    "instance_id repo patch FAIL_TO_PASS PASS_TO_PASS problem_statement image_name image base_commit version "
    "difficulty language test_patch metadata text bug function created_at repo_recipe"
).split()


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_field_is_more_than_one_line(field, tmp_path):
    """With any field value a row becomes a task, is counted, or ends the rule with one line."""
    criteria = {
        "languages": ["python"],
        "difficulties": ["a"],
        "max_statement_chars": 9,
        "max_patch_lines": 9,
    }
    for number, value in enumerate(ODD):
        raw = row(number, difficulty="a", base_commit="1" * 40) | {field: value}
        other = [row(99, base_commit="2" * 40)]
        for wanted in ({}, criteria):
            try:
                made, drops = make([raw, row(50)], tmp_path, excluded=other, criteria=wanted)
            except InputError as error:
                assert "\n" not in str(error)
                continue
            assert len(made) + sum(drops.values()) == 2
            write_json(tmp_path / "out.json", made)
            with contextlib.suppress(InputError):
                list(read_tasks(tmp_path / "out.json"))


def snippet(rows):
    """The criteria of SWE-smith's guide, on rows whose lists are lists."""
    return [
        each
        for each in rows
        if ".pr_" in each["instance_id"] and len(each["FAIL_TO_PASS"]) <= 5 and len(each["FAIL_TO_PASS"]) >= 2
    ]


def test_subset0_is_what_the_guide_selects(tmp_path):
    shipped = recipes.load_named(SUBSET, "subset0")
    assert (shipped.dataset, shipped.split, shipped.limit) == ("SWE-bench/SWE-smith", "train", 0)
    rows = [
        row(n, kind=kind, tests=tests)
        for n, (kind, tests) in enumerate(
            (kind, tests)
            for kind in ("pr_", "lm_rewrite__", "func_pm_ctrl__", "combine_file__", "pr_x.pr_", "xpr_")
            for tests in range(8)
        )
    ]
    rows += [row(100, kind="pr_", tests=2, instance_id="own__pack.00000000-pr_1")]  # no ".pr_"
    write_json(tmp_path / "rows.json", rows[::-1])
    kept, drops = make_tasks(
        shipped.model_copy(update={"dataset": None, "path": str(tmp_path / "rows.json")})
    )
    wanted = snippet(rows[::-1])
    assert [{k: v for k, v in each.items() if k != "source"} for each in kept] == wanted
    assert len(wanted) == 8 and sum(drops.values()) == len(rows) - 8


@needs_rows
def test_real_prompt_rows_of_swe_gym_become_tasks(tmp_path):
    raw = real_rows("swe_gym_subset20.jsonl")
    kept, drops = make(raw, tmp_path, order="published")
    assert len(kept) + sum(drops.values()) == 20 and set(drops) <= {"repeated_row"}
    first = raw[0]["metadata"]["instance"]
    assert kept[0]["patch"] == first["patch"] and kept[0]["eval_script"] == first["eval_script"]
    name = first["instance_id"].replace("__", "_s_").lower()
    assert kept[0]["image_name"] == f"xingyaoww/sweb.eval.x86_64.{name}:latest"
    assert {language(each) for each in kept} == {"python"}
    assert all(patch_size(each["patch"])[0] > 0 for each in kept)
    write_json(tmp_path / "out.json", kept)
    assert list(read_tasks(tmp_path / "out.json")) == kept
    short, drops = make(raw, tmp_path, criteria={"max_patch_lines": 10, "max_patch_files": 1})
    assert 0 < len(short) < len(kept) and drops["max_patch_lines"] > 0


def test_times_in_parquet_become_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    when = datetime(2026, 1, 2, 3, 4)
    rows = [row(1, created_at=when), row(2, created_at=None)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    settings = {"source": "dataset", "path": str(tmp_path / "rows.parquet"), "order": "published"}
    kept, _ = make_tasks(recipes.complete(SUBSET, settings, "it"))
    assert [each["created_at"] for each in kept] == ["2026-01-02T03:04:00", None]


def test_a_subset_is_not_made_from_itself(configs):
    def write(name, **settings):
        text = yaml.safe_dump({"source": "dataset", "path": "x.json", **settings})
        (configs / f"subsets/{name}.yaml").write_text(text)

    write("a", exclude=["b"])
    write("b", ratings={"rater": "difficulty", "subset": "a"})
    with pytest.raises(InputError, match="made from itself: a -> b -> a"):
        check_subset("a", configs)
    write("b", ratings={"rater": "difficulti", "subset": "forge-train"})
    with pytest.raises(InputError, match="unknown rater 'difficulti' .did you mean 'difficulty'"):
        check_subset("a", configs)
    write("b", exclude=["swebench-verifid"])
    path = configs / "experiments/demo.yaml"
    path.write_text(path.read_text().replace("forge-train", "a"))
    with pytest.raises(InputError, match="did you mean 'swebench-verified'"):
        load_experiment("demo", configs)
