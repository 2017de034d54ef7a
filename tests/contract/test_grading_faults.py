"""Grading when tests, sandboxes, graders or clocks fail."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from swelab.grading import versions
from swelab.grading.grading_stage import grade_shard
from swelab.grading.harness.grade import grade
from swelab.grading.run_cache import Archive
from swelab.records import read_jsonl, write_json, write_jsonl
from swelab.records.attempt_records import Prediction
from swelab.rollouts.predictions import load_predictions
from swelab.sandbox import Limits, open_backend
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import git
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, processes_with, program, token, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker")  # on a pool's host the sandbox belongs to docker
FEW = range(30, 60, 8)
"""Numbers of inodes at which a sandbox, the patch, the protected files or the tests find no free inode."""
SUITE = "python -m pytest -rA --tb=no -q -p no:cacheprovider"


def named(task, count, **changes):
    return [task | {"instance_id": f"o__r.00000000.x__{n:08d}"} | changes for n in range(count)]


def predicted(tasks, patch):
    names = [row["instance_id"] for row in tasks]
    return {name: Prediction(instance_id=name, model_name_or_path="p", model_patch=patch) for name in names}


def graded(tasks, patch, repos_dir, tmp_path, **options):
    arguments = {"policy": "p", "subset": "s", "shard": "000of001", "workers": 2, "repos_dir": repos_dir}
    return list(
        grade_shard(tasks, predicted(tasks, patch), progress=tmp_path / "j.jsonl", **{**arguments, **options})
    )


@pytest.mark.full
def test_a_test_that_never_ends(task, store, place):
    verdict = grade(task | {"test_cmd": f"{SUITE}; sleep 600", "test_timeout": 3}, gold_patch(store, task),
                    store, place, Limits())  # fmt: skip
    assert verdict["status"] == "timeout" and verdict["seconds"] < 30


def test_a_test_that_eats_all_memory(task, store, place):
    eat = """python -c 'x = []
while True: x.append(bytearray(1 << 24))'"""
    verdict = grade(task | {"test_cmd": f"{eat} && {SUITE}"}, gold_patch(store, task), store, place,
                    Limits(memory_bytes=256 << 20))  # fmt: skip
    assert verdict["status"] == "unresolved"
    assert grade(task, gold_patch(store, task), store, place, Limits())["status"] == "resolved"


@pytest.mark.full
def test_daemons_left_by_the_tests_are_ended(task, store, place):
    sleep = token()
    left = task | {"test_cmd": f"(setsid nohup sleep {sleep} >/dev/null 2>&1 &); {SUITE}"}
    assert grade(left, gold_patch(store, task), store, place, Limits())["status"] == "resolved"
    assert until(lambda: not [pid for pid in processes_with(sleep) if program(pid) == "sleep"])


def test_half_a_character_costs_one_verdict(task, repos_dir, store, tmp_path, place):
    """Half a character is in a patch, or in the policy's name.

    The other predictions are graded, and all are written.
    """
    tasks = named(task, 3)
    gold = gold_patch(store, task)
    rows = list(predicted(tasks, gold).values())
    rows[0] = rows[0] | {"model_patch": gold + "\ud800"}
    rows[1] = rows[1] | {"model_name_or_path": "p\ud800"}
    write_jsonl(tmp_path / "preds.jsonl", rows)
    given = {"policy": "p", "subset": "s", "shard": "000of001", "workers": 1, "repos_dir": repos_dir}
    given |= {"progress": tmp_path / "j.jsonl", "runs_dir": tmp_path / "runs"}
    found = list(grade_shard(tasks, load_predictions(tmp_path / "preds.jsonl"), **given))
    assert [row.status for row in found] == ["apply_failed", "resolved", "resolved"]
    made = Archive(tmp_path / "runs").get(found[1].run).made
    assert made["backend"] == open_backend().name and made["limits"] == asdict(Limits())
    assert made["run"] == versions.RUN and made["place"] == store.digest(task)
    write_jsonl(tmp_path / "grades.jsonl", found)
    assert list(read_jsonl(tmp_path / "grades.jsonl")) == found


class Witness:
    """A place that records which sandboxes it made."""

    def __init__(self, place):
        self.place, self.made = place, []
        self.backend = place.backend
        self.name = place.backend.name

    def start(self, tree, **options):
        self.made.append(self.place.start(tree, **options))
        return self.made[-1]


