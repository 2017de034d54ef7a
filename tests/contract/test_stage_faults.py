"""Faults in every stage: a full disk, a read-only results folder, a lost journal line, edited files.

Each fault gives an exit code and one clear line, and leaves nothing half-written. The same command then
finishes with the same results. The check names each edited file.
"""

import json
import os
import shutil
import subprocess

import pytest

from swelab.jobs.journal import read_journal
from swelab.records import read_jsonl, write_jsonl
from swelab.scores.recompute import verify
from tests.contract.small_run import STEPS, run_all, run_step, write_recipes

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root"),
]
SCORE = "results/verified_score.json"
VOLATILE = ("wall_seconds", "seconds", "tokens_per_second", "code", "packages", "key", "run", "journalled")
UNEQUAL = (".svg", ".html")
"""Suffixes of files that contain the times of a run."""


STAGES = list({step.script: step for step in STEPS}.values())
"""One step of each script."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The experiment, undisturbed."""
    folder = tmp_path_factory.mktemp("whole") / "clone"
    folder.mkdir()
    write_recipes(folder)
    run_all(folder)
    return folder


@pytest.fixture
def mounted(tmp_path):
    """Mounts a file system and unmounts it at the end."""
    places = []

    def mount(*words, at):
        subprocess.run(["mount", *words, at], check=True)
        places.append(at)

    yield mount
    for place in reversed(places):
        subprocess.run(["umount", "-l", place], check=False)


def before(whole, step, folder):
    """Returns a copy of the experiment before `step`: without the step's outputs and progress."""
    shutil.copytree(whole, folder)
    for path in made_by(folder, step):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if step.journal:
        (folder / step.journal).unlink()
    shutil.rmtree(folder / f"results/progress/{step.script}", ignore_errors=True)
    return folder


def made_by(folder, step):
    """Returns all files and folders that a step makes."""
    named = [folder / path for path in step.outputs]
    beside = [path.with_name(f"{path.stem}.manifest.json") for path in named]
    folders = [path.with_suffix("") for path in named if path.with_suffix("").is_dir()]
    return [*named, *beside, *folders]


def plain(value):
    """Returns a record without times and places of a run."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in VOLATILE}
    return [plain(each) for each in value] if isinstance(value, list) else value


def content(path):
    """Returns a file's content without the parts that differ between two runs."""
    if path.suffix == ".json":
        return plain(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [plain(json.loads(line)) for line in path.read_text().splitlines()]
    return path.read_bytes()


def same(folder, whole, step):
    for name in step.outputs:
        if not name.endswith((*UNEQUAL, "manifest.json", "drill.json", "verified_score.json")):
            assert content(folder / name) == content(whole / name), name


def one_line(done, *words):
    assert done.returncode not in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert any(word in lines[0] for word in words), lines[0]


def nothing_half_written(folder, step):
    for path in (folder / name for name in step.outputs):
        if path.exists():
            content(path)  # complete, or missing
    assert not list((folder / "results").rglob("*.part"))


@pytest.mark.parametrize("step", STAGES, ids=lambda step: step.name)
def test_results_that_are_read_only_then_full_then_heal(whole, tmp_path, mounted, step):
    folder = before(whole, step, tmp_path / "clone")
    results, kept = folder / "results", tmp_path / "kept"
    results.rename(kept)
    results.mkdir()
    mounted("-t", "tmpfs", "-o", "size=256m", "none", at=results)
    shutil.copytree(kept, results, dirs_exist_ok=True)
    subprocess.run(["mount", "-o", "remount,ro", results], check=True)
    one_line(run_step(folder, step), "Read-only file system")
    nothing_half_written(folder, step)
    subprocess.run(["mount", "-o", "remount,rw", results], check=True)
    filler = results / "filler"
    with open(filler, "wb") as stream:  # up to the last byte
        try:
            while True:
                os.write(stream.fileno(), bytes(1 << 16))
        except OSError:
            pass
    one_line(run_step(folder, step), "disk full", "No space left", "to fix before")
    nothing_half_written(folder, step)
    filler.unlink()
    done = run_step(folder, step)
    assert done.returncode == 0, done.stderr[-3000:]
    same(folder, whole, step)


@pytest.mark.parametrize("step", [step for step in STAGES if step.journal], ids=lambda step: step.name)
def test_a_damaged_journal_line_is_done_again_and_nothing_else(whole, tmp_path, step):
    folder = tmp_path / "clone"
    shutil.copytree(whole, folder)
    journal = folder / step.journal
    lines = journal.read_bytes().splitlines(keepends=True)
    lost = len(lines) // 2
    half = lines[lost][: len(lines[lost]) // 2] + b"\n"
    journal.write_bytes(b"".join([*lines[:lost], half, *lines[lost + 1 :]]))
    done = run_step(folder, step)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"1 damaged lines (the first is line {lost + 1}) count as absent" in done.stderr
    same(folder, whole, step)
    again = journal.read_bytes().splitlines(keepends=True)
    assert len(again) == len(lines) + 1, "more than the lost line was done again"
    assert {row["key"] for row in read_journal(journal)} == {json.loads(line)["key"] for line in lines}


def test_a_grade_and_weights_by_hand_are_named(whole, tmp_path, monkeypatch):
    folder = shutil.copytree(whole, tmp_path / "moved")
    monkeypatch.chdir(folder)
    assert verify(folder / SCORE)[0] == []
    grades = folder / "results/grades/weak/heldout/000of001.jsonl"
    rows = list(read_jsonl(grades))
    row = next(row for row in rows if not row["resolved"])
    was = row["status"]
    row |= {"status": "resolved", "resolved": True}
    write_jsonl(grades, rows)
    told = [f"{each.kind} {each.path}: {each.what}" for each in verify(folder / SCORE)[0]]
    name, name_of_journal = row["instance_id"], "results/progress/grade/weak/heldout/000of001.jsonl"
    path = "results/grades/weak/heldout/000of001.jsonl"
    assert f"edited {path}: the row of {name} is not that of {name_of_journal}" in told
    assert any(f"{name}: resolved, and its kept run judged again is {was}" in line for line in told), told
    weights = folder / "results/sft/small/checkpoint/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    told = [f"{each.kind} {each.path}" for each in verify(folder / SCORE)[0]]
    assert "edited results/sft/small/checkpoint/model.safetensors" in told
