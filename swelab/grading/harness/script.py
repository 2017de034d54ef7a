"""Reads eval scripts and test commands: where they run pytest, which command sets their exit code, and which
folders they put on PYTHONPATH.
"""

import posixpath
import re
import shlex

from swelab.grading.harness.logs import OFFICIAL_END, OFFICIAL_START
from swelab.sandbox import WORKDIR

KEEPS_CODE = "trap 'exit \"$swelab_code\"' EXIT"
"""A script with this text exits with the code of its single pytest run, even if commands follow that run."""

_PYTEST = re.compile(r"(?:^|[\s/(])(?:py\.test|pytest)(?=[\s)]|$)")
_SET_UP = re.compile(r"\s*(?:(?:source|\.|export|unset|cd|conda|eval|module)\s|conda\(\))")
_SETS_PATH = re.compile(r"""(?<![\w$:{./-])PYTHONPATH=((?:""|'')?(?=[\s;&|)]|$))?""")
_WORD = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`|\\.|[^\s;&|()<>"'`])*"""
_PATH_VALUE = re.compile(rf"(?<![\w$:{{./-])PYTHONPATH\+?=({_WORD})")
_ENTERS = re.compile(rf"(?:(?:^|[\s;&|(\"'])cd|\s-C|\s--chdir)[ =]+({_WORD})", re.M)
_SAME_FOLDER = re.compile(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`")
_OWN_VALUE = re.compile(r"\$PYTHONPATH\b|\$\{PYTHONPATH\b[^}]*\}")
_GIT = re.compile(r"\bgit\b")
_FUNCTION = re.compile(r"^\s*(?:function\s|[\w-]+\s*\(\))", re.M)
_MIDDLE = re.compile(r"(?:then|else|elif|do|fi|done|esac)\b|[{})]|;;")
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?[^\n]*\n.*?^\1$", re.M | re.S)


def runs_of_pytest(text: str) -> list[str]:
    """Returns the commands of a script that run pytest."""
    parts = re.split(r"[;&|\n]+", _HERE_DOCUMENT.sub("", text))
    return [part for part in parts if _PYTEST.search(part) and " install " not in part]


def ends_in_pytest(text: str) -> bool:
    """Returns whether a command runs pytest once, as its last step, so that its exit code is pytest's."""
    return len(runs_of_pytest(text)) == 1 and _ends_line(text.rstrip().rpartition("\n")[2])


def with_test_status(text: str) -> str:
    """Changes an eval script so that it exits with the exit code of its tests.

    The scripts of SWE-bench and SWE-Gym run further commands after the tests. So the code is stored right
    after the line that runs pytest. `set -e` is switched off there, since a guarded run of pytest always
    fails. If no single line runs pytest, the code is stored before the line with the end marker. A script is
    unchanged if it has no such marker or already stores the code.
    """
    if KEEPS_CODE in text:
        return text
    lines = text.split("\n")
    hidden = _here_documents(text)
    places = [n for n, line in enumerate(lines) if n not in hidden and runs_of_pytest(line)]
    if len(runs_of_pytest(text)) == len(places) == 1 and _simple(lines, places[0]) and "trap " not in text:
        place = places[0]
        kept = ["set +e", lines[place], "swelab_code=$?", KEEPS_CODE]
        return "\n".join([*lines[:place], *kept, *lines[place + 1 :]])
    ends = [number for number, line in enumerate(lines) if OFFICIAL_END in line]
    if not ends:
        return text
    return "\n".join([*lines[: ends[0]], "swelab_code=$?", *lines[ends[0] :], 'exit "$swelab_code"', ""])


def with_line_before_tests(text: str, line: str) -> str:
    """Inserts a line into an eval script, before the statement that runs pytest or the marker of the tests.

    `git` does nothing in the lines that follow, which restore files after the tests. A script without such a
    statement gets the line as its first, if it does not use git. Raises ValueError if no place is right.
    """
    lines = text.split("\n")
    hidden = _here_documents(text)
    places = [
        n
        for n, each in enumerate(lines)
        if n not in hidden and (OFFICIAL_START in each or runs_of_pytest(each))
    ]
    place = next((n for n in places if _stands_alone(lines, n)), None)
    if place is None and places:
        place = _statement_start(lines, places[0])
        if _GIT.search(part := "\n".join(lines[place : places[0]])) or _FUNCTION.search(part):
            raise ValueError("tests in a function, or in one statement with git")
    elif place is None and not _GIT.search(text):
        place = int(text.startswith("#!"))
    if place is None:
        raise ValueError("git, and no line that runs pytest or marks the tests")
    return "\n".join([*lines[:place], line, "git() { :; }", *lines[place:]])