@pytest.mark.full
def test_a_sandbox_ended_from_outside_is_tried_again(task, repos_dir, store, tmp_path, place, monkeypatch):
    sleep = token()
    witness = Witness(place)
    monkeypatch.setattr("swelab.grading.grading_stage.open_backend", lambda: witness)
    monkeypatch.setattr("swelab.jobs.thread_pool.RETRY_SECONDS", (0.1,))
    slow = named(task, 1, test_cmd=f"if [ -d tests ]; then sleep {sleep}; fi; {SUITE}", test_timeout=60)
    rows = []
    runner = threading.Thread(
        target=lambda: rows.extend(graded(slow, gold_patch(store, task), repos_dir, tmp_path, max_lost=1))
    )
    runner.start()
    for number in (1, 2):
        asleep = lambda: any(program(pid) == "sleep" for pid in processes_with(sleep))  # noqa: E731
        assert until(lambda: len(witness.made) == number and asleep())  # noqa: B023
        place.murder(witness.made[-1], sleep)
    runner.join(PATIENCE)
    assert [row["status"] for row in rows] == ["infra_error"] and "outside" in rows[0]["reason"]
    quick = named(task, 1, test_cmd=SUITE)
    assert graded(quick, gold_patch(store, task), repos_dir, tmp_path)[0]["status"] == "resolved"


@pytest.mark.full
def test_an_instance_whose_sandbox_was_ended_once_is_graded(
    task, repos_dir, store, tmp_path, place, monkeypatch
):
    nap = f"2.{token().replace('.', '')}"
    witness, rows = Witness(place), []
    monkeypatch.setattr("swelab.grading.grading_stage.open_backend", lambda: witness)
    monkeypatch.setattr("swelab.jobs.thread_pool.RETRY_SECONDS", (0.1,))
    slow = named(task, 1, test_cmd=f"sleep {nap}; {SUITE}")
    runner = threading.Thread(
        target=lambda: rows.extend(graded(slow, gold_patch(store, task), repos_dir, tmp_path))
    )
    runner.start()
    assert until(lambda: any(program(pid) == "sleep" for pid in processes_with(nap)))
    place.murder(witness.made[0], nap)
    runner.join(PATIENCE)
    assert [row["status"] for row in rows] == ["resolved"] and len(witness.made) == 2


class Starved:
    """A place on a host without free memory."""

    name = "starved"

    def start(self, tree, **options):
        raise MemoryError


def test_a_host_without_memory_is_no_verdict(task, store, alone):
    verdict = grade(task, gold_patch(store, task), store, Starved(), Limits())
    assert verdict["status"] == "infra_error" and "MemoryError" in verdict["reason"]


def blown_up(task, store, tree, name, size):
    """Returns a small patch that creates a large file."""
    store.checkout(task, tree)
    (tree / name).write_bytes(bytes(size))
    git(tree, "add", name)
    patch = git(tree, "diff", "--cached", "--binary").stdout.decode()
    assert len(patch) < 1 << 20
    return patch


@pytest.mark.parametrize("megabytes", [30, 39, 41, 60])
def test_a_patch_that_fills_the_sandbox_is_unresolved(task, store, place, tmp_path, megabytes):
    patch = blown_up(task, store, tmp_path / "tree", "zeros.bin", megabytes << 20)
    verdict = grade(task, patch, store, place, Limits(disk_bytes=40 << 20))
    assert verdict["status"] in ("unresolved", "apply_failed"), verdict


@pytest.mark.full
@pytest.mark.parametrize("files", [2400, 2700, 2780, 3500])
def test_a_patch_that_takes_all_inodes_is_unresolved(task, store, place, tmp_path, files):
    """With few files the tests find no inode, with more the protected files, with most the patch itself."""
    empty = "diff --git a/m/{0} b/m/{0}\nnew file mode 100644\nindex 0000000..e69de29\n"
    patch = "".join(empty.format(number) for number in range(files))
    verdict = grade(task, patch, store, place, Limits(disk_bytes=40 << 20))
    assert verdict["status"] in ("unresolved", "apply_failed"), verdict


GREEDY = """diff --git a/calc/core.py b/calc/core.py
--- a/calc/core.py
+++ b/calc/core.py
@@ -1,2 +1,10 @@
 def add(a, b):
-    return a - b
+    import os, time
+    for _ in range(3):
+        os.fork()
+    name, number, end = f"/tmp/{os.getpid()}-", 0, time.time() + 2
+    while time.time() < end:
+        number += 1
+        os.close(os.open(name + str(number), os.O_CREAT | os.O_WRONLY))
+    time.sleep(2)
+    return a + b
"""


@pytest.mark.full
def test_patches_that_take_inodes_leave_others_their_verdicts(task, repos_dir, store, tmp_path, alone):
    """Twelve gold patches run beside two attacks.

    Their sandboxes' folders are siblings. No verdict is lost.
    """
    tasks = named(task, 14)
    attacks = {tasks[number]["instance_id"] for number in (0, 2)}
    patches = predicted(tasks, gold_patch(store, task))
    for name in attacks:
        patches[name] |= {"model_patch": GREEDY}
    given = {"policy": "p", "subset": "s", "shard": "000of001", "workers": 4, "repos_dir": repos_dir}
    given |= {"progress": tmp_path / "j.jsonl", "runs_dir": tmp_path / "runs"}
    found = {row.instance_id: row.status for row in grade_shard(tasks, patches, **given)}
    assert [found.pop(name) in ("suspect", "unresolved", "timeout") for name in attacks] == [True, True], (
        found
    )
    assert list(found.values()) == ["resolved"] * 12


