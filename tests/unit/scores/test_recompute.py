"""scripts.verify on a finished experiment, before and after a user's edits."""

import os
import re
import shutil
import sys
import time

import pytest

from swelab.jobs.provenance import Stage, manifest_path
from swelab.records import InputError, read_json, read_jsonl, sha256_file, write_json, write_jsonl
from swelab.scores.recompute import verify
from tests.conftest import ROOT, run_program, run_python
from tests.unit.finished_experiment import build

GRADES = "results/grades/sft/drill-heldout/000of002.jsonl"
ROLLOUTS = "results/rollouts/sft/drill-heldout/000of002.jsonl"
PREDICTIONS = "results/rollouts/sft/drill-heldout/preds.json"
SCORE = "results/verified_score.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished") / "clone"
    build(root, train=12, heldout=24, samples={"base": 2})
    return root


@pytest.fixture
def root(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "moved")


def named(root, *words, kind):
    """Returns the findings of a failing check. One of them must be of this kind and contain all words."""
    found, _ = verify(root / SCORE)
    lines = [f"{each.path}: {each.what}" for each in found if each.kind == kind]
    assert any(all(word in line for word in words) for line in lines), found
    return found


def edit_rows(path, change):
    rows = list(read_jsonl(path))
    for row in rows:
        change(row)
    write_jsonl(path, rows)
    return rows


def win(row):
    row.update(status="resolved", resolved=True)


def test_all_holds_wherever_the_clone_lies_and_whatever_touched_its_files(root):
    assert verify(root / SCORE)[0] == []
    for path in (root / "results").rglob("*"):
        os.utime(path, (time.time() + 9, time.time() + 9))
    policy = root / "configs/policies/sft.yaml"
    policy.write_text("# a remark\n" + policy.read_text())
    found, told = verify(root / SCORE)
    assert found == [] and told.endswith("all hold") and told.count("\n") < 8


def test_the_script(root):
    done = run_python("-m", "scripts.verify", root / SCORE)
    assert done.returncode == 0 and done.stdout.endswith("all hold\n"), done.stdout + done.stderr
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    count = int(first.removeprefix("verify: the files and then the numbers of ").partition(" ")[0])
    assert last.startswith(f"verify: {2 * count}/{2 * count}")
    edit_rows(root / GRADES, win)
    done = run_python("-m", "scripts.verify", root / SCORE)
    assert done.returncode == 1 and f"edited   {GRADES}: not what grade wrote" in done.stdout, done.stdout


def test_a_grade_that_was_made_a_success_by_hand_is_named(root):
    edit_rows(root / GRADES, win)
    named(root, GRADES, "not what grade wrote", kind="edited")
    named(root, "grades/sft/drill-heldout/report.json", "made again", kind="number")


def test_a_grade_by_hand_is_named_when_all_after_it_was_made_from_it(root, monkeypatch):
    """All later numbers are made from the edited row. The score is 100 %, and the check names the row."""
    monkeypatch.chdir(root)
    for path in sorted((root / "results/grades/sft").rglob("0*.jsonl")):
        edit_rows(path, win)
    for subset in ("drill-heldout", "forge-heldout"):
        words = [f"--tasks=results/tasks/{subset}.kept.json", "--policy=sft", f"--subset={subset}"]
        lock = f"--lock=results/tasks/{subset}.lock.json"
        grades = sorted((root / f"results/grades/sft/{subset}").glob("0*.jsonl"))
        out = root / f"results/grades/sft/{subset}/report.json"
        again(root, "report_grades", *words, lock, "--grades", *grades, f"--output={out}")
        usage = root / f"results/rollouts/sft/{subset}/usage.json"
        again(root, "score", *words, "--report", out, "--usage", usage,
              f"--output={root}/results/scores/sft/{subset}.json",
              f"--table={root}/results/scores/sft/{subset}.csv")  # fmt: skip
    scores = [
        f"results/scores/{policy}/{subset}.json"
        for subset in ("drill-heldout", "forge-heldout")
        for policy in ("base", "sft")
    ]
    whole = ["score_experiment", "--experiment=demo", "--compare", "base", "sft", "--benchmark",
             "drill-heldout", "--scores", *scores, f"--output={SCORE}"]  # fmt: skip
    again(root, *whole)
    assert read_json(root / SCORE)["policies"]["sft"]["resolve_rate"] == 1
    lines = named(root, GRADES, "not what grade wrote", kind="edited")
    named(root, GRADES, "report.json was made from the edited file", kind="edited")
    assert {each.kind for each in lines} == {"edited"}
    for path in sorted((root / "results/grades/sft").rglob("0*.jsonl")):  # and now the manifests, too
        told = read_json(manifest := root / manifest_path(path.relative_to(root)))
        write_json(manifest, told | {"outputs": {str(path.relative_to(root)): sha256_file(path)}})
    named(root, "verified_score.json", f"stages.{GRADES.removesuffix('.jsonl')}", kind="number")
    again(root, *whole)
    found, told = verify(root / SCORE)
    assert found == [], "nothing in the clone tells it"
    assert re.search(r"verdicts 0 judged again from .*; \d+ taken as their rows have them: their kept", told)