def launcher(text: str) -> str:
    """Returns Bash that starts pytest as this command or script does: with its set-up, but without arguments.

    Other lines of a script are kept if they change the shell's variables or folder.
    """
    text = _HERE_DOCUMENT.sub("", text)
    command = (runs_of_pytest(text) or [""])[-1]
    found = _PYTEST.search(command)
    head = text[: text.rfind(command)] if found else ""
    before = [part.strip() for part in re.split(r"\n|&&|;(?![^{]*})", head) if _SET_UP.match(part)]
    return "\n".join([*before, command[: found.end()].strip() if found else "python -m pytest"])


def with_folder_first(text: str, folder: str) -> str:
    """Returns a command or script with `folder` in front of every value that it gives PYTHONPATH."""
    return _SETS_PATH.sub(lambda match: f"PYTHONPATH={folder}" + ":" * (match[1] is None), text)


def import_folders(text: str) -> list[str]:
    """Returns the folders of the repository that a command or script puts on PYTHONPATH, "." for its root.

    A relative folder counts from each folder that the text enters. Raises ValueError with the assignment, or
    the folder that is entered, if its text does not tell the folder.
    """
    values = [found[1] for found in _PATH_VALUE.finditer(text)]
    if not values:
        return []
    places = [WORKDIR]
    for found in _ENTERS.finditer(text):
        target = _plain(found[1], found[0])
        places += [posixpath.join(places[-1], target), posixpath.join(WORKDIR, target)]
    entries = [each for value in values for each in _plain(value, f"PYTHONPATH={value}").split(":")]
    paths = {
        posixpath.relpath(posixpath.join(place, entry), WORKDIR) for place in places for entry in entries
    }
    return sorted(path for path in paths if path.partition("/")[0] != "..")


def _plain(word: str, where: str) -> str:
    """Returns a word of the shell without quotes. Raises ValueError with `where` if the shell must expand it
    to tell a folder."""
    plain = re.sub(r"[\"']", "", _SAME_FOLDER.sub(".", _OWN_VALUE.sub("", word)))
    if re.search(r"[$`*?\[\\{\s]", plain):
        raise ValueError(where.strip())
    return plain


def _here_documents(text: str) -> set[int]:
    """Returns the numbers of the lines inside here-documents, and of the lines that open a here-document."""
    found: set[int] = set()
    for match in _HERE_DOCUMENT.finditer(text):
        first = text.count("\n", 0, match.start())
        found |= set(range(first, first + match[0].count("\n") + 1))
    return found


def _simple(lines: list[str], place: int) -> bool:
    """Returns whether a line is a complete command, so that lines can be inserted before and after it."""
    return _stands_alone(lines, place) and _ends_line(lines[place])


def _statement_start(lines: list[str], place: int) -> int:
    """Returns the first line of the statement to which a line belongs."""
    while place and (not _stands_alone(lines, place) or _MIDDLE.match(lines[place])):
        place -= 1
    return place


def _stands_alone(lines: list[str], place: int) -> bool:
    """Returns whether a line can be inserted before a line."""
    joined = place and lines[place - 1].rstrip().endswith(("\\", "|", "&&", "||"))
    return not joined and not lines[place][:1].isspace()


def _ends_line(line: str) -> bool:
    """Returns whether pytest sets the exit code of a line: only commands after `&&` may follow pytest."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    except ValueError:  # an unclosed quotation
        return False
    places = [n for n, word in enumerate(words) if word.rpartition("/")[2] in ("pytest", "py.test")]
    if not places or line.endswith("\\") or words[0] in ("if", "while", "until", "for", "(", "{", "!"):
        return False
    operators = [word for word in words[places[0] :] if set(word) <= set("();<>|&")]
    return set(operators) <= {"&&", ">", ">>", ">&"}
