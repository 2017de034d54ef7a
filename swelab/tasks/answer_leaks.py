"""Finds leaked answers: searches all files that an agent can read for the lines of gold patches.

A window is three successive lines. The windows of an answer are those that the repaired files contain and the
buggy files do not. Blank lines and indentation are ignored. A file that the patch does not change leaks the
answer if it contains half of the windows. The files of a repository are indexed once for all its tasks. The
toolbox, interpreters and images are searched inside a sandbox, with one `grep` for many tasks.
"""

import ast
import io
import secrets
import shlex
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from swelab.files.python_syntax import parse_python, walk
from swelab.files.text_lines import lines_of, python_lines
from swelab.records import shorten
from swelab.records.patch_reader import readable
from swelab.records.task_records import Leak, Task
from swelab.sandbox import WORKDIR, Backend, Image, Limits, PathRefused, Sandbox, SandboxLost
from swelab.tasks.checkout import RepoStore
from swelab.tasks.image_leaks import ALL_FILES

LINES = 3
LEAST_CHARACTERS = 24
"""Minimum number of characters of a window. Shorter windows occur everywhere."""
BIGGEST_FILE = 1 << 20
BLOCK = 2000
"""Number of tasks that one search covers."""
_MOST_BYTES = 256 << 20
_LIMITS = Limits(wall_seconds=600, cpu_seconds=600, memory_bytes=4 << 30, file_bytes=2 * _MOST_BYTES)

Window = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The windows of one answer. paths: files that may contain them, because the answer itself is there."""

    instance_id: str
    windows: frozenset[Window]
    paths: frozenset[str]
    what: str = "the answer"

    def is_told(self, count: int) -> bool:
        """Returns whether a file that contains `count` of the windows leaks the answer."""
        return 2 * count >= len(self.windows) > 0


def answer_of(task: Task) -> Answer:
    """Returns the windows of a task's gold patch."""
    broken, fixed = ("+", "-") if task.is_bug else ("-", "+")
    changes = readable(task.patch).changes
    found = set[Window]()
    for change in changes:
        before = {*windows(text for mark, text in change.lines if mark in (" ", broken))}
        found |= {*windows(text for mark, text in change.lines if mark in (" ", fixed))} - before
    return Answer(task.instance_id, frozenset(found), frozenset(change.path for change in changes))


