"""Writes tasks as Harbor folders: image, instruction, hidden verifier, reference solution (docs/harbor.md).

An agent sees only environment/ and instruction.md. Harbor copies tests/ and solution/ into the container
later.
"""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from swelab.evaluation.eval_scripts import with_script
from swelab.grading.harness.logs import DEFAULT_PARSER
from swelab.grading.harness.parsers import module, registry
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.records import InputError, Record, write_bytes
from swelab.records.image_records import Images
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task
from swelab.sharing import harbor_judge
from swelab.tasks.checkout import RepoStore, gold_patch, scratch_folder
from swelab.tasks.exports import docker_image
from swelab.tasks.forge.archive import write_tar
from swelab.tasks.forge.own_repository import SITE_FILE, Files
from swelab.tasks.harbor.harbor_dockerfile import START
from swelab.tasks.harbor.harbor_folder import (
    CHECKOUT,
    DOCKERFILE,
    INSTRUCTION,
    PREAMBLE,
    RESTORED,
    ROW,
    SETTINGS,
)
from swelab.tasks.image_history import HistoryRefused, start_command, start_files
from swelab.tasks.install_steps import preparation
from swelab.tasks.patch_application import encode_patch
from swelab.tasks.published_rows import is_private

VERSION = "1.4"
"""Version of Harbor's schema for task.toml."""
AGENT_SECONDS = 3600
BUILD_SECONDS = 1800
TESTBED = "/testbed"
SANDBOX_PINS = Path(__file__).resolve().parents[2] / "envs" / "sandbox.txt"
_COMMIT = (
    "git init -q -b main && git add -A -f && GIT_AUTHOR_DATE=2000-01-01T00:00:00Z"
    " GIT_COMMITTER_DATE=2000-01-01T00:00:00Z git -c user.name=swelab -c user.email=swelab@localhost"
    " -c core.hooksPath=/dev/null commit -q -m base"
)
TEST = """#!/bin/bash
# Runs the tests of the task and writes /logs/verifier/reward.txt: see judge.py.
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt
for python in /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/bin/python3 python3; do
    if command -v "$python" >/dev/null; then exec "$python" -I "$(dirname "${BASH_SOURCE[0]}")/judge.py"; fi
done
echo "the image has no python3" >&2
exit 1
"""
SOLVE = f"""#!/bin/bash
# Applies the reference repair.
patch=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)/gold.patch
cd {TESTBED} && git apply --whitespace=nowarn "$patch"
"""


def instruction(task: Task) -> str:
    """Returns the instruction for the agent."""
    return PREAMBLE + task.problem_statement.strip() + "\n"


def dockerfile_of_archive(base: str) -> str:
    """Returns a Dockerfile that unpacks repository.tar, and commits its files as one commit without
    history."""
    return f"""FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir -r /tmp/requirements.txt && rm /tmp/requirements.txt && \\
    cd "$(python3 -c 'import site; print(site.getsitepackages()[0])')" && \\
    echo {TESTBED}/.swelab/site-packages >{SITE_FILE}
ADD repository.tar {TESTBED}/
WORKDIR {TESTBED}
RUN {_COMMIT}
"""


def dockerfile_of_image(image: str, command: str, prepared: bool) -> str:
    """Returns a Dockerfile that starts from a published image, and removes the commits after the task's
    start. command: the result of `image_history.start_command`. prepared: whether there are install steps."""
    before = f"RUN bash {START}/prepare.sh\n" if prepared else ""
    return f"FROM {image}\nWORKDIR {TESTBED}\nCOPY start {START}\n{before}RUN {command}\n"


def task_settings(task: Task, ours: Mapping[str, Any], seconds: int, large: bool, network: bool) -> str:
    """Returns the text of task.toml. ours: the table [metadata.swelab]. large: gives the container more CPU,
    memory and disk, for published images."""
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in task.instance_id)
    tables: dict[str, Mapping[str, Any]] = {
        "": {"schema_version": VERSION},
        "task": {"name": f"swelab/{name}", "description": f"Repair a fault in {task.repo}.",
                 "keywords": ["software-engineering", "bug-fix"]},
        "metadata": {"category": "software-engineering", "tags": ["swe", "bug-fix"]},
        "metadata.swelab": {"instance_id": task.instance_id, **ours},
        "verifier": {"timeout_sec": float(seconds + 120)},
        "agent": {"timeout_sec": float(AGENT_SECONDS)},
        "environment": {"build_timeout_sec": float(BUILD_SECONDS), "cpus": 2 if large else 1,
            "memory_mb": 8192 if large else 2048, "storage_mb": 20480 if large else 10240,
            "network_mode": "public" if network else "no-network"},
    }  # fmt: skip
    return "\n".join(_toml_table(name, values) for name, values in tables.items())


