"""Converts forged tasks for the reference harnesses: rows for both, and images in a real engine.

As in SWE-smith, there is an image for each repository, with a branch for each task. The branch has the bug,
and then the removal of the tests. As in SWE-bench, there is also an image for each task, with the bug at
HEAD. All images are the sandbox image with a repository at /testbed. A fake conda activation is added, so
all graders run the same interpreter and tests.
"""

import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.records import Record, write_json
from swelab.records.task_records import Task
from swelab.sandbox import sandbox_image
from swelab.sandbox.docker_engine import DockerEngine
from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import GIT_ENVIRONMENT, apply_patch

ACTIVATE = b'conda() { true; }\npytest() { python -m pytest "$@"; }\n'
SMITH = "source /opt/miniconda3/bin/activate; conda activate testbed; "
SMITH += "pytest --disable-warnings --color=no --tb=no --verbose -p no:cacheprovider "
BENCH = """#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git status
git show
git checkout HEAD {files}
: '>>>>> Start Test Output'
{command}
: '>>>>> End Test Output'
git checkout HEAD {files}
"""
DISHONEST_EVERY = 5
"""Of this many predictions, one is an honest patch that repairs nothing."""


@dataclass
class Workload:
    """The same tasks as rows of both harnesses.

    predictions: maps instance ids to predictions. repairs: ids of the predictions that repair the bug.
    """

    bench: list[Record] = field(default_factory=list)
    smith: list[Record] = field(default_factory=list)
    predictions: dict[str, Record] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)


def git(tree: Path, *words: str, data: bytes | None = None) -> str:
    """Runs git and returns its output. Raises CalledProcessError."""
    done = subprocess.run(
        ["git", *words], cwd=tree, env=GIT_ENVIRONMENT, input=data, capture_output=True, check=True
    )
    return done.stdout.decode("utf-8", "surrogateescape")


def build(tasks: Sequence[Task], repos: Path, scratch: Path, engine: DockerEngine) -> Workload:
    """Makes all images, rows and predictions. Raises InputError, SandboxError, ImageMissing."""
    store, workload = RepoStore(repos, scratch / "trees"), Workload()
    base = sandbox_image.load_image(engine).digest
    by_repo: dict[str, list[Task]] = {}
    for task in tasks:
        by_repo.setdefault(task.repo_recipe, []).append(task)
    for name, rows in by_repo.items():
        tree = scratch / name
        subprocess.run(["cp", "-r", store.clean_tree(rows[0]), tree], check=True)
        git(tree, "init", "-q", "-b", "main")
        commit(tree, "clean")
        patches = {row.instance_id: branch(tree, row) for row in rows}
        smith_image = "swebench/swesmith.x86_64." + rows[0].instance_id.rpartition(".")[0].replace(
            "__", "_1776_"
        )
        smith_image = smith_image.lower()
        files = {"opt/miniconda3/bin/activate": ACTIVATE}
        with container(engine, base) as box:
            engine.api.put_archive(box, "/", pack(files))
            engine.api.put_archive(box, "/", folder_tar(tree, "testbed"))
            engine.api.commit(box, repository=smith_image, tag="latest")
        for row in rows:
            add(workload, row, smith_image, patches[row.instance_id], engine)
    return workload


def branch(tree: Path, row: Task) -> dict[str, str]:
    """Makes the task's branch. Returns the gold patch, and a patch that repairs nothing ("idle")."""
    name = row.instance_id
    git(tree, "checkout", "-q", "-b", name, "main")
    apply_patch(tree, row["patch"]).check_returncode()
    commit(tree, "bug")
    gold = git(tree, "diff", "HEAD", "main")
    path = gold.split()[2].removeprefix("a/")
    with (tree / path).open("a") as file:
        file.write("\n# Looked through: nothing found.\n")
    idle = git(tree, "diff")
    git(tree, "checkout", "-q", "--", ".")
    for test in {test.partition("::")[0] for test in row["FAIL_TO_PASS"]}:
        (tree / test).unlink()
    commit(tree, "hide tests")
    git(tree, "checkout", "-q", "main")
    return {"gold": gold, "idle": idle}


def commit(tree: Path, text: str) -> None:
    """Commits all files."""
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", text)


def add(
    workload: Workload, row: Task, smith_image: str, patches: dict[str, str], engine: DockerEngine
) -> None:
    """Adds the row in both forms and its prediction to the workload, and makes its image."""
    name = row.instance_id
    words = row["test_cmd"].partition("no:cacheprovider")[2].strip()
    tests = {key: row[key] for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    common = {"instance_id": name, "problem_statement": row["problem_statement"], **tests}
    repo = "swesmith/" + name.rpartition(".")[0]
    smith = {"repo": repo, "patch": row["patch"], "image_name": smith_image, "test_cmd": SMITH + words}
    workload.smith.append(common | smith | {"log_parser": "parse_log_pytest_verbose"})
    image = f"swelab-benchmark/{row['bug']}:latest"
    head = f"cd /testbed && git checkout -qf {name}~1"
    with container(engine, f"{smith_image}:latest", head) as box:
        engine.start(box)
        assert engine.api.wait(box)["StatusCode"] == 0, engine.api.logs(box)
        engine.api.commit(box, repository=image.rpartition(":")[0], tag="latest", conf={"Cmd": ["bash"]})
    files = " ".join(sorted({test.partition("::")[0] for test in row["FAIL_TO_PASS"]}))
    script = BENCH.format(files=files, command=f"pytest -rA --tb=no -p no:cacheprovider {words}")
    bench = {"repo": repo, "version": "1", "patch": patches["gold"], "test_patch": "", "image": image}
    bench |= {"eval_script": script, "log_parser": "parse_log_pytest", "eval_type": "pass_and_fail"}
    workload.bench.append(common | bench)
    idle = len(workload.predictions) % DISHONEST_EVERY == DISHONEST_EVERY - 1
    patch = patches["idle" if idle else "gold"]
    prediction = {"instance_id": name, "model_patch": patch, "model_name_or_path": "benchmark"}
    workload.predictions[name] = prediction
    if not idle:
        workload.repairs.append(name)


@contextmanager
def container(engine: DockerEngine, image: str, command: str = "true") -> Iterator[str]:
    """Yields the id of a new container, which runs as root once it is started.

    Removes the container at the end.
    """
    settings = {"Cmd": ["bash", "-c", command], "User": "0:0", "WorkingDir": "/"}
    box = engine.create(image, settings, {"NetworkMode": "none"})
    try:
        yield box
    finally:
        engine.remove(box)


def record(engine: DockerEngine, names: Iterable[str], path: Path) -> Path:
    """Writes the record that pull_images would write about existing images."""
    images: dict[str, Any] = {}
    for name in names:
        digest = engine.api.inspect_image(name)["Id"]
        images[name] = {"digest": digest, "bytes": 0, "folder": "", "workdir": "/testbed"}
        images[name] |= {"pulled": "", "checked": 0, "leaks": []}
    write_json(path, {"images": images, "failed": {}, "counts": {}})
    return path


def pack(files: dict[str, bytes]) -> bytes:
    """Returns a tar of files. files: maps paths to contents."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def folder_tar(folder: Path, name: str) -> bytes:
    """Returns a tar of a folder. In the tar, the folder is called `name` and root owns all files."""
    stream = io.BytesIO()

    def set_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.add(folder, name, filter=set_owner)
    return stream.getvalue()
