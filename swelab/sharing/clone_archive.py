"""Archives the code, the recipes and every file behind a score, so that a stranger can verify the score.

Files keep their modification times, and the archive has Snakemake's records of these files. So the workflow
finds nothing to do, and notices later changes. Files with answers of a hidden set are excluded.
results/withheld.json lists the excluded files with their hashes. The pages are made again without the
attempts on hidden sets.
"""

import json
import os
import subprocess
import tarfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

from swelab.jobs.provenance import sha256_of
from swelab.lineage import KINDS, Wildcards, find, pattern
from swelab.records import InputError, atomic
from swelab.scores.report.attempts import PACKED
from swelab.scores.report.html_page import render
from swelab.scores.report.report_data import gather
from swelab.scores.report.trajectories import text_of_line
from swelab.scores.verification import WITHHELD
from swelab.sharing.experiment_files import FinishedExperiment
from swelab.sharing.privacy import Private
from swelab.tasks.task_rows import read_tasks

CODE = (
    "benchmarks",
    "configs",
    "docs",
    "envs",
    "examples",
    "hosts",
    "profiles",
    "rules",
    "scripts",
    "slurm",
    "swe-pdb",
    "swe-rl",
    "swelab",
    "tests",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "Snakefile",
    "pyproject.toml",
)
"""The files and folders of the code, for a clone without git."""
JOURNAL = "results/progress/rollout/{policy}/{subset}/{shard}.jsonl"
"""Path of the journal of a shard's rollouts. The journal has the same records as the shard's output."""
INCOMPLETE = ".snakemake/incomplete"
"""An empty folder of Snakemake. Without this folder, Snakemake assumes that its records are from an old
version."""
PAGES = ("page", "published_page")
"""Kinds of files that show patches and attempts of all scored sets."""
BINARY = (".safetensors", ".tar", ".zip", ".bin", ".pt")


def write_archive(finished: FinishedExperiment, to: Path, private: Private) -> None:
    """Writes a gzip-compressed tar to `to`. The tar contains one folder, the clone. Raises InputError with
    the files that contain a key, a path of this machine, or an answer of a hidden set."""
    withheld, top = finished.withheld(), to.name.partition(".")[0]
    hashes = {path: sha256_of(path) for path in sorted(withheld)}
    whole = {*code_files(Path()), *_results(finished)}
    records = {name for name in map(record_path, whole | withheld) if Path(name).is_file()}
    if records and Path(INCOMPLETE).is_dir():
        records.add(INCOMPLETE)
    names = sorted((whole - withheld) | records)
    answers, pages = _answers(finished), _pages(finished, names)
    if faults := [fault for name in names if (fault := _fault(name, private, answers, pages.get(name)))]:
        shown = "; ".join(faults[:3]) + (f" and {len(faults) - 3} more" if len(faults) > 3 else "")
        raise InputError(shown, "archive", "files that may be handed on")
    with (
        atomic(to) as stream,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1, dereference=True) as tar,
    ):
        for name in names:
            tar.dereference = not _within(Path(name))
            if name in pages:
                entry = _nobody(tar.gettarinfo(name, f"{top}/{name}"))
                entry.size = len(pages[name])
                tar.addfile(entry, BytesIO(pages[name]))
                continue
            for place in (name, *_journal(name)):
                tar.add(name, f"{top}/{place}", recursive=False, filter=_nobody)
        data = (json.dumps(hashes, indent=2) + "\n").encode()
        entry = tarfile.TarInfo(f"{top}/{WITHHELD}")
        entry.size, entry.mode = len(data), 0o644
        tar.addfile(entry, BytesIO(data))


def record_path(output: str) -> str:
    """Returns the path of Snakemake's record of an output file. The path is the output's path in base64,
    split into parts that are short enough for file names."""
    most = os.pathconf(".", "PC_NAME_MAX") - 1
    name = urlsafe_b64encode(output.encode()).decode()
    parts = [name[start : start + most] for start in range(0, len(name), most)]
    return "/".join([".snakemake/metadata", *(f"@{part}" for part in parts[:-1]), parts[-1]])