def _toml_table(name: str, values: Mapping[str, Any]) -> str:
    """Formats a TOML table. TOML strings, numbers and lists look as in JSON."""
    head = f"[{name}]\n" if name else ""
    written = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    return head + "".join(f"{key} = {text}\n".replace("\x7f", "\\u007f") for key, text in written.items())


BASE_IMAGE = "python:3.11-slim-bookworm"
"""The base image for tasks that have no image of their own."""
RUNNER_FILES = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("pyproject.toml", "sitecustomize.py", "usercustomize.py"),
)
"""Files that configure the test runner. Before the tests run, these files are restored, or removed if they
did not exist before."""


@dataclass(frozen=True)
class Export:
    """Settings of an export. repos: folder of repository archives. images: record of pulled images, for
    digests.

    base: base image of tasks whose repository is an archive. network: whether a container has network access.
    """

    repos: Path
    images: Images | None = None
    base: str = BASE_IMAGE
    network: bool = False


def write_folders(tasks: Iterable[Task], to: Path, export: Export) -> Record:
    """Writes a folder for each task into the new or empty folder `to`. Returns {"written": names, "left_out":
    {name: reason}}.

    A task is left out if its folder would lack something that the grader needs. Raises InputError if `to` is
    not empty, a repository archive is missing, or no task can be written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError("is there already", to, "a new folder")
    written, left_out = list[str](), dict[str, str]()
    with scratch_folder() as scratch, _all_or_none(to) as part:
        store = RepoStore(export.repos, scratch)
        for task in tasks:
            try:
                files = _of_image(task, export) if task.in_image else _of_archive(task, store, export)
            except Unfit as fault:
                left_out[task.instance_id] = str(fault)
                print(f"left out: {task.instance_id}: {fault}", file=sys.stderr)
                continue
            _write(part / task.instance_id, files)
            written.append(task.instance_id)
        if not written:
            raise InputError(f"no task can be written ({next(iter(left_out.values()), 'there is none')})", to)
    return {"written": written, "left_out": left_out}


@contextmanager
def _all_or_none(to: Path) -> Iterator[Path]:
    """Yields a new folder. At the end of the block its content is moved to `to`, after an error deleted."""
    part = to / ".part"
    try:
        yield part
        for path in part.iterdir():
            path.replace(to / path.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


class Unfit(Exception):
    """The task cannot be exported. The message is the reason."""


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_bytes(folder / name, content, durable=False)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)


def _of_archive(task: Task, store: RepoStore, export: Export) -> dict[str, bytes]:
    """Returns the files of an exported task whose repository is an archive. Raises InputError, Unfit."""
    if task.answers:
        raise Unfit("no repair of it is known")
    spec = read_spec(task)
    clean = _files(store.clean_tree(task))
    with scratch_folder() as scratch:
        store.checkout(task, scratch / "tree", for_agent=True)
        agents = _files(scratch / "tree")
    names = {*spec.test_files, *task.failing_files, *_runner_files(clean)} - {*touched_paths(task.patch)}
    restored = {path: file for path, file in clean.items() if path in names or path not in agents}
    digest = hashlib.sha256(write_tar(clean)).hexdigest()
    ours = {"repository": task.repo_recipe, "sha256": digest, "patch": "bug"}
    told = {"put_back": True, "runner_files": list(RUNNER_FILES), "known": _runner_files(clean)}
    return _common(task, spec, ours, export, large=False) | _judge(spec, spec.test_cmd, told) | {
        DOCKERFILE: dockerfile_of_archive(export.base).encode(),
        "environment/requirements.txt": SANDBOX_PINS.read_bytes(),
        CHECKOUT: write_tar(agents),
        RESTORED: write_tar(restored),
        "solution/gold.patch": encode_patch(gold_patch(store, task)),
    }  # fmt: skip


def _of_image(task: Task, export: Export) -> dict[str, bytes]:
    """Returns the files of an exported task that runs in a published image. Raises Unfit."""
    if is_private(task):
        raise Unfit("its tests are private")
    if task.by_script:
        raise Unfit("its own script judges it: the folder that it came from is Harbor's already")
    if task.is_bug:
        raise Unfit("its tests lie in the history of its image, where an agent could read the answer")
    try:
        row = with_script(task)
        spec = read_spec(row)
        command = start_command(task, START)
        image = docker_image(task, {name: each.digest for name, each in export.images.images.items()}
                             if export.images else {})  # fmt: skip
    except (InputError, HistoryRefused) as fault:
        raise Unfit(str(fault)) from None
    if spec.eval_type != "pass_and_fail":
        raise Unfit(f"its log names failures only ({spec.eval_type})")
    steps = preparation([task])
    files = {f"environment/start/{name}": content for name, content in start_files(task).items()}
    if steps:
        files["environment/start/prepare.sh"] = steps.encode()
    told = {"put_back": False, "runner_files": [], "known": []}
    return files | _common(task, spec, {"patch": "fix"}, export, large=True) | {
        **_judge(spec, "bash /tests/eval.sh", told),
        "tests/eval.sh": spec.eval_script.encode(),
        DOCKERFILE: dockerfile_of_image(image, command, bool(steps)).encode(),
        "solution/gold.patch": encode_patch(spec.gold_fix),
    }  # fmt: skip


def _common(task: Task, spec: RunSpec, ours: Record, export: Export, large: bool) -> dict[str, bytes]:
    text = task_settings(task, ours, spec.seconds, large, export.network)
    return {
        SETTINGS: text.encode(),
        INSTRUCTION: instruction(task).encode("utf-8", "replace"),
        ROW: (json.dumps(task, indent=2) + "\n").encode(),
        "tests/test.sh": TEST.encode(),
        "solution/solve.sh": SOLVE.encode(),
    }


def _judge(spec: RunSpec, command: str, settings: Record) -> dict[str, bytes]:
    """Returns the verifier's files. Raises Unfit if the log parser cannot be exported."""
    parser, files = "", dict[str, bytes]()
    if spec.parser != DEFAULT_PARSER:
        parser, text = parser_text(spec.parser)
        files["tests/parser.py"] = text.encode()
    settings = settings | {
        "workdir": TESTBED,
        "command": command,
        "seconds": spec.seconds,
        "parser": parser,
        "marked": spec.has_markers,
        **spec.tests,
    }
    files["tests/judge.json"] = (json.dumps(settings, indent=2) + "\n").encode()
    return files | {"tests/judge.py": Path(harbor_judge.__file__).read_bytes()}


