"""A real training on verl, on a CPU: killed, it goes on and asks for nothing twice; what it leaves is ours.

Also on two ranks, with rollouts ahead of the weights, of a Qwen3, and with one of its processes killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from swelab.models.serving.server import serve
from swelab.records import read_json, read_jsonl
from swelab.rl.engines.verl_export import newest_step
from swelab.rl.engines.verl_machine import ROOT
from tests.at_hand import needs_verl
from tests.contract.small_rl import command, make_place
from tests.toy_checkpoint import CONTEXT

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone, needs_verl]
FORMS = ("two ranks", "ahead", "qwen3")
RECIPE = """
start: model:toy
subset: some
scaffold: demo
engine: verl
rollouts: {prompts: 2, samples: 2, at_once: 4, max_tokens: 24, context_length: 512, max_total_tokens: 4096}
method: {keep_constant: true, entropy: 0.01}
train: {steps: 2, lr: 1.0e-3, threads: 1, batch_tokens: 2048, device: cpu}
validation: {subset: held, every: 2}
verl: {gpus: 1, rollout: {loops: 1}}
"""
AHEAD = (
    ("gpus: 1, rollout: {loops: 1}", "gpus: 1, mode: separate_async, rollout: {loops: 1, nodes: 1}"),
    ("at_once: 4,", "at_once: 4, ahead: 1, update: in_turns,"),
)
START_SECONDS = 1200
LOSS_SECONDS = 300
VICTIMS = {"a trainer": "ray::WorkerDict", "Ray's node": "raylet/raylet"}
"""Processes to kill, and words in their command lines."""


@pytest.fixture(scope="module", autouse=True)
def _as_others():
    """Ray lowers the priority of its processes by 15. Beside other tests verl would then hardly run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all files that a training reads."""
    return make_place(tmp_path_factory.mktemp("verl"), RECIPE)


def journals(place, step=""):
    """Returns the journals of a step's rollouts, or of all rollouts."""
    return sorted(place.glob(f"work/*/journals/{step or '*'}/*.jsonl"))


def train(place, **options):
    return subprocess.run(command(place), cwd=ROOT, capture_output=True, text=True, timeout=1200, **options)


def processes_of(work):
    """Returns the pids of the processes that a training in that folder started, found by their variables."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if str(work).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def process_named(work, words):
    """Returns the pid of a training's process with these words in its command line."""
    lines = {pid: Path("/proc", pid, "cmdline").read_bytes().decode() for pid in processes_of(work)}
    return int(next(pid for pid, line in lines.items() if words in line))


