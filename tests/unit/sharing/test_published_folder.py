"""scripts.publish on a finished experiment: the content of each folder, and what no folder may contain."""

import json
import os
import shutil
import subprocess

import pyarrow.parquet
import pytest
import yaml

from swelab.records import InputError, read_json
from swelab.scores.report.trajectories import text_of_line
from swelab.sharing import hub_upload
from swelab.sharing.published_folder import CODE, record_path, write_published
from tests.conftest import ROOT, run_python
from tests.unit import finished_experiment
from tests.unit.finished_experiment import build, make_task

KEY = "made-up-" + "k" * 40
SCORE = "results/verified_score.json"
HIDDEN = "forge-heldout"
PAGE = "results/experiments/demo/report.html"
HIDDEN_TASKS = f"results/tasks/{HIDDEN}.json"


def unlike_others(subset, number, rng):
    """Returns an invented task whose patch is in no other set. Ids of a drill look like SWE-bench's."""
    task = make_task(subset, number, rng)
    name = {"instance_id": f"made__up-{number}"} if subset == "drill-heldout" else {}
    return task | {"patch": f"{task['patch']}+# {subset} {number}\n"} | name


def finish(root):
    """Makes a finished experiment with its recipes. One of the scored sets is hidden."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(finished_experiment, "make_task", unlike_others)
        build(root, train=40, heldout=12)
    for kind in ("subsets", "repos", "scaffolds"):
        shutil.copytree(ROOT / "configs" / kind, root / "configs" / kind)
    recipe = root / f"configs/subsets/{HIDDEN}.yaml"
    recipe.write_text(recipe.read_text() + "tests: hidden\n")
    (root / "scripts").mkdir()
    (root / "scripts/serve.sh").write_text("#!/bin/bash\n")
    (root / "scripts/served.sh").symlink_to("serve.sh")
    (root / "scripts/elsewhere.sh").symlink_to(ROOT / "swe-rl/before.sh")
    for name in ("results/sft/demo/preflight.json", record_path(SCORE), record_path(HIDDEN_TASKS)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    (root / ".snakemake/incomplete").mkdir()
    (root / "results/experiments/demo").mkdir(parents=True, exist_ok=True)
    shutil.copy(root / SCORE, root / "results/experiments/demo/verified_score.json")
    folders = ("--results", root / "results", "--configs", root / "configs", "--output", root / PAGE)
    done = run_python("-m", "scripts.report", "--experiment", "demo", "--score", root / SCORE, *folders)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """(clone, the published folders, the missing files that were reported)."""
    folder = tmp_path_factory.mktemp("share")
    root, here = finish(folder / "clone"), os.getcwd()
    try:
        told = write_published(root / SCORE, folder / "out")
    finally:
        os.chdir(here)
    return root, folder / "out", told


def rows(path):
    return pyarrow.parquet.read_table(path).to_pylist()


def unpacked(out, to):
    shutil.unpack_archive(out / "swelab-demo.tar.gz", to)
    return to / "swelab-demo"


def everything(folder):
    """Returns the content of all files in a folder as text, with Parquet files as their rows."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield path, json.dumps(rows(path))
        elif path.is_file():
            text = path.read_bytes().decode(errors="replace")
            yield path, "\n".join(map(text_of_line, text.split("\n"))) if path.suffix == ".html" else text


