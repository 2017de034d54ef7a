"""Implements the tools view, rewrite, grep and listdir."""

import shlex

from swelab.agents.debugger.line_changes import diff_lines
from swelab.agents.debugger.pdb_session import ROOT, PdbSession
from swelab.agents.debugger.task_files import TaskFiles
from swelab.files.text_lines import lines_of, python_lines
from swelab.sandbox import Limits, Sandbox
from swelab.sandbox.protocol import PathRefused

LONGEST_LINE = 300
_GREP = (
    "grep -nrEHI --exclude-dir=.git -e {pattern} -- {path} 2>&1 | cut -c1-{width} | head -n {lines}; "
    "exit ${{PIPESTATUS[0]}}"
)
_LIST = (
    "find {path} -mindepth 1 -maxdepth {depth} -not -path '*/.git*' -printf '%y %P\\n' 2>&1 | "
    "sort -k2 | head -n 2000"
)


def view(files: TaskFiles, pdb: PdbSession, lines: int, path: str, start: int, end: int, bare: bool) -> str:
    """Returns at most `lines` lines of a file, with line numbers unless `bare`. start, end: 0 if not
    given."""
    relative = files.relative(path)
    if not relative or (text := files.text(relative)) is None:
        return listdir(files, path, 1)
    file_lines = list(map(_without_end, python_lines(text)))
    if not file_lines:
        return f"{relative} is empty."
    first, last = max(1, start or 1), min(end or len(file_lines), len(file_lines))
    if first > len(file_lines):
        return f"{relative} has {len(file_lines)} lines; line {first} is behind its end."
    if last < first:
        return f"The range {first} to {end} holds no line; {relative} has {len(file_lines)} lines."
    shown = min(last, first + lines - 1)
    stops = {each.line for each in pdb.breakpoints if each.file == ROOT + relative}
    width = len(str(shown))
    body = [
        line if bare else f"{'B' if number in stops else ' '} {number:>{width}} {line}"
        for number, line in enumerate(file_lines[first - 1 : shown], first)
    ]
    head = f"{relative}, lines {first} to {shown} of {len(file_lines)}"
    head += " (read-only):" if files.is_read_only(relative) else ":"
    more = f"[{last - shown} more lines: view {relative} with start {shown + 1}.]"
    return "\n".join([head, *body, *([more] if shown < last else [])])


def _without_end(line: str) -> str:
    """Returns a line without the last character of its end: Python also ends a line at a lone CR."""
    return line[:-1] if line.endswith(("\n", "\r")) else line


def rewrite(
    files: TaskFiles, pdb: PdbSession, path: str, start: int, end: int, code: str
) -> tuple[str, bool]:
    """Replaces lines. Returns (text for the policy, whether the file changed). start, end: 0 if not given."""
    relative = files.relative(path)
    if not relative or (text := files.text(relative)) is None:
        return f"There is no file {path}; rewrite makes no new ones.", False
    if files.is_read_only(relative):
        return f"{relative} is read-only and stays as it is.", False
    before = python_lines(text)
    new = [f"{line}\n" for line in code.split("\n")]
    if code.endswith("\n"):
        new.pop()
    if not start and not end:
        after = new
    else:
        first, last = start or 1, end or start
        if first < 1 or last < first:
            return f"The range {first} to {last} holds no line.", False
        if first > len(before) and before and not before[-1].endswith("\n"):
            before[-1] += "\n"
        after = [*before[: first - 1], *new, *before[last:]]
    changed = "".join(after)
    if changed == text:
        return f"{relative} is as it was: the new code is the old.", False
    try:
        files.sandbox.put(relative, changed.encode("utf-8", "surrogateescape"))
    except (PathRefused, OSError, UnicodeError) as error:
        return f"{relative} was not changed: {error}.", False
    old, now = (list(map(_without_end, each)) for each in (before, after))
    diff = "\n".join(diff_lines(old, now, relative))
    told = pdb.move_breakpoints(relative, old, now)
    return f"{relative} was rewritten:\n{diff}" + (f"\n{told}" if told else ""), True


def grep(files: TaskFiles, sandbox: Sandbox, limits: Limits, pattern: str, path: str, most: int) -> str:
    """Returns at most `most` matching lines of files."""
    place = _inside(files, path)
    if place is None:
        return f"{path} lies outside the working folder."
    settings = {
        "pattern": shlex.quote(pattern),
        "path": shlex.quote(place),
        "width": LONGEST_LINE,
        "lines": 5000,
    }
    result = sandbox.exec(_GREP.format(**settings), limits=limits)
    lines = [line.removeprefix("./") for line in lines_of(result.output.decode("utf-8", "replace"))]
    if result.returncode == 2:
        return "\n".join(lines[:5]) or "grep failed."
    if result.timed_out:
        return f"grep was stopped after {limits.wall_seconds:g} s."
    shown = [line for line in lines if not files.is_hidden(line.partition(":")[0])]
    more = [f"[{len(shown) - most} more lines match.]"] if len(shown) > most else []
    return "\n".join([*shown[:most], *more]) or f"No line matches {pattern!r}."


def listdir(files: TaskFiles, path: str, depth: int) -> str:
    """Returns a list of a folder's files, `depth` levels deep."""
    place = _inside(files, path)
    if place is None:
        return f"{path} lies outside the working folder."
    command = _LIST.format(path=shlex.quote(place), depth=max(1, min(depth, 20)))
    found = files.sandbox.exec(f"test -d {shlex.quote(place)} || exit 3; {command}")
    if found.returncode == 3:
        return f"There is no file or folder {path}."
    base, shown = files.relative(path), []
    for line in lines_of(found.output.decode("utf-8", "replace")):
        kind, _, name = line.partition(" ")
        whole = f"{base}/{name}" if base else name
        if not files.is_hidden(whole):
            shown.append(f"{whole}/" if kind == "d" else whole)
    return "\n".join(files.list_paths(shown)) or f"{path} is empty."


def _inside(files: TaskFiles, path: str) -> str | None:
    """Returns a path for a command in the working folder, or None if the path is outside of that folder."""
    found = files.relative(path)
    return f"./{found}" if found else "." if files.relative(f"{path}/x") == "x" else None
