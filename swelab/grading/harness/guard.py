"""Guards a test run: adds an observer, a folder with a random name, and a key that only the grader knows."""

import io
import json
import secrets
import shlex
import tarfile
from dataclasses import dataclass, field
from importlib import resources

from swelab.grading import inside
from swelab.grading.harness.protected import NOT_PUT_BACK, RESTORE

CLEARED = (
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_THEME", "PYTEST_DEBUG"),
    *("PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONOPTIMIZE", "PYTHONBREAKPOINT", "PYTHONUSERBASE"),
    *("PYTHONPROFILEIMPORTTIME", "PYTHONWARNINGS", "PYTHONPYCACHEPREFIX", "BASH_ENV", "ENV", "GIT_DIR"),
)


@dataclass
class Guard:
    """The random names and the key of one run.

    new: top-level modules that the patch adds. data: files that the patch brings and that the audit does not
    read as Python.
    """

    root: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    seed: int = field(default_factory=lambda: secrets.randbits(48))
    new: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """The guard's own folder in the sandbox, outside the repository."""
        return f"/tmp/g{self.nonce}"

    @property
    def prepared(self) -> str:
        """The folder that contains the patch and the protected files until the tests start."""
        return f"{self.folder}p"

    @property
    def observer(self) -> str:
        """The module name of the observer in this run."""
        return f"observer_{self.nonce}"

    @property
    def junit(self) -> str:
        """The path of the JUnit file that pytest writes."""
        return f"{self.folder}/junit.xml"

    def files(
        self,
        changed: list[str],
        watched: list[str],
        listed: list[str],
        tests: list[str],
        only: dict[str, str] | None = None,
    ) -> dict[str, bytes]:
        """Returns the start-up code, the observer and its plan, by path under the guard's folder.

        changed: Python files that the patch changed. watched: ids of tests; the runner is inspected before
        and after each. listed: the task's test ids. tests: the task's test files. only: the only test files
        to run, each with the text that replaces the file's own text.
        """
        plan = {
            "key": self.key,
            "nonce": self.nonce,
            "root": self.root,
            "changed": changed,
            "new": self.new,
            "data": self.data,
            "listed": listed,
            "watched": watched,
            "tests": tests,
            "only": only is not None,
            "files": only or {},
        }
        code = resources.files(inside)
        parts = {
            name: f"{name}_{self.nonce}" for name in ("observer", "watch", "powers", "channel", "spoiling")
        }
        texts = {part: (code / f"{name}.py").read_text() for name, part in parts.items()}
        startup = (code / "startup.py").read_text()
        for name, part in parts.items():
            place = f"{inside.__name__}.{name}"
            texts = {each: text.replace(place, part) for each, text in texts.items()}
            startup = startup.replace(f"@{name.upper()}@", part)
        startup = startup.replace('"@ROOT@"', repr(self.root))
        return {
            "sitecustomize.py": startup.encode(),
            **{f"{part}.py": text.encode() for part, text in texts.items()},
            "plan.json": json.dumps(plan).encode(),
        }

    def command(self, test_command: str, guarded: bool = True) -> str:
        """Returns Bash that restores protected files and runs `test_command` between this run's markers.

        {folder}/run.tar must exist in the sandbox. It contains `remove`, a list of paths, and in a guarded
        run also `files()`. Exits with the test command's exit code, or with one of these codes before the
        tests:

        92: protected files cannot be restored
        94: the disk is full
        95: the run's output cannot be opened for the observer
        """
        folder = self.folder
        start = f"unset {' '.join(CLEARED)}\nG={self.prepared}\n"
        start += f"R={folder}/remove\ntar -xf {folder}/run.tar -C {folder} || {NOT_PUT_BACK}\n{RESTORE}"
        if guarded:
            options = shlex.quote(f"-p {self.observer} --junitxml={self.junit}")
            start += f"ln -s /proc/$$/fd/1 {folder}/told && : >>{folder}/told || exit 95\n"
            start += f"export PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}} PYTEST_ADDOPTS={options}\n"
            start += f"export PYTEST_PLUGINS={self.observer}\n"
        start += f"rm -rf $G $R {folder}/run.tar\nunset G R\n"
        return start + wrap(test_command, self.nonce)


def wrap(test_command: str, nonce: str) -> str:
    """Returns a shell command that runs `test_command` between the run's markers and prints its exit code."""
    return (
        f"echo; echo '>>> {nonce} start'; ( {test_command}\n); code=$?; "
        f'echo; echo ">>> {nonce} end $code"; exit "$code"'
    )


def pack_tar(files: dict[str, bytes]) -> bytes:
    """Returns an uncompressed tar of files. files: maps relative paths to contents."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def unpack_tar(data: bytes) -> dict[str, bytes]:
    """Returns the contents of the plain files in a tar, by path."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        plain = [entry for entry in tar.getmembers() if entry.isreg() or entry.islnk()]
        return {entry.name: stream.read() for entry in plain if (stream := tar.extractfile(entry))}
