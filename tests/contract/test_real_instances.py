"""Real instances, graded by rules, by one command, by their own scripts: gold resolved, empty not."""

import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.records import read_json, read_jsonl, write_json
from swelab.sandbox import Image, open_backend, sandbox_image
from swelab.tasks.datasets_source import named_rows
from swelab.tasks.image_history import prepare
from swelab.tasks.image_leaks import check_image
from tests.conftest import ROOT, run_python
from tests.contract.hosted_service import Service, text_of
from tests.contract.real_instances import CASES, files, make, tar

pytestmark = [pytest.mark.real, pytest.mark.full]


@pytest.fixture(scope="module")
def instances(tmp_path_factory, pytestconfig):
    """(published rows, the commits that repair them, the layer on top of the sandbox image for each)"""
    cache = tmp_path_factory.getbasetemp().parent / "archives"
    rows, fixes, tars = [], {}, {}
    for case in CASES:
        tree = tmp_path_factory.mktemp(case.package)
        row, fix = make(case, tree, cache)
        rows.append(row)
        fixes[case.instance] = fix
        tars[case.instance] = tar(tree, files(case, cache))
    return rows, fixes, tars


@pytest.fixture(params=["bubblewrap", "docker"])
def ground(request, instances, image, backend, tmp_path):
    """Returns (backend, record of all instances' images, environment of scripts)."""
    record = {"images": {}, "failed": {}, "counts": {"named": 3, "pulled": 3}}
    docker = request.param == "docker" and request.getfixturevalue("engine")
    for number, (name, layer) in enumerate(instances[2].items()):
        folder, digest = "", f"sha256:{number:064}"
        if docker:
            sandbox_image.load_image(open_backend("docker").engine)
            container = docker.docker("create", image.digest)
            docker.docker("cp", "-", f"{container}:/", input=layer)
            digest = docker.docker("commit", container)
            docker.docker("rm", container)
        else:
            folder = name
            subprocess.run(["cp", "-a", image.folder, tmp_path / folder], check=True)
            with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
                opened.extractall(tmp_path / folder)
            config = image.folder.with_name(image.folder.name + ".json").read_text()
            (tmp_path / f"{folder}.json").write_text(config)
        facts = {"digest": digest, "bytes": len(layer), "folder": folder, "workdir": "/testbed"}
        record["images"][name] = {**facts, "pulled": "", "checked": 1, "leaks": []}
    write_json(tmp_path / "images.json", record)
    yield open_backend(request.param), tmp_path


def run(script, folder, backend, *options):
    paths = [
        f"--{name}={folder / file}" for name, file in (("tasks", "tasks.json"), ("images", "images.json"))
    ]
    command = ("-m", f"scripts.{script}", *paths, f"--repos-dir={folder}", f"--progress={folder / script}.jl")
    done = run_python(*command, *options, env={**os.environ, "SWELAB_BACKEND": backend.name})
    assert done.returncode == 0, done.stderr


def graded(folder, backend, name, predictions):
    """Returns the grades of predictions, which are written to files called `name`."""
    write_json(folder / f"{name}.json", predictions)
    where = (f"--predictions={folder / name}.json", f"--output={folder / name}.jsonl")
    run("grade", folder, backend, *where, f"--policy={name}", "--subset=real")
    return {row["instance_id"]: row for row in read_jsonl(folder / f"{name}.jsonl")}


