"""Exports of a subset, read by the programs that they are made for, and by ours again."""

import json
import subprocess

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.images.image_names import parse_image_name
from swelab.records import write_json
from swelab.tasks.datasets_source import make_tasks
from swelab.tasks.exports import LISTS, ROWS, export
from tests.at_hand import DATA, needs_rows
from tests.unit.tasks.test_criteria import patch, real_rows
from tests.unit.tasks.test_datasets_source import row

DIGEST = "sha256:" + "a" * 64


def subset(tmp_path, rows, **settings):
    """Returns rows as task rows, and the recipe that made them."""
    write_json(tmp_path / "rows.json", rows)
    settings = {"source": "dataset", "path": str(tmp_path / "rows.json"), "order": "published", **settings}
    recipe = recipes.complete(SUBSET, settings, "it")
    return list(make_tasks(recipe)[0]), recipe


def written(tmp_path, tasks, recipe, images=None):
    facts = export(iter(tasks), tmp_path / "out", name="mine", recipe=recipe, images=images)
    texts = {name: (tmp_path / "out" / name).read_text().splitlines() for name in (*LISTS, *ROWS)}
    assert facts["lines"] == {name: len(lines) for name, lines in texts.items()}
    rows = {name: [json.loads(line) for line in texts[name]] for name in ROWS}
    return texts | rows, facts


def issue(number, **changes):
    changes = {"repo": "own/pack", "base_commit": "1" * 40, "test_patch": patch("tests/t.py"), **changes}
    return row(number, instance_id=f"own__pack-{number}", problem_statement=f"issue {number}", **changes)


def test_names_and_digests_of_images(tmp_path):
    tasks, recipe = subset(tmp_path, [row(1), row(2), issue(3, image_name="swebench/x:1")])
    record = {"images": {"swebench/x:1": {"digest": DIGEST}}, "failed": {}, "counts": {}}
    write_json(tmp_path / "images.json", record)
    found, facts = written(tmp_path, tasks, recipe, tmp_path / "images.json")
    assert found["instance_ids.txt"] == [task["instance_id"] for task in tasks]
    assert found["docker_images.txt"] == [row(1)["image_name"], f"docker.io/swebench/x:1@{DIGEST}"]
    assert parse_image_name(found["docker_images.txt"][1]).digest == DIGEST
    assert facts["images_with_digest"] == 1


def test_prompts_have_the_fields_of_slime_and_miles(tmp_path):
    issues = [
        issue(1, image_name="xingyaoww/sweb.eval.x86_64.own_s_pack-1:latest"),
        issue(2, image="docker.io/swebench/sweb.eval.x86_64.own_1776_pack-2:latest"),
        issue(3, image_name="else:1"),
    ]
    tasks, recipe = subset(tmp_path, issues)
    found, _ = written(tmp_path, tasks, recipe.model_copy(update={"dataset": "SWE-Gym/SWE-Gym"}))
    for task, slime, miles in zip(tasks, found["slime.jsonl"], found["miles.jsonl"]):
        assert set(slime) == {"text", "metadata"} and set(miles) == {"prompt", "metadata"}
        assert slime["text"] == miles["prompt"] == task["problem_statement"]
        assert set(slime["metadata"]) == {"instance", "data_source"}
        assert slime["metadata"]["data_source"] == "SWE-Gym/SWE-Gym"
        assert slime["metadata"]["instance"]["FAIL_TO_PASS"] == task["FAIL_TO_PASS"]
        assert miles["metadata"]["split"] == "train"
        assert miles["metadata"].keys() >= {*task} - {"source"}
    assert [miles["metadata"]["subset"] for miles in found["miles.jsonl"]] == ["gym", "verified", "mine"]
    assert found["miles.jsonl"][1]["metadata"]["image_name"] == issues[1]["image"]


def test_what_is_exported_is_read_again(tmp_path):
    tasks, recipe = subset(tmp_path, [row(1), issue(2)])
    written(tmp_path, tasks, recipe)
    for name in ("evaluation.jsonl", "slime.jsonl", "miles.jsonl"):
        settings = {"source": "dataset", "path": str(tmp_path / "out" / name), "order": "published"}
        again = list(make_tasks(recipes.complete(SUBSET, settings, "it"))[0])
        assert again == tasks, name