def test_the_data_set_has_tasks_attempts_and_rows(published):
    root, out, _ = published
    card = (out / "dataset/README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    files = {file["path"] for config in front["configs"] for file in config["data_files"]}
    assert files == {str(path.relative_to(out / "dataset")) for path in (out / "dataset").rglob("*.parquet")}
    for path in files:
        name, split = path.removesuffix(".parquet").split("/")
        assert f"| {name} | {split} | {len(rows(out / 'dataset' / path)):,} |" in card
    train = rows(out / "dataset/trajectories/train.parquet")
    assert len(train) == 80 and {row["subset"] for row in train} == {"drill-train", "forge-train"}
    graded = [row for name in ("drill-train", "forge-train")
              for path in (root / "results/grades/scripted" / name).glob("0*.jsonl")
              for row in map(json.loads, path.read_text().splitlines())]  # fmt: skip
    assert sum(row["resolved"] for row in train) == sum(row["resolved"] for row in graded) > 0
    assert [turn["role"] for turn in train[0]["messages"]][:2] == ["system", "user"]
    long = "too_long: more tokens than the recipe allows"
    assert f"| dataset, build_sft_dataset | {long} | 7 |" in card and "| inflection 0.5.1 | MIT |" in card
    broken = "broken: the right repair is not judged as resolved, or no repair is"
    assert f"| forge-train, validation | {broken} | 60 |" in card and "| no test fails | 41 |" in card
    assert "are in `swelab-demo.tar.gz`, in `results/repos`" in card


def test_scored_tasks_have_no_answers_and_hidden_ones_no_attempts(published):
    _, out, _ = published
    heldout = rows(out / "dataset/tasks/heldout.parquet")
    assert {row["subset"] for row in heldout} == {"drill-heldout", HIDDEN}
    assert "patch" not in heldout[0] and "FAIL_TO_PASS" not in heldout[0]
    assert rows(out / "dataset/tasks/train.parquet")[0]["patch"].startswith("diff")
    evaluated = rows(out / "dataset/trajectories/evaluation.parquet")
    assert {row["subset"] for row in evaluated} == {"drill-heldout"}


def test_the_model_and_the_submission(published):
    root, out, told = published
    weights = root / "results/sft/demo/checkpoint/model.safetensors"
    assert (out / "model/model.safetensors").read_bytes() == weights.read_bytes()
    card, score = (out / "model/README.md").read_text(), read_json(root / SCORE)["policies"]["sft"]
    assert f"| drill-heldout | {score['resolved']} of 12 | {score['resolve_rate']:.1%} |" in card
    assert "--scaffold demo --output-dir OUT" in card and "`sft` minus `base` on drill-heldout: " in card
    assert "--config experiment=demo" in card and yaml.safe_load(card.split("---")[1])["license"] == "mit"
    (submission,) = (out / "leaderboard/drill-heldout").iterdir()
    resolved = read_json(submission / "results/results.json")["resolved"]
    assert len(resolved) == score["resolved"]
    assert len((submission / "all_preds.jsonl").read_text().splitlines()) == 12
    readme = (submission / "README.md").read_text()
    assert "12 statements name a test to repair, such as that of made__up-" in readme
    assert "| tasks | 12 of `drill-heldout`; 12 tasks are no whole split" in readme
    assert told == [f"leaderboard: {HIDDEN} is hidden"] and not (out / "leaderboard" / HIDDEN).exists()


def test_the_archive_verifies_elsewhere_and_keeps_times(published, tmp_path):
    root, out, _ = published
    there = unpacked(out, tmp_path)
    done = run_python("-m", "scripts.verify", there / SCORE)
    assert done.returncode == 0 and "all hold" in done.stdout, done.stdout + done.stderr
    withheld = read_json(there / "results/withheld.json")
    assert f"withheld {len(withheld)} files" in done.stdout
    assert f"results/tasks/{HIDDEN}.json" in withheld and all(HIDDEN in path for path in withheld)
    for path in (there / "results/grades").rglob("*.json*"):
        before = (root / path.relative_to(there)).stat().st_mtime_ns
        assert abs(path.stat().st_mtime_ns - before) < 1000
    assert os.readlink(there / "scripts/served.sh") == "serve.sh"
    assert not (there / "scripts/elsewhere.sh").is_symlink(), "a link that leads elsewhere comes as its file"
    grades = there / "results/grades/sft/forge-heldout/report.json"
    grades.write_text(grades.read_text() + "\n")
    done = run_python("-m", "scripts.verify", there / SCORE)
    assert done.returncode == 1 and "edited" in done.stdout


def test_the_archive_has_what_one_more_task_needs(published, tmp_path):
    _, out, _ = published
    there = unpacked(out, tmp_path)
    for name in ("results/sft/demo/preflight.json", record_path(SCORE), record_path(HIDDEN_TASKS)):
        assert (there / name).read_text() == "{}", name
    assert (there / ".snakemake/incomplete").is_dir() and not (there / HIDDEN_TASKS).exists()
    shard = "sft/drill-heldout/000of002.jsonl"
    made = there / "results/rollouts" / shard
    assert (there / "results/progress/rollout" / shard).read_bytes() == made.read_bytes() != b""
    assert not [path for path in (there / "results/progress").rglob("*") if HIDDEN in path.parts]


def test_the_record_of_a_long_path_is_in_folders():
    (*folders, last) = record_path("a" * 400).removeprefix(".snakemake/metadata/").split("/")
    assert len(folders) == 2 and all(each.startswith("@") and len(each) == 255 for each in folders)
    assert not last.startswith("@")


def test_a_file_that_was_withheld_is_no_excuse_for_another(published, tmp_path):
    _, out, _ = published
    there = unpacked(out, tmp_path)
    (there / "results/tasks/drill-heldout.json").unlink()
    path = there / "results/withheld.json"
    told = read_json(path)
    path.write_text(json.dumps(told | {f"results/tasks/{HIDDEN}.json": "0" * 64}))
    done = run_python("-m", "scripts.verify", there / SCORE)
    assert done.returncode == 1 and "missing  results/tasks/drill-heldout.json" in done.stdout
    assert f"edited   results/tasks/{HIDDEN}.json" in done.stdout


def test_no_gold_patch_of_a_hidden_set_and_no_path_is_anywhere(published, tmp_path):
    root, out, _ = published
    gold = [task["patch"] for task in read_json(root / f"results/tasks/{HIDDEN}.json")]
    answers = [form for patch in gold for form in (patch, json.dumps(patch)[1:-1])]
    there = unpacked(out, tmp_path)
    pages = dict(everything((root / PAGE).parent))[root / PAGE], dict(everything(there))[there / PAGE]
    assert [any(answer in page for answer in answers) for page in pages] == [True, False]
    assert all('"observations"' in page for page in pages), "attempts on other sets are shown"
    looked = 0
    for path, text in [*everything(out), *everything(tmp_path)]:
        looked += 1
        assert not any(answer in text for answer in answers), path
        assert str(root) not in text, path
    assert answers and looked > 60


def test_a_key_or_a_path_is_taken_out_of_the_data_and_refused_in_the_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    monkeypatch.setattr(finished_experiment, "HOSTILE", f"{KEY} in {tmp_path / 'clone'}")
    root, out = finish(tmp_path / "clone"), tmp_path / "out"
    with pytest.raises(InputError, match="drill-heldout/000of001.jsonl, line 1, holds a (key|path)"):
        write_published(root / SCORE, out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["clone"]
    monkeypatch.setattr("swelab.sharing.published_folder.write_archive", lambda *_: None)
    write_published(root / SCORE, out)
    texts = dict(everything(out))
    assert not [path for path, text in texts.items() if KEY in text or str(root) in text]
    card = texts[out / "dataset/README.md"]
    assert "times `[key]`" in card and "times `[path]`" in card


def test_what_does_not_hold_or_is_there_already_is_refused(published, tmp_path):
    _, out, _ = published
    there = unpacked(out, tmp_path)
    done = run_python("-m", "scripts.publish", there / SCORE, "--to", out)
    assert done.returncode == 2 and "folder exists already" in done.stderr and "Traceback" not in done.stderr
    (there / "results/sft/demo/checkpoint/model.safetensors").write_bytes(b"other")
    done = run_python("-m", "scripts.publish", there / SCORE, "--to", tmp_path / "new")
    *progress, fault = done.stderr.splitlines()
    assert done.returncode == 2 and fault.startswith("error: ") and "does not hold" in fault
    assert all(line.startswith("verify: ") for line in progress)
    assert not (tmp_path / "new").exists()


def test_a_clone_without_git_hands_on_the_same_code():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not listed:
        pytest.skip("this is no clone of git")
    tops = {name.partition("/")[0] for name in listed}
    assert {name for name in tops if name[0] != "."} - {"results"} == set(CODE)


def test_nothing_is_pushed_without_a_token(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(InputError, match="no token"):
        hub_upload.check_push("me/mine")
    monkeypatch.setenv("HF_TOKEN", "hf_made_up")
    with pytest.raises(InputError, match="<owner>/<name>"):
        hub_upload.check_push("mine")
    hub_upload.check_push("me/mine")
