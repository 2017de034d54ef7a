"""Reads the forgeries and honest fixes that are stored as text, and turns each into a patch for a task.

An entry begins with a line `=== name` and lines `key: value`. The entry's Python text follows after an empty
line, and ends before the next entry. Each line `+++ path [way]` begins a further file, which the patch adds.
In the text, `$word` is replaced by a fact about the task, or by an entry of `parts.txt`.
"""

import ast
import base64
import importlib.util
import io
import marshal
import re
import secrets
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath

from swelab.files.python_syntax import parse_python
from swelab.records import InputError
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import decode_patch, git

FOLDER = resources.files("swelab.grading.cheats") / "corpus"
FORGERIES = ("observer", "hidden_code", "equality", "frames", "files", "library", "witness")
HONEST = "honest"
_WORD = re.compile(r"\$(?:([a-z]\w*)|{([a-z]\w*)})")


@dataclass(frozen=True)
class Entry:
    """A forgery or an honest fix.

    kind: the class of a forgery ("A" to "F", "witness") or "honest". does: the purpose of the entry. task:
    the package, or the function with the bug, for which the entry was written; "" if it suits any task.
    """

    name: str
    kind: str
    does: str
    task: str
    text: str

    def suits(self, task: Task) -> bool:
        """Returns whether the entry was written for this task, or for any task."""
        return not self.task or self.task == task.function or f"__{self.task}." in task.instance_id


def entries(*files: str) -> list[Entry]:
    """Returns the entries of these corpus files. Raises InputError if an entry has no class or purpose."""
    return [
        Entry(name, head["class"], head["does"], head.get("on", ""), text)
        for file in files
        for name, head, text in _read(file)
        if _is_marked(file, name, head)
    ]


def _is_marked(file: str, name: str, head: dict[str, str]) -> bool:
    if missing := {"class", "does"} - set(head):
        raise InputError(f"the entry {name} lacks {', '.join(sorted(missing))}", f"{file}.txt", "a full head")
    return True


@cache
def _read(file: str) -> list[tuple[str, dict[str, str], str]]:
    found = []
    for each in re.split(r"^=== ", (FOLDER / f"{file}.txt").read_text(), flags=re.M)[1:]:
        head, _, text = each.partition("\n\n")
        name, *lines = head.split("\n")
        found.append((name, dict(line.split(": ", 1) for line in lines), text.rstrip() + "\n"))
    return found


def patch_of(entry: Entry, task: Task, store: RepoStore) -> str:
    """Returns the patch that an entry makes in a task's checkout.

    Raises InputError if the entry does not fit the task.
    """
    with store.scratch_checkout(task) as tree:
        _write(entry, task, tree)
        git(tree, "add", "-A", "-f")
        return decode_patch(git(tree, "diff", "--binary", "--cached", "HEAD").stdout)


def _write(entry: Entry, task: Task, tree: Path) -> None:
    path = touched_paths(task.patch)[0]
    facts = _facts(task, tree, path)
    main, *others = re.split(r"^\+\+\+ (.+)\n", _fill(entry.text, facts), flags=re.M)
    source = (tree / path).read_text()
    if entry.kind == HONEST:
        top = others[others.index("top") + 1] if "top" in others else ""
        (tree / path).write_text(_repair(source, task, main, top))
        others = [] if top else others
    elif main.strip():
        (tree / path).write_text(f"{source}\n\n{main}")
    for head, text in zip(others[::2], others[1::2]):
        name, _, way = head.partition(" ")
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(WAYS[way.partition(" ")[0]](text.strip() + "\n", way.partition(" ")[2]))