def test_gold_predictions_repair(tmp_path, task, repos_dir):
    """Three rows: one contains the bug, one the fix, one a bug that cannot be reverted as text."""
    fix = issue(2)
    binary = row(3, patch="diff --git a/x b/x\nGIT binary patch\nliteral 1\n")
    found, facts = written(tmp_path, [task, fix, binary], {})
    assert facts["left_out"] == {"gold.jsonl: binary patch": 1}
    bug, kept = found["gold.jsonl"]
    assert kept["model_patch"] == fix["patch"] and bug["model_name_or_path"] == "gold"
    (tmp_path / "calc").mkdir()
    buggy = "def add(a, b):\n    return a - b\n\n\ndef last(items):\n    return items[-1]\n"
    (tmp_path / "calc/core.py").write_text(buggy)
    done = subprocess.run(["patch", "-p1"], input=bug["model_patch"], cwd=tmp_path, text=True)
    assert done.returncode == 0 and "return a + b" in (tmp_path / "calc/core.py").read_text()
    assert not found["docker_images.txt"][1:] or task["image_name"] not in found["docker_images.txt"]


def test_a_task_that_a_script_judges_has_no_gold_as_text(tmp_path):
    judged = issue(2, answers="script", patch="", FAIL_TO_PASS=[], verifier_tar="x")
    found, facts = written(tmp_path, [issue(1), judged], {})
    assert facts["left_out"] == {"gold.jsonl: no repair is known as a patch": 1}
    assert [row["instance_id"] for row in found["evaluation.jsonl"]] == [
        issue(1).instance_id,
        judged.instance_id,
    ]


def test_the_reference_harness_reads_rows_and_gold(tmp_path):
    utils = pytest.importorskip("swebench.harness.utils")
    script = "#!/bin/bash\n: '>>>>> Start Test Output'\npytest\n: '>>>>> End Test Output'\n"
    new = {
        "image": "i:1",
        "version": "1.0",
        "eval_script": script,
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
    }
    tasks, recipe = subset(tmp_path, [issue(1, **new), issue(2, **new)])
    found, _ = written(tmp_path, tasks, recipe)
    rows = utils.load_swebench_dataset(str(tmp_path / "out/evaluation.jsonl"), "test")
    specs = [utils.make_test_spec(each) for each in rows]
    assert [spec.FAIL_TO_PASS for spec in specs] == [task["FAIL_TO_PASS"] for task in tasks]
    gold = utils.get_predictions_from_file(str(tmp_path / "out/gold.jsonl"), "x", "test")
    assert {each["instance_id"]: each["model_patch"] for each in gold} == {
        task["instance_id"]: task["patch"] for task in tasks
    }


@needs_rows
def test_a_real_prompt_file_comes_out_as_it_went_in(tmp_path):
    raw = real_rows("swe_gym_subset20.jsonl")
    recipe = recipes.complete(
        SUBSET,
        {"source": "dataset", "path": str(DATA / "swe_gym_subset20.jsonl"), "order": "published"},
        "it",
    )
    tasks = list(make_tasks(recipe)[0])
    found, _ = written(
        tmp_path, tasks, recipe.model_copy(update={"dataset": raw[0]["metadata"]["data_source"]})
    )
    unique = list({each["metadata"]["instance"]["instance_id"]: each for each in raw}.values())
    for ours, theirs in zip(found["slime.jsonl"], unique, strict=True):
        assert ours["text"] == theirs["metadata"]["instance"]["problem_statement"]
        assert ours["metadata"]["data_source"] == theirs["metadata"]["data_source"]
        instance = dict(ours["metadata"]["instance"])
        assert instance.pop("image_name").startswith("xingyaoww/sweb.eval.x86_64.")
        assert instance == theirs["metadata"]["instance"]


def test_apptainer_files_are_no_docker_images(tmp_path):
    tasks, recipe = subset(tmp_path, [row(1, image_name="images/a.sif"), row(2, image_name="docker://a/b")])
    found, facts = written(tmp_path, tasks, recipe)
    assert found["docker_images.txt"] == ["a/b"]
    assert facts["left_out"] == {"docker_images.txt: an apptainer file": 1}
