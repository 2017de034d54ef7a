"""Reads the source files from which witness questions are made: test files and Python files that they may
use.
"""

import io
import posixpath
import re
import shlex
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.spec import RunSpec
from swelab.records.task_records import Task
from swelab.sandbox import Limits
from swelab.tasks.patch_application import encode_patch
from swelab.witness.mixins import has_assertions

MOST_SOURCE = 4 << 20
"""Maximum number of bytes to read of one task's source files."""


def task_sources(
    task: Task, spec: RunSpec, bench: Bench, roots: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns two maps from paths to texts: source files of the tests, and modules with assertion classes.

    The files are read from the clean tree or the image, with the fix's tests applied. The modules with
    assertion classes belong to the packages `roots`.
    """
    files = sorted({test.partition("::")[0] for test in spec.listed})
    if task.instance_id in bench.images:
        found = _read_image(task, spec, bench, files, _homes(roots))
        sources = _reachable_sources(found, files)
        rest = {path: text for path, text in found.items() if path not in sources}
        return sources, {path: text for path, text in rest.items() if has_assertions(text)}
    tree = bench.store.clean_tree(task)
    return sources_in(tree, files), assertions_in(tree, roots)


def sources_in(tree: Path, files: Sequence[str], most: int = MOST_SOURCE) -> dict[str, str]:
    """Returns the texts of the test files and of the Python files that they may use, by path.

    most: maximum number of bytes to read.
    """
    own, sources, size = _folders(files), {}, 0
    for folder in _above(files):
        names = "*.py" if folder in own else "conftest.py"
        for path in sorted((tree / folder).glob(names)):
            size += path.stat().st_size
            if path.is_file() and not path.is_symlink() and size < most:
                sources[path.relative_to(tree).as_posix()] = path.read_text("utf-8", "replace")
    return _reachable_sources(sources, files)


def assertions_in(tree: Path, roots: Iterable[str], most: int = MOST_SOURCE) -> dict[str, str]:
    """Returns the texts of the packages' modules that define assertion classes, by path.

    most: maximum number of bytes to read.
    """
    sources, size = {}, 0
    for path in sorted(path for home in _homes(roots) for path in (tree / home).rglob("*.py")):
        text = path.read_text("utf-8", "replace") if path.is_file() and not path.is_symlink() else ""
        if has_assertions(text) and size + len(text) < most:
            size += len(text)
            sources[path.relative_to(tree).as_posix()] = text
    return sources


def _homes(roots: Iterable[str]) -> list[str]:
    """Returns the paths in a repository where these packages may be."""
    return [f"{folder}{name}" for name in sorted(roots) for folder in ("", "src/", "lib/")]


def _reachable_sources(sources: Mapping[str, str], files: Sequence[str]) -> dict[str, str]:
    """Returns the test files, every conftest.py, and the modules whose names occur in a test file."""
    words = set(re.findall(r"\w+", " ".join(text for path, text in sources.items() if path in files)))
    return {path: text for path, text in sources.items() if _is_needed(path, files, words)}


def _folders(files: Iterable[str]) -> list[str]:
    return sorted({posixpath.dirname(path) or "." for path in files})


def _above(files: Iterable[str]) -> list[str]:
    """Returns the folders of these files, and all parent folders."""
    found = set()
    for path in files:
        while path:
            path = posixpath.dirname(path)
            found.add(path or ".")
    return sorted(found)


def _is_needed(path: str, files: Collection[str], words: Collection[str]) -> bool:
    name = posixpath.basename(path).removesuffix(".py")
    return path in files or name == "conftest" or name in words


def _read_image(
    task: Task, spec: RunSpec, bench: Bench, files: Sequence[str], homes: Sequence[str]
) -> dict[str, str]:
    """Returns the texts of Python files in the image, by path, once the fix's tests are applied.

    These are files that the test files may use, and files below `homes` that define functions named assert...
    """
    image = bench.images[task.instance_id]
    lines = ["{", *spec.setup]
    if spec.tests_diff:
        lines += ["git apply --whitespace=nowarn /tmp/tests.diff"]
    lines += ["} >/dev/null 2>&1 </dev/null", "shopt -s nullglob"]
    names = [f"{shlex.quote(folder)}/conftest.py" for folder in _above(files)]
    names += [f"{shlex.quote(folder)}/*.py" for folder in _folders(files)]
    if homes:
        quoted = " ".join(map(shlex.quote, homes))
        names.append(f"$(grep -rlE --include='*.py' 'def _?assert' {quoted} 2>/dev/null | grep -v ' ')")
    lines += [f"for f in {' '.join(names)}; do [ -f $f ] && printf '%s\\0' $f; done | sort -zu | "
              "tar -c --null -T - --ignore-failed-read 2>/dev/null"]  # fmt: skip
    limits = replace(limits_of(Limits(), image), output_bytes=2 * MOST_SOURCE, wall_seconds=300)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, limits, image) as sandbox:
        sandbox.put("/tmp/tests.diff", encode_patch(spec.tests_diff))
        done = sandbox.exec("\n".join(lines), limits=limits)
    if done.dropped_bytes or not done.output:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(done.output)) as tar:
        for entry in tar:
            if entry.isreg() and (stream := tar.extractfile(entry)):
                found[posixpath.normpath(entry.name)] = stream.read().decode("utf-8", "replace")
    return found