def again(root, script, *words):
    command = [sys.executable, "-m", f"scripts.{script}", *map(str, words)]
    done = run_program(command, cwd=root, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


def test_a_trajectory_s_patch(root):
    rows = edit_rows(root / ROLLOUTS, lambda row: row.update(model_patch="a better one"))
    named(root, ROLLOUTS, kind="edited")
    named(root, PREDICTIONS, rows[0]["instance_id"], "made again from its trajectory", kind="number")


def test_predictions(root):
    preds = read_json(root / PREDICTIONS)
    name = next(iter(preds))
    preds[name]["model_patch"] = "a better one"
    write_json(root / PREDICTIONS, preds)
    named(root, PREDICTIONS, kind="edited")
    named(root, PREDICTIONS, name, kind="number")


def test_table_of_a_score(root):
    table = root / "results/scores/sft/drill-heldout.csv"
    table.write_text(table.read_text().replace("unresolved", "resolved", 1))
    named(root, "results/scores/sft/drill-heldout.csv", "another table", kind="number")


def test_missing_files(root):
    lock, score = "results/tasks/drill-heldout.lock.json", "results/scores/base/drill-heldout.json"
    for path in (ROLLOUTS, GRADES, lock, score, "results/models/tiny.json"):
        (root / path).rename(root / "away")
        named(root, path, "wrote it", f"`snakemake {path}` makes it again", kind="missing")
        (root / "away").rename(root / path)


def test_a_missing_manifest(root):
    (root / GRADES).with_suffix(".manifest.json").unlink()
    edit_rows(root / GRADES, win)
    named(root, "no manifest says how", GRADES, kind="missing")


def test_a_recipe_that_was_edited_after_the_run(root):
    path = root / "configs/policies/sft.yaml"
    path.write_text(path.read_text().replace("weights: 'sft:demo'", "weights: 'model:tiny'"))
    change = "weights was 'sft:demo', is 'model:tiny' now"
    named(root, ROLLOUTS, "configs/policies/sft.yaml", change, kind="recipe")
    path.unlink()
    named(root, ROLLOUTS, "configs/policies/sft.yaml: no such file", kind="recipe")


def test_the_experiment_itself(root):
    path = root / "configs/experiments/demo.yaml"
    path.write_text(path.read_text().replace("benchmarks: [drill-heldout, ", "benchmarks: ["))
    named(root, "configs/experiments/demo.yaml", "benchmarks", kind="recipe")


def test_weights(root):
    path = root / "results/models/tiny.json"
    write_json(path, read_json(path) | {"digest": "e" * 64})
    named(root, "results/models/tiny.json", "not what make_base_model wrote", kind="edited")


def test_a_number_of_the_score_by_hand(root):
    record = read_json(root / SCORE)
    record["policies"]["sft"]["resolve_rate"] = 1
    write_json(root / SCORE, record)
    named(root, "verified_score.json", "policies.sft.resolve_rate was 1, is 0.", kind="number")


def _hotter(manifest):
    manifest["recipes"]["policies/sft.yaml"]["sampling"]["temperature"] = 0.7


def _other_stage(manifest):
    name = next(name for name in manifest["stages"] if "grades" in name)
    manifest["stages"][name]["seed"] = 9


def _other_file(manifest):
    next(row for row in manifest["files"] if "report.json" in row["path"])["sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "what"),
    [(_hotter, "recipes.policies/sft.yaml"), (_other_stage, "stages"), (_other_file, "files")],
)
def test_what_the_score_says_of_its_making_by_hand(root, change, what):
    record = read_json(root / SCORE)
    change(record["manifest"])
    write_json(root / SCORE, record)
    named(root, "verified_score.json", what, kind="number")


@pytest.mark.parametrize("pair", [["base"], ["base", "sft", "x"]])
def test_a_score_without_a_pair_to_compare_is_one_line(root, pair):
    record = read_json(root / SCORE)
    next(iter(record["manifest"]["used"].values()))["used"]["compare"] = pair
    write_json(root / SCORE, record)
    named(root, "does not name what was scored and compared", kind="number")


def test_what_is_older_than_what_it_was_made_from(root, monkeypatch):
    monkeypatch.chdir(root)
    made, lock, kept = (f"results/tasks/drill-heldout{end}.json" for end in ("", ".lock", ".kept"))
    record, tasks = read_json(lock), read_json(kept)
    write_json(lock, record | {"settings": record["settings"] | {"gold_runs": 4}})
    Stage("validate_tasks", tasks=made).write([lock, kept])
    lines = named(root, "results/grades/sft/drill-heldout/report.json", lock, kind="older")
    assert not [line for line in lines if line.path == ROLLOUTS]
    write_json(kept, [tasks[0] | {"test_timeout": 5}, *tasks[1:]])
    Stage("validate_tasks", tasks=made).write([lock, kept])
    named(root, ROLLOUTS, f"made from another version of {kept}", kind="older")
    named(root, "results/scores/sft/drill-heldout.json", kept, kind="older")


def test_the_score_of_one_policy_is_checked_alone(root):
    score = root / "results/scores/sft/drill-heldout.json"
    (root / SCORE).unlink()
    found, told = verify(score)
    assert found == [] and told.endswith("all hold")
    record = read_json(score)
    write_json(score, record | {"resolved": record["resolved"] + 1})
    found, _ = verify(score)
    assert {"number", "edited"} & {each.kind for each in found}
    edit_rows(root / ROLLOUTS, lambda row: row.update(model_patch="x"))
    assert any(each.path == ROLLOUTS for each in verify(score)[0])


def test_what_is_no_score_is_one_line(root):
    with pytest.raises(InputError, match="expected a valid verified_score"):
        verify(root / "results/grades/sft/drill-heldout/report.json")
    record = read_json(root / SCORE)
    del record["manifest"]["inputs"]
    write_json(root / SCORE, record)
    with pytest.raises(InputError, match="expected a valid manifest"):
        verify(root / SCORE)
