"""The files of a task that the agent may see and change.

Tests, and files that match `.debugreadonly`, cannot be rewritten. Files that match `.debugignore` are not
shown. Both patterns are evaluated once by git, before the policy acts.
"""

import fnmatch
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox
from swelab.sandbox.protocol import WORKDIR, PathRefused

READ_BYTES = 4 << 20
"""Maximum size of a file that is shown or rewritten."""
_SCAN = (
    "git -c core.quotePath=false ls-files -z; "
    "for each in .debugreadonly .debugignore; do printf '\\1'; "
    "[ ! -f $each ] || git ls-files -z -c -i --exclude-from=$each; done"
)
_TESTS = ("test.py", "test_*.py", "*_test.py", "conftest.py")
_CONTROL = (".debugreadonly", ".debugignore")


@dataclass
class TaskFiles:
    """The files of a task, as paths relative to the working folder. test_file: a file with tests, or '' if
    unknown."""

    sandbox: Sandbox
    tracked: list[str] = field(default_factory=list)
    read_only: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    tests: frozenset[str] = frozenset()
    test_file: str = ""

    @classmethod
    def of(cls, sandbox: Sandbox, task: Task) -> "TaskFiles":
        """Lists the files of an unchanged checkout. Raises SandboxLost."""
        limits = Limits(output_bytes=16 << 20)
        found = sandbox.exec(_SCAN, limits=limits).output.decode("utf-8", "surrogateescape")
        tracked, read_only, hidden = [
            part.strip("\0").split("\0") for part in (found + "\1\1").split("\1")[:3]
        ]
        tests = {*task.test_files, *task.failing_files}
        likely = [*task.failing_files, *sorted(filter(_is_test, tests)), *sorted(filter(_is_test, tracked))]
        named = [path for path in likely if path in tracked and posixpath.basename(path) != "conftest.py"]
        return cls(
            sandbox,
            tracked,
            frozenset(read_only) - {""},
            frozenset(hidden) - {""},
            frozenset(tests),
            named[0] if named else "",
        )

    def relative(self, path: str) -> str:
        """Returns `path` relative to the working folder. Returns '' for the folder itself and for paths
        outside of it."""
        found = posixpath.normpath(posixpath.join(WORKDIR, path))
        return found.removeprefix(f"{WORKDIR}/") if found.startswith(f"{WORKDIR}/") else ""

    def is_test(self, path: str) -> bool:
        """Returns whether a file contains tests of the task, or has the name of a test file."""
        return path in self.tests or _is_test(path)

    def is_read_only(self, path: str) -> bool:
        """Returns whether the tool rewrite refuses a file."""
        return path in self.read_only or path in _CONTROL or self.is_test(path)

    def is_hidden(self, path: str) -> bool:
        """Returns whether a file, or a folder above it, is hidden from the policy."""
        return path in self.hidden or path.split("/")[0] == ".git"

    def bytes_of(self, path: str) -> bytes | None:
        """Returns the contents of a file, or None if the file is hidden or is no regular file."""
        if not path or "\0" in path or self.is_hidden(path):
            return None
        try:
            return self.sandbox.get(path, READ_BYTES)
        except (FileNotFoundError, PathRefused, OSError):
            return None

    def text(self, path: str) -> str | None:
        """Returns the contents of a file as text, or None if `bytes_of` returns None. Bytes that are not
        UTF-8 become lone surrogates."""
        found = self.bytes_of(path)
        return None if found is None else found.decode("utf-8", "surrogateescape")

    def is_there(self, path: str) -> bool:
        """Returns whether a path is a file that may be shown."""
        return self.bytes_of(path) is not None

    def tree(self) -> str:
        """Returns the tracked files of the working folder, one level deep, for a prompt."""
        return "\n".join(self.list_paths(sorted(_first_level(filter(self._is_visible, self.tracked)))))

    def list_paths(self, paths: Iterable[str]) -> list[str]:
        """Returns paths as lines, with a mark on paths that cannot be rewritten. Folders end with /."""
        return [f"{path} (read-only)" if self.is_read_only(path) else path for path in paths]

    def _is_visible(self, path: str) -> bool:
        return bool(path) and not self.is_hidden(path)


def _first_level(paths: Iterable[str]) -> set[str]:
    return {path.split("/")[0] + ("/" if "/" in path else "") for path in paths}


def _is_test(path: str) -> bool:
    name = posixpath.basename(path)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _TESTS)