def _facts(task: Task, tree: Path, path: str) -> dict[str, str]:
    """Returns the values that replace `$word` in an entry.

    They are the task's tests, the function with the bug, and the location of that function.
    """
    folder = PurePosixPath(path).parent
    package = "" if str(folder) == "." else ".".join(folder.parts)
    files = {test.partition("::")[0] for test in task.FAIL_TO_PASS}
    facts = {name: text for name, _, text in _read("parts")}
    return facts | {
        "tests": repr(task.FAIL_TO_PASS),
        "names": repr([test.partition("::")[2].split("::")[-1] for test in task.FAIL_TO_PASS]),
        "sizes": repr({name: (tree / name).stat().st_size for name in sorted(files)}),
        "function": task.function.partition("::")[2],
        "folder": f"{folder}/" if package else "",
        "package": f"{package}." if package else "",
        "once": secrets.token_hex(8),
    }


def _fill(text: str, facts: dict[str, str]) -> str:
    """Returns `text` with each `$word` replaced, even inside replacements.

    Raises InputError if a word is unknown.
    """

    def of(match: re.Match[str]) -> str:
        word = match[1] or match[2]
        if word not in facts:
            raise InputError(f"${word} stands for nothing", expected=", ".join(sorted(facts)))
        return _fill(facts[word], facts)

    return _WORD.sub(of, text)


def _repair(source: str, task: Task, function: str, top: str) -> str:
    """Returns `source` with two changes.

    `function` replaces the broken function, and `top` is inserted before the first import.
    """
    node: ast.AST = parse_python(source)
    body = first = getattr(node, "body", [])
    for part in task.function.partition("::")[2].split("."):
        found = [each for each in body if getattr(each, "name", "") == part]
        if not found:
            raise InputError(f"no function {task.function}", task.instance_id, "one that the file has")
        node, body = found[-1], getattr(found[-1], "body", [])
    start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    lines = source.split("\n")
    indent = " " * node.col_offset  # type: ignore[attr-defined]
    lines[start - 1 : node.end_lineno] = textwrap.indent(function.rstrip(), indent).split("\n")  # type: ignore[attr-defined]
    after = [each for each in first if not _opens(each)]
    place = after[0].lineno - 1
    return "\n".join([*lines[:place], *top.strip().split("\n"), *lines[place:]] if top else lines)


def _opens(node: ast.stmt) -> bool:
    """Returns whether a statement must stay at the start of a file: a docstring or a `__future__` import."""
    return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or (
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
    )


def _plain(text: str, _: str) -> bytes:
    return text.encode()


def _in_comment(text: str, encoding: str) -> bytes:
    """Returns the content of a Python file.

    Read as UTF-8, the content is a comment. Read in the declared encoding, it is code.
    """
    code = f"\n{text}"
    if encoding == "utf-7":
        body = "+" + base64.b64encode(code.encode("utf-16-be")).decode().rstrip("=") + "-"
    elif encoding.endswith("unicode_escape"):
        body = "".join(f"\\u{ord(char):04x}" for char in code)
    else:
        body = code.encode().hex()
    return f"# -*- coding: {encoding} -*-\n# {body}\n".encode()


def _zip_file(name: str, data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def _compile(text: str, name: str) -> bytes:
    code = marshal.dumps(compile(text, name, "exec", dont_inherit=True))
    return importlib.util.MAGIC_NUMBER + bytes(12) + code


WAYS: dict[str, Callable[[str, str], bytes]] = {
    "": _plain,
    "comment": _in_comment,
    "latin-1": lambda text, _: f"# coding: latin-1\n{text}".encode("latin-1"),
    "zip": lambda text, name: _zip_file(name, text.encode()),
    "zip-pyc": lambda text, name: _zip_file(f"{name}c", _compile(text, name)),
    "marshal": lambda text, name: marshal.dumps(compile(text, name, "exec", dont_inherit=True)),
}
"""Maps the name of an encoding to a function (text, word) that returns a file's content.

`word` follows the name of the encoding in the corpus.
"""


def assign(listed: list[Entry], tasks: list[Task]) -> Iterator[tuple[Entry, Task]]:
    """Yields each entry with one task that suits the entry, and spreads the entries over the tasks."""
    for place, entry in enumerate(listed):
        suited = [task for task in tasks if entry.suits(task)]
        if suited:
            yield entry, suited[place % len(suited)]
