"""Reads debugging tasks from rows or folders, and refuses malformed ones. Each becomes a `SmallTask`.

A row has `task_id` and `extra_info`. `extra_info` has `entrypoint` and `files`, a list of {path, content}.
Nested objects may be JSON strings. A folder has the same files, and patterns in `.debugignore` and
`.debugreadonly`.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from swelab.files.dataset_files import read_rows
from swelab.records import InputError, Record, numbered_jsonl, shorten
from swelab.tasks.checkout import is_inside
from swelab.tasks.patch_application import git, is_encodable


def matching(patterns: str, paths: Iterable[str], where: str) -> set[str]:
    """Returns the paths that the patterns match, by git's rules. Raises InputError for invalid patterns."""
    kept = [line for line in patterns.splitlines() if line.strip() and not line.startswith("#")]
    return set(_matching("\n".join(kept), tuple(sorted(paths)), where)) if kept else set()


@lru_cache(1024)
def _question(patterns: str, paths: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns (git's complaint or "", the paths that match).
    The result is cached, because most tasks of a set have the same patterns."""
    with tempfile.TemporaryDirectory(prefix="swelab-ignore-") as folder:
        tree = Path(folder)
        git(tree, "init", "-q", "--template=")
        (tree / ".git" / "info").mkdir(exist_ok=True)
        (tree / ".git" / "info" / "exclude").write_text(patterns + "\n", encoding="utf-8")
        given = "".join(f"{path}\0" for path in paths).encode()
        done = git(tree, "check-ignore", "--no-index", "--stdin", "-z", data=given)
    if done.returncode not in (0, 1):
        return shorten(done.stderr.decode(errors="replace")), ()
    return "", tuple(path for path in done.stdout.decode(errors="replace").split("\0") if path)


def _matching(patterns: str, paths: tuple[str, ...], where: str) -> tuple[str, ...]:
    complaint, found = _question(patterns, paths)
    if complaint:
        raise InputError(f"its patterns cannot be read: {complaint}", where, "lines as in .gitignore")
    return found


TESTS = "test.py"
ENTRYPOINT = "python -m pytest --tb=short -s test.py"
STATEMENT = "Some tests of test.py fail. Find the fault in the code and repair it. The tests are right."
IGNORE, READONLY = ".debugignore", ".debugreadonly"
MOST_BYTES = 1 << 20
"""Maximum total size of a task's files in bytes."""
MOST_FILES = 50
MOST_NAME_BYTES = 255
AT_ONCE = 256
"""Number of rows of a Parquet file that are held in memory."""
_ID = re.compile(r"[A-Za-z0-9_.+-]{1,200}")
_OPERATORS = set("();<>|&")


@dataclass(frozen=True)
class SmallTask:
    """A task as its publisher provides it.

    files: maps paths to texts. code: path of the file with the bug. entrypoint: the command that runs the
    tests. readonly: files that an agent must not change. hidden: whether an agent must not see the tests.
    """

    name: str
    where: str
    statement: str
    entrypoint: str
    files: dict[str, str]
    code: str
    readonly: tuple[str, ...] = (TESTS,)
    hidden: bool = False


def read_small_tasks(path: Path, entrypoint: str | None = None) -> Iterator[SmallTask]:
    """Yields the tasks of a file with rows, or of a folder with task folders, sorted by name.

    entrypoint: the command for tasks without one. Raises InputError naming the row or folder and the field.
    """
    if path.is_dir():
        found = task_folders(path)
        if not found:
            raise InputError("no folder in it", path, "a folder for each task")
        yield from (read_folder(each, entrypoint) for each in found)
    elif path.suffix == ".jsonl":
        yield from (
            read_row(row, f"{path}, line {number}", entrypoint) for number, row in numbered_jsonl(path)
        )
    elif path.exists():
        rows = enumerate(read_rows(path, AT_ONCE))
        yield from (read_row(row, f"{path}, row {number}", entrypoint) for number, row in rows)
    else:
        raise InputError("no such file or folder", path, "rows, or a folder of task folders")


def task_folders(path: Path) -> list[Path]:
    """Returns the folders in `path`, sorted by name, without hidden folders."""
    return [each for each in sorted(path.iterdir()) if each.is_dir() and not each.name.startswith(".")]


def read_row(row: Any, where: str, entrypoint: str | None = None) -> SmallTask:
    """Returns the task of a row. Raises InputError naming the field."""
    if not isinstance(row, dict):
        raise InputError(f"a {type(row).__name__}", where, "a JSON object")
    extra = _object(row, "extra_info", where) | _object(row, "entry", where)
    name = row.get("task_id") or extra.get("task_id") or extra.get("task_name")
    if not isinstance(name, str):
        raise InputError(f"field task_id is {_kind(name)}", where, "a string")
    where = f"{where} ({shorten(name)})"
    given = extra.get("files", row.get("files"))
    listed = _parse(given, "extra_info.files", where) if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed:
        raise InputError(f"field extra_info.files is {_kind(listed)}", where, "a list of {path, content}")
    files: dict[str, str] = {}
    for number, file in enumerate(listed):
        at = f"extra_info.files[{number}]"
        if not isinstance(file, dict):
            raise InputError(f"field {at} is {_kind(file)}", where, "an object with path and content")
        for field in ("path", "content"):
            if not isinstance(file.get(field), str):
                raise InputError(f"field {at}.{field} is {_kind(file.get(field))}", where, "a string")
        if file["path"] in files:
            raise InputError(f"field {at}.path: {file['path']!r} is there twice", where, "each path once")
        files[file["path"]] = file["content"]
    command = extra.get("entrypoint", row.get("entrypoint"))
    if command is not None and not isinstance(command, str):
        raise InputError(f"field extra_info.entrypoint is {_kind(command)}", where, "a string")
    statement = row.get("problem_statement")
    if statement is not None and not isinstance(statement, str):
        raise InputError(f"field problem_statement is {_kind(statement)}", where, "a string")
    return small_task(name, where, statement or "", command or entrypoint or "", files)


def small_task(name: str, where: str, statement: str, entrypoint: str, files: dict[str, str]) -> SmallTask:
    """Checks files and makes a task of them. Raises InputError.
    `.debugignore` and `.debugreadonly` may be among the files."""
    if not _ID.fullmatch(name):
        wanted = "letters, digits and _ . + -, 200 at most: it is a file name here"
        raise InputError(f"field task_id is {shorten(name)!r}", where, wanted)
    for path, text in files.items():
        _check_path(path, files, where)
        if not is_encodable(text) or "\0" in text:
            raise InputError(f"{path} holds half a character or a zero byte", where, "text in UTF-8")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in files.values())
    if size > MOST_BYTES or len(files) > MOST_FILES:
        what = f"{len(files)} files of {size:,} bytes"
        raise InputError(what, where, f"at most {MOST_FILES} of {MOST_BYTES:,}")
    ignored = matching(files.pop(IGNORE, ""), files, where)
    readonly = matching(files.pop(READONLY, ""), files, where)
    if TESTS not in files:
        raise InputError(f"no {TESTS}", where, f"tests in {TESTS}")
    code = _code(files, where)
    if code in ignored:
        raise InputError(f"{IGNORE} hides {code}", where, "code that an agent can see")
    if code in readonly:
        raise InputError(f"{READONLY} bars {code}", where, "code that an agent can change")
    visible = {path: text for path, text in files.items() if path not in ignored or path == TESTS}
    return SmallTask(
        name,
        where,
        statement or STATEMENT,
        _runs_pytest(entrypoint or ENTRYPOINT, where),
        visible,
        code,
        tuple(path for path in visible if path == TESTS or path in readonly),
        TESTS in ignored,
    )


def _check_path(path: str, files: dict[str, str], where: str) -> None:
    """Raises InputError if no file can be written at `path` within the task."""
    pure = PurePosixPath(path)
    if not is_inside(path):
        raise InputError(f"the path {shorten(path)!r} leaves the task", where, "a path within it")
    if any(parent.as_posix() in files for parent in pure.parents):
        raise InputError(f"the path {shorten(path)!r} lies below a file", where, "a folder above it")
    if max(len(part.encode("utf-8", "surrogatepass")) for part in pure.parts) > MOST_NAME_BYTES:
        what = f"the path {shorten(path)!r} is too long"
        raise InputError(what, where, f"{MOST_NAME_BYTES} bytes a name")


def _code(files: dict[str, str], where: str) -> str:
    """Returns the path of the Python file with the bug. Raises InputError if this is not clear.
    It must be the only Python file besides the tests, or the only one named *_code.py."""
    found = [path for path in files if path.endswith(".py") and path != TESTS]
    named = [path for path in found if path.endswith("_code.py")]
    for each in (found, named):
        if len(each) == 1:
            return each[0]
    what = f"{len(found)} files of code ({', '.join(found[:3])})" if found else "no file of code"
    raise InputError(what, where, f"one .py beside {TESTS}, or one whose name ends with _code.py")


def _runs_pytest(command: str, where: str) -> str:
    """Returns the command, which must be one run of pytest. Raises InputError."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        words = []
    names = {word.rpartition("/")[2] for word in words}
    several = "\n" in command or any(set(word) <= _OPERATORS or word.startswith("#") for word in words)
    if several or not {"pytest", "py.test"} & names:
        raise InputError(f"field entrypoint is {shorten(command)!r}", where, "one run of pytest")
    return command


def read_folder(folder: Path, entrypoint: str | None) -> SmallTask:
    """Returns the task of a folder. Raises InputError."""
    files: dict[str, str] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise InputError("a link", path, "plain files")
        if "__pycache__" in path.parts or not path.is_file():
            continue
        size += path.stat().st_size
        if size > MOST_BYTES or len(files) >= MOST_FILES:
            raise InputError(f"too large at {path.name}", folder, f"{MOST_FILES} files, {MOST_BYTES:,} bytes")
        try:
            files[path.relative_to(folder).as_posix()] = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"byte {error.start} is no UTF-8", path, "text in UTF-8") from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path) from None
    return small_task(folder.name, str(folder), "", entrypoint or "", files)


def _object(row: Record, field: str, where: str) -> Record:
    """Returns a nested object, which may be a JSON string, or {} if it is absent."""
    value = row.get(field)
    if value is None:
        return {}
    value = _parse(value, field, where) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise InputError(f"field {field} is {_kind(value)}", where, "an object, or one as a JSON string")
    return value


def _parse(text: str, field: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InputError(f"field {field} is no JSON: {shorten(text)!r}", where, "JSON") from None


def _kind(value: Any) -> str:
    return "missing" if value is None else "empty" if value in ("", [], {}) else f"a {type(value).__name__}"