def hidden_of(task: Task, tree: Path) -> Answer:
    """Returns the windows of a task's hidden tests in its clean tree, or none if its tests are visible."""
    names = {test.rpartition("::")[2].partition("[")[0] for test in task.FAIL_TO_PASS}
    code_windows = set[Window]()
    for path in task.failing_files if task.hidden_tests else ():
        text = (tree / path).read_text(errors="replace") if (tree / path).is_file() else ""
        with suppress(SyntaxError, ValueError, RecursionError):
            for node in walk(parse_python(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
                    code_windows |= {*windows(python_lines(text)[node.lineno - 1 : node.end_lineno])}
    return Answer(task.instance_id, frozenset(code_windows), frozenset(task.failing_files), "a hidden test")


def windows(lines: Iterable[str]) -> Iterator[Window]:
    """Yields all groups of LINES successive lines that are long enough to identify an answer."""
    kept = [line for line in map(str.strip, lines) if line]
    for start in range(len(kept) - LINES + 1):
        window = tuple(kept[start : start + LINES])
        if sum(map(len, window)) >= LEAST_CHARACTERS:
            yield window


def find_leaks(
    tasks: Iterable[Task], store: RepoStore, backend: Backend, images: Mapping[str, Image]
) -> Iterator[Leak]:
    """Yields a leak for each task whose answer or hidden test is in a file that an agent can read.
    Raises SandboxError, OSError, and InputError if an archive is missing."""
    rows = iter(tasks)
    while block := list(islice(rows, BLOCK)):
        groups: dict[Image | None, list[Answer]] = {}
        for task in block:
            if task.answers in ("none", "script"):
                continue  # the task has no known repair
            image = images.get(task.instance_id)
            answers = [answer_of(task)]
            if image is None:
                tree = store.clean_tree(task)
                answers.append(hidden_of(task, tree))
                told = ((answer, _index(tree).find(answer)) for answer in answers)
                yield from (_leak(answer, path) for answer, path in told if path)
            groups.setdefault(image, []).extend(answers)
        for image, answers in groups.items():
            with _sandbox(backend, image) as sandbox:
                yield from search(sandbox, answers)


def refused_leaks(leaks: Iterable[Leak]) -> dict[str, str]:
    """Maps instance ids of tasks with a leak to the reason why a task cannot be used."""
    return {leak.instance_id: f"its answer can be read: {leak.what}" for leak in leaks}


def _leak(answer: Answer, path: str) -> Leak:
    return Leak(instance_id=answer.instance_id, what=f"{shorten(path)} holds lines of {answer.what}")


class _Repository:
    """Index of a clean tree: which files contain each window."""

    def __init__(self, tree: Path):
        self._files: list[str] = []
        self._holders: dict[int, list[int]] = {}
        for path in sorted(tree.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= BIGGEST_FILE:
                for window in {*windows(_text(path.read_bytes()))}:
                    self._holders.setdefault(hash(window), []).append(len(self._files))
                self._files.append(str(path.relative_to(tree)))

    def find(self, answer: Answer) -> str:
        """Returns the path of a file that leaks the answer, or ""."""
        holders = Counter(
            number for window in answer.windows for number in self._holders.get(hash(window), ())
        )
        for number, found in holders.most_common():
            if answer.is_told(found) and self._files[number] not in answer.paths:
                return self._files[number]
        return ""


@lru_cache(maxsize=8)
def _index(tree: Path) -> _Repository:
    return _Repository(tree)


def _sandbox(backend: Backend, image: Image | None) -> Sandbox:
    if image is not None:
        return backend.start(None, image=image, limits=_LIMITS)
    with tempfile.TemporaryDirectory() as nothing:
        return backend.start(Path(nothing), limits=_LIMITS)


def search(sandbox: Sandbox, answers: Sequence[Answer]) -> Iterator[Leak]:
    """Yields at most one leak for each task whose answer is in a file of the sandbox. Raises SandboxError."""
    owners: dict[Window, list[Answer]] = {}
    for answer in answers:
        for window in answer.windows:
            owners.setdefault(window, []).append(answer)
    reported = set[str]()
    for path, text in _candidates(sandbox, answers) if owners else ():
        inside = path.removeprefix(f"{WORKDIR}/")
        held = {window for window in windows(text) if window in owners}
        found = Counter(answer for window in held for answer in owners[window])
        for answer, count in found.items():
            name = answer.instance_id
            if answer.is_told(count) and inside not in answer.paths and name not in reported:
                reported.add(name)
                yield _leak(answer, path)


def _candidates(sandbox: Sandbox, answers: Sequence[Answer]) -> Iterator[tuple[str, list[str]]]:
    """Yields (path, lines) of each file that contains the longest line of a window."""
    needles = {max(window, key=len) for answer in answers for window in answer.windows}
    suffixes = {PurePosixPath(path).suffix for answer in answers for path in answer.paths} - {""}
    names = " -o ".join(f"-name {shlex.quote(f'*{suffix}*')}" for suffix in sorted(suffixes)) or "-true"
    folder = f"/tmp/swelab-{secrets.token_hex(8)}"
    sandbox.put(
        f"{folder}/lines", "".join(f"{line}\n" for line in sorted(needles)).encode("utf-8", "surrogateescape")
    )
    found = f"find / {ALL_FILES} -size -{BIGGEST_FILE >> 9} \\( {names} \\) ! -path '{folder}/*' -print0"
    search = sandbox.exec(
        f"cd {folder} && {found} 2>/dev/null | LC_ALL=C xargs -0 -r grep -sIlZFf lines >found; "
        "tar -cf found.tar --null -T found 2>/dev/null; test -f found",
        limits=_LIMITS,
    ).check()
    try:
        data = sandbox.get(f"{folder}/found.tar", _MOST_BYTES)
    except FileNotFoundError:
        data = b""
    except PathRefused:
        raise SandboxLost("more files than can be searched hold lines of answers") from None
    if search.returncode:
        raise SandboxLost("the files that an agent sees could not be searched for answers")
    with tarfile.open(fileobj=io.BytesIO(data or tarfile.NUL * 1024)) as tar:
        for entry in tar:
            if stream := tar.extractfile(entry):
                yield f"/{entry.name}", _text(stream.read())


def _text(data: bytes) -> list[str]:
    return [] if b"\0" in data else lines_of(data.decode("utf-8", "surrogateescape"))