def _journal(name: str) -> Iterator[str]:
    """Yields the journal path of a trajectories file. With the journal, adding a task to the shard costs only
    one more rollout."""
    kind, names = find(name) or ("", {})
    if kind == "trajectories" and name == pattern(kind).format_map(names):
        yield JOURNAL.format_map(names)


def _within(path: Path) -> bool:
    """Returns whether a path is a link to a file in the same folder. Such a link is valid in any clone."""
    return path.is_symlink() and "/" not in os.readlink(path) and path.is_file()


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes the owner from an archive entry, because the owner is a user of this machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def code_files(root: Path) -> Iterator[str]:
    """Yields the files that git tracks, and all recipes. Without git, yields all files in the folders of
    CODE."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    for start in ("configs",) if names else CODE:
        names += [
            path.as_posix()
            for path in ([root / start] if (root / start).is_file() else (root / start).rglob("*"))
            if "__pycache__" not in path.parts
        ]
    yield from (name for name in names if name and (root / name).is_file())


def _results(finished: FinishedExperiment) -> Iterator[str]:
    """Yields the files behind the score, further files of the same jobs, and the contents of their folders.

    Files that jobs only wait for are included, such as the result of the check before a training. Without
    this file, adding a task would start the training again.
    """
    experiment = {"experiment": finished.name}
    ends = ("verified_score", "page", "published", "published_page")
    also = [path.format_map(experiment) for kind in ends for path in KINDS[kind].files.values()]
    paths = dict.fromkeys([*finished.trail.files, *finished.trail.stages, *finished.waited_for, *also])
    for path in list(paths):
        kind, names = find(path) or ("", {})
        if kind:
            files = KINDS[kind].files.values()
            paths |= dict.fromkeys(each.format_map({"sample": "", **names}) for each in files)
    for there in filter(Path.exists, map(Path, paths)):
        yield there.as_posix()
        yield from (each.as_posix() for each in (there.rglob("*") if there.is_dir() else ()))


def _pages(finished: FinishedExperiment, names: Iterable[str]) -> dict[str, bytes]:
    """Returns the content of each page among `names` if a subset is hidden, without attempts and patches of
    hidden subsets. Returns {} if no subset is hidden."""
    files = {path.format(experiment=finished.name) for kind in PAGES for path in KINDS[kind].files.values()}
    hidden, pages = finished.hidden, sorted(files.intersection(names))
    if not hidden or not pages:
        return {}
    at = Wildcards({"experiment": finished.name})
    page = render(gather(at, Path(at.path("verified_score")), PACKED, 0, hidden)).encode()
    return dict.fromkeys(pages, page)


def _answers(finished: FinishedExperiment) -> list[str]:
    """Returns the gold patches, test patches, verifier scripts and solutions of hidden sets, escaped as in
    JSON."""
    files = [path for subset in finished.hidden for path in finished.paths("lock.kept", subset=subset)]
    answers = (
        text
        for path in files
        for task in read_tasks(path)
        for text in (task.patch, task.test_patch, task.verifier_tar, task.solution_tar)
    )
    return [json.dumps(text, ensure_ascii=False)[1:-1] for text in answers if text]


def _fault(name: str, private: Private, answers: list[str], content: bytes | None) -> str:
    """Returns the line of a file that must not be published, with the reason. Returns "" if the whole file
    may be published. content: what is published in place of the file."""
    if Path(name).is_dir() or name.endswith(BINARY):
        return ""
    is_result = name.startswith(("results/", ".snakemake/"))  # the code's tests contain fake keys
    raw = open(name, "rb") if content is None else BytesIO(content)
    with TextIOWrapper(raw, encoding="utf-8", errors="replace") as stream:
        lines = map(text_of_line, stream) if name.endswith(".html") else stream
        for number, text in enumerate(lines, 1):
            what = private.secret_in(text, shapes=is_result)
            if not what and is_result and any(answer in text for answer in answers):
                what = "an answer of a hidden set"
            if what:
                return f"{name}, line {number}, holds {what}"
    return ""