def kill_in_step_two(place, victim=""):
    """Starts the training. Kills it, or one of its processes, during a rollout of its second step.

    Returns the exit status.
    """
    with open(place / "killed.log", "wb") as log:
        run = subprocess.Popen(command(place), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        try:
            while not any(path.stat().st_size for path in journals(place, "00001")):
                assert run.poll() is None and time.monotonic() < deadline, (place / "killed.log").read_text()
                time.sleep(0.05)
            if victim:
                os.kill(process_named(place / "work", victim), signal.SIGKILL)
                return run.wait(LOSS_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return run.returncode


def test_a_killed_training_goes_on_and_asks_for_nothing_twice(place):
    assert kill_in_step_two(place) == -signal.SIGKILL
    (work,) = (place / "work").iterdir()
    deadline = time.monotonic() + 20
    while processes_of(work) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not processes_of(work), "processes of verl outlive the training"
    goes_on(place)
    assert len(list((work / "verl/figures").iterdir())) == 2


def goes_on(place):
    """Asserts that the same command ends well and samples nothing again."""
    held = {path: path.read_bytes() for path in journals(place)}
    done = train(place)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(journals(place)) == 8
    for path in journals(place):
        text = path.read_bytes()
        keys = [json.loads(line)["key"] for line in text.splitlines()]
        assert len(keys) == len(set(keys)), "something was sampled twice"
        assert text.startswith(held.get(path, b"")), "what was sampled before the kill was not kept"


@pytest.mark.parametrize("victim", VICTIMS)
def test_one_lost_process_ends_it_in_one_line_and_it_goes_on(place, tmp_path, victim):
    another(place, tmp_path)
    assert kill_in_step_two(tmp_path, VICTIMS[victim]) == 2
    last = (tmp_path / "killed.log").read_text().splitlines()[-1]
    assert last.startswith("error: verl ended with ") and len(last) < 500
    goes_on(tmp_path)


def test_it_saves_before_its_job_ends_whatever_the_recipe_says(place, tmp_path, monkeypatch):
    """The job is a variable, and squeue is a script that says when the job ends. Everything else is real."""
    another(place, tmp_path, RECIPE.replace("verl: {", "verl: {save: 100, "))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\necho $(($(date +%s) + 30))\n")
    (tmp_path / "bin/squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert kill_in_step_two(tmp_path) == -signal.SIGKILL
    (work,) = (tmp_path / "work").iterdir()
    assert newest_step(work / "verl") == 1
    assert "step 1: saved, as the SLURM job is about to end" in (work / "verl.log").read_text()
    goes_on(tmp_path)


def test_its_record_is_that_of_the_embedded_engine(place):
    first, *rows = read_jsonl(place / "out/metrics.jsonl")
    assert first["step"] == 0 and first["validation/tasks"] == 1
    assert [row["step"] for row in rows] == [1, 2] and rows[-1]["validation/tasks"] == 1
    for row in rows:
        assert row["rollouts"] == 4 and row["groups_trained"] == 2 and row["train/tokens"] > 0
        assert row["staleness"] == 0.0 and row["rate/lost"] == 0.0
        assert row["verl/training/rollout_probs_diff_max"] < 1e-3, "engine and trainer differ"
        assert row["train/entropy"] > 0 and row["train/grad_norm"] > 0 and row["agent/turns_mean"] >= 1
    lines = list(read_jsonl(place / "out/validation.jsonl"))
    assert [line["step"] for line in lines] == [0, 2]
    assert len(list((place / "out/rollouts").iterdir())) == 8


def test_its_checkpoint_is_one_of_ours(place, tmp_path):
    made, start = place / "out/checkpoint", place / "toy"
    weights, before = (load_file(folder / "model.safetensors") for folder in (made, start))
    assert weights.keys() == before.keys() and {value.dtype for value in weights.values()} == {torch.float32}
    assert not all(torch.equal(value, before[name]) for name, value in weights.items())
    assert read_json(made / "config.json")["torch_dtype"] == "float32"
    names = {path.name for path in start.iterdir()}
    assert {path.name for path in made.iterdir()} == names
    sizes = {"context_length": CONTEXT, "max_total_tokens": 2 * CONTEXT, "max_running_requests": 1}
    with serve(made, name="policy", log=tmp_path / "log", **sizes) as endpoint:
        assert endpoint.alive()


def another(place, folder, text=RECIPE):
    """Makes `folder` a copy with the same files and another recipe."""
    for path in place.iterdir():
        if path.name not in ("work", "out", "small.yaml"):
            (folder / path.name).symlink_to(path)
    (folder / "small.yaml").write_text(text)


def recipe_of(form):
    if form != "ahead":
        return RECIPE.replace("gpus: 1", "gpus: 2") if form == "two ranks" else RECIPE
    text = RECIPE
    for old, new in AHEAD:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_end_well_too(place, tmp_path, form):
    another(place, tmp_path, recipe_of(form))
    if form == "qwen3":
        from tests.contract.test_qwen3 import make_qwen3

        (tmp_path / "toy").unlink()
        make_qwen3(tmp_path / "toy")
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = list(read_jsonl(tmp_path / "out/metrics.jsonl"))
    assert [row["step"] for row in rows] == [0, 1, 2]
    fresh = [row for row in rows[1:] if not row["staleness"]]
    assert fresh and all(row["verl/training/rollout_probs_diff_max"] < 1e-3 for row in fresh)
    assert (rows[-1]["staleness"] == 1) == (form == "ahead")
    weights = load_file(Path(tmp_path) / "out/checkpoint/model.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values())