def test_real_instances_are_told_right(ground, instances):
    (backend, folder), (rows, fixes, _) = ground, instances
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = list(named_rows(folder / "rows.jsonl"))
    write_json(folder / "tasks.json", tasks)
    for task in tasks:
        fix = fixes[task["instance_id"]]
        found = read_json(folder / "images.json")["images"][task["instance_id"]]
        place = folder / found["folder"] if found["folder"] else None
        image = Image(task["instance_id"], found["digest"], place)
        assert check_image(backend, image, [task]) == (1, [])
        with backend.start(None, image=image) as box:
            assert box.exec(f"git cat-file -e {fix}").returncode == 0
            assert prepare(box, task) == task["base_commit"]
            assert box.exec(f"git cat-file -e {fix}").returncode != 0

    (folder / "real.yaml").write_text("source: dataset\npath: rows.jsonl\nvalidate: {gold_runs: 1}\n")
    run(
        "validate_tasks",
        folder,
        backend,
        f"--recipe={folder}/real.yaml",
        f"--output={folder}/lock.json",
        f"--kept={folder}/kept.json",
    )
    lock = read_json(folder / "lock.json")
    assert {row["instance_id"] for row in lock["kept"]} == {case.instance for case in CASES}, lock

    policy = recipes.load_named(POLICY, "scripted").plain() | {"wrong_edit": 0, "give_up": 0}
    write_json(folder / "gold.yaml", policy)
    where = (f"--policy={folder}/gold.yaml", "--scaffold=configs/scaffolds/demo.yaml", "--subset=real")
    run("rollout", folder, backend, *where, f"--output={folder}/rollouts.jsonl")
    played = {row["instance_id"]: row for row in read_jsonl(folder / "rollouts.jsonl")}
    assert {row["outcome"] for row in played.values()} == {"submitted"}
    keys = ("instance_id", "model_patch", "outcome")
    gold = {name: {key: row[key] for key in keys} for name, row in played.items()}
    for row in gold.values():
        row["model_name_or_path"] = "gold"
    verdicts = graded(folder, backend, "gold", gold)
    assert [row["resolved"] for row in verdicts.values()] == [True] * 3, verdicts
    empty = {name: row | {"model_patch": ""} for name, row in gold.items()}
    assert [row["resolved"] for row in graded(folder, backend, "empty", empty).values()] == [False] * 3
    wrong = {name: row | {"model_patch": BESIDE} for name, row in gold.items()}
    verdicts = graded(folder, backend, "wrong", wrong)
    assert [row["status"] for row in verdicts.values()] == ["unresolved"] * 3, verdicts


BESIDE = "diff --git a/NOTES b/NOTES\nnew file mode 100644\n--- /dev/null\n+++ b/NOTES\n@@ -0,0 +1 @@\n+x\n"
"""A patch that repairs nothing."""


def export(folder, rows):
    """Writes verified_eval.jsonl from rows with SWE-RL's script."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = ROOT / "swe-rl/data/export_swebench_verified_assets.py"
    subprocess.run(
        [sys.executable, script, "--dataset", folder / "rows.jsonl", "--output-dir", folder / "verified"],
        env=os.environ | {"PYTHON_BIN": sys.executable}, check=True,
    )  # fmt: skip
    names = (folder / "verified/instance_ids.txt").read_text().split()
    assert names == [case.instance for case in CASES]
    return folder / "verified/verified_eval.jsonl"


def applied(patch):
    return f"git apply -v - <<'END'\n{patch}END\n"


def test_exported_rows_are_judged_by_the_exit_code_of_their_scripts(ground, instances):
    (backend, folder), (rows, _, _) = ground, instances
    record = read_json(folder / "images.json")["images"]
    for row in read_jsonl(export(folder, rows)):
        task = row["metadata"]["instance"]
        found = record[task["instance_id"]]
        image = Image(
            task["instance_id"], found["digest"], folder / found["folder"] if found["folder"] else None
        )
        with backend.start(None, image=image) as box:
            assert box.exec(task["eval_script"]).returncode != 0, task["instance_id"]
        with backend.start(None, image=image) as box:
            done = box.exec(applied(task["patch"]) + task["eval_script"])
            assert done.returncode == 0, done.output


@pytest.mark.parametrize("gold", [True, False], ids=["gold", "nothing"])
def test_exported_rows_are_evaluated_by_one_command(ground, instances, gold):
    """The model is a service that knows the gold patches, or submits nothing."""
    (backend, folder), (rows, _, _) = ground, instances

    def speak(turn, history):
        told = "".join(map(text_of, history))
        patch = next((row["patch"] for row in rows if row["problem_statement"] in told), "")
        command = applied(patch) if gold and not turn else "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        return f"Turn {turn}.\n```bash\n{command}\n```"

    service = Service(speak=speak)
    given = ["--model", "openai/toy", "--api-base", f"{service.url}/v1", "--data", export(folder, rows)]
    given += ["--output-dir", folder / "out", "--images", folder / "images.json", "--max-tokens", 4096]
    short = str(ROOT / "configs/scaffolds/demo.yaml")
    names = ["swe-rl/eval/eval_swe.py", "--swe-config", short] if gold else ["-m", "scripts.evaluate"]
    names += [] if gold else ["--scaffold", short]
    env = os.environ | {"SWELAB_BACKEND": backend.name, "PYTHON_BIN": sys.executable}
    done = run_python(*names, *given, env=env)
    service.close()
    assert done.returncode == 0, done.stderr
    told = read_json(folder / "out/summary.json")
    assert (told["resolved"], told["total"], told["errors"]) == (3 if gold else 0, 3, 0), done.stdout
    assert told["statuses"] == ({"resolved": 3} if gold else {"empty_patch": 3})