def parser_text(name: str) -> tuple[str, str]:
    """Returns (function name, module text) of a log parser of swebench, changed to run without swebench.
    Raises Unfit."""
    parser = registry().get(name)
    if parser is None:
        raise Unfit(f"its log is read by {name}, which cannot be sent along")
    source = Path(sys.modules[parser.__module__].__file__ or "").read_text(encoding="utf-8")
    source = source.replace("from swebench.types import TestSpec\n", "TestSpec = object\n")
    words = "".join(f"    {each.name} = {each.value!r}\n" for each in module("constants").TestStatus)
    status = f"from enum import Enum\n\n\nclass TestStatus(Enum):\n{words}\n\n"
    source = source.replace("from swebench.harness.constants import TestStatus\n", status)
    if re.search(r"^(from|import) swebench", source, re.M):
        raise Unfit(f"its log is read by {name}, which needs more of swebench")
    about = f"# Log parsers of swebench {metadata.version('swebench')}, MIT licence:\n"
    return parser.__name__, about + _licence() + "from __future__ import annotations\n\n" + source


def _licence() -> str:
    """Returns the licence text of the package swebench as comment lines."""
    for path in metadata.files("swebench") or ():
        if path.name.upper().startswith("LICENSE"):
            return "".join(f"# {line}".rstrip() + "\n" for line in path.read_text().splitlines())
    return ""


def _runner_files(files: Files) -> list[str]:
    return sorted(path for path in files if path.rpartition("/")[2] in RUNNER_FILES)


def _files(tree: Path) -> Files:
    """Reads all files below `tree` except the folder .git."""
    found = (path for path in sorted(tree.rglob("*")) if path.is_file())
    named = ((path.relative_to(tree).as_posix(), path) for path in found)
    return {
        name: (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for name, path in named
        if not name.startswith(".git/")
    }