@pytest.mark.full
def test_a_patch_with_more_code_than_can_be_read_is_unresolved(task, store, place, tmp_path):
    patch = blown_up(task, store, tmp_path / "tree", "zeros.py", 80 << 20)
    verdict = grade(task, patch, store, place, Limits())
    assert verdict["status"] == "unresolved" and "too much to be read" in verdict["reason"], verdict


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("full, room", [("checkouts", "size=4k"), ("checkouts", "size=64k"),
                                        ("checkouts", "size=72k"), ("sandboxes", "size=160k"),
                                        ("sandboxes", "size=220k"), ("checkouts", "nr_inodes=12"),
                                        *(("sandboxes", f"nr_inodes={count}") for count in FEW)])  # fmt: skip
def test_a_full_disk_of_the_host_is_no_verdict(
    task, repos_dir, store, tmp_path, backend, monkeypatch, full, room
):
    gold = gold_patch(store, task)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", room, "tmpfs", small], check=True)
    try:
        if full == "sandboxes":
            monkeypatch.setenv("SWELAB_SCRATCH", str(small))
        place = open_backend("bubblewrap") if full == "sandboxes" else backend
        cramped = RepoStore(repos_dir, small / "trees") if full == "checkouts" else store
        verdict = grade(task, gold, cramped, place, Limits())
        assert verdict["status"] == "infra_error", verdict
        assert "No space left" in verdict["reason"] or "Out of diskspace" in verdict["reason"], verdict
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=9999", small], check=True)
        assert grade(task, gold, cramped, place, Limits())["status"] == "resolved"
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def command(folder, repos_dir, name="grades"):
    words = [
        "--tasks",
        folder / "tasks.json",
        "--predictions",
        folder / "preds.json",
        "--repos-dir",
        repos_dir,
    ]
    words += ["--policy", "p", "--subset", "s", "--progress", folder / "j.jsonl", "--runs", folder / "runs"]
    return [sys.executable, "-m", "scripts.grade", *map(str, [*words, "--output", folder / f"{name}.jsonl"])]


@pytest.fixture
def work(task, store, tmp_path, backend):
    """Eight slow tasks and their predictions, as files."""
    tasks = named(task, 8, test_cmd=f"sleep 0.7; {SUITE}")
    write_json(tmp_path / "tasks.json", tasks)
    write_json(tmp_path / "preds.json", predicted(tasks, gold_patch(store, task)))
    return tmp_path


@pytest.fixture
def alone(kind):
    """For tests of the grader's own process, the same on every backend: they run on the first backend."""
    return kind


@pytest.mark.full
@pytest.mark.parametrize("jumps", [("+7d", "-7d"), ("-7d", "+7d")])
def test_a_clock_that_jumps(work, repos_dir, kind, place, jumps):
    """The time of day jumps a week forward and back under the grader. The monotonic clock goes on."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("no libfaketime (make test-full installs it)")
    clock = work / "clock"
    clock.write_text("+0\n")
    faked = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "SWELAB_BACKEND": place.backend.name}
    run = subprocess.Popen(
        command(work, repos_dir), cwd=ROOT, env={**os.environ, **faked}, stderr=subprocess.PIPE, text=True
    )
    for done, jump in zip((1, 4), jumps):
        assert until(lambda: journalled(work) >= done)  # noqa: B023
        clock.write_text(f"{jump}\n")
    _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    rows = list(read_jsonl(work / "grades.jsonl"))
    assert [row["status"] for row in rows] == ["resolved"] * 8
    assert all(0.7 <= row["seconds"] < 60 for row in rows)
    times = [row["journalled"] for row in read_jsonl(work / "j.jsonl")]
    assert max(times) - min(times) > 13 * 86400, "the clock did not jump"


def journalled(work):
    """Returns the number of finished instances."""
    return (work / "j.jsonl").read_text().count("\n") if (work / "j.jsonl").exists() else 0


@pytest.mark.full
def test_a_killed_grader_is_resumed_where_it_was(work, repos_dir, alone):
    run = subprocess.Popen(
        command(work, repos_dir), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert until(lambda: journalled(work) >= 3)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    done = journalled(work)
    assert 3 <= done < 8 and not (work / "grades.jsonl").exists()
    again = subprocess.run(command(work, repos_dir), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    keys = [json.loads(line)["key"] for line in (work / "j.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 8, "something was graded twice"
    assert {row["status"] for row in read_jsonl(work / "grades.jsonl")} == {"resolved"}
    assert not list(work.rglob("*.part"))
