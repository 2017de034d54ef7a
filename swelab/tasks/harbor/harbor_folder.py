"""A task folder of Harbor: its files (only those inside the folder), its settings, and its row."""

import json
import re
import tomllib
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from swelab.records import Record, shorten

SETTINGS, INSTRUCTION, DOCKERFILE = "task.toml", "instruction.md", "environment/Dockerfile"
ROW = "tests/config.json"
"""The file with the row, in our export and in Harbor's conversions of SWE-bench and similar sets."""
SCRIPT, SOLUTION = "tests/test.sh", "solution/solve.sh"
CHECKOUT, RESTORED = "environment/repository.tar", "tests/files.tar"
"""Files that only our own tasks have.
They contain the agent's checkout with the bug, and the clean files that the verifier restores."""
OURS = "swelab"
"""Name of the table in [metadata] to which our export writes."""
COMPOSED = ("docker-compose.yaml", "docker-compose.yml", "singularity-compose.yaml")
CONVERSATION = "trajectory.json"
"""The file with turns of a conversation that an agent gets before its first turn."""
PREAMBLE = """The git repository in /testbed has a fault. Repair it by changing its code, so that what
is described below is right and everything else stays as it is. Leave your changes in the working copy; they
need no commit. Changes to its tests and to the test runner's settings do not count.

"""
"""Text that our export puts before the problem statement."""
MOST_BYTES = 64 << 20
_TABLES = ("task", "metadata", "agent", "verifier", "environment", "solution")
_OF_CONTAINERS = ("env", "gpus", "tpu", "healthcheck", "mcp_servers", "skills_dir")
_UNMET = (
    "verifier.environment.docker_image",
    *(f"{table}.{key}" for table in ("environment", "verifier.environment") for key in _OF_CONTAINERS),
)
"""Keys of task.toml that require features that our sandboxes do not have."""
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_VERSION = re.compile(r"1\.\d{1,3}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Refused(Exception):
    """Raised if a folder cannot be used.
    reason: a few words, used for counts by reason. detail: more about this folder."""

    def __init__(self, reason: str, detail: str = ""):
        self.reason, self.detail = reason, shorten(" ".join(detail.split()))
        super().__init__(f"{reason}: {self.detail}" if detail else reason)


@dataclass(frozen=True)
class HarborFolder:
    """A task folder.

    settings: content of task.toml. instruction: the text that an agent gets. row: content of
    tests/config.json, or {} if the folder has only tests/test.sh to judge a solution.
    """

    path: Path
    settings: Record
    instruction: str
    row: Record

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def by_script(self) -> bool:
        """Whether the folder's script tests/test.sh judges a solution."""
        return not self.row

    @property
    def environment(self) -> Record:
        """The table [environment]."""
        return _table(self.settings, "environment")

    @property
    def ours(self) -> Record:
        """What our export wrote into task.toml, or {} if another program made the folder."""
        return _table(_table(self.settings, "metadata"), OURS)

    @property
    def verifier_env(self) -> dict[str, str]:
        """Returns the verifier's environment variables.
        Raises Refused if a variable takes its value from Harbor's machine."""
        given = _table(self.settings, "verifier").get("env") or {}
        if not (isinstance(given, dict) and all(isinstance(value, str) for value in given.values())):
            raise Refused("task.toml is not Harbor's", f"verifier.env is {given!r}")
        if any("$" in value for value in given.values()):
            raise Refused("a setting that sandboxes here lack", f"task.toml: verifier.env = {given!r}")
        return given

    @property
    def statement(self) -> str:
        """The problem statement.

        This is the row's problem statement if our export made the folder and the instruction is unchanged.
        Otherwise it is the instruction.
        """
        own = self.row.get("problem_statement")
        written = self.instruction.removeprefix(PREAMBLE) if self.ours else self.instruction
        unchanged = self.ours and isinstance(own, str) and _with_line_feeds(own).strip() == written.strip()
        return str(own) if unchanged else written

    @property
    def seconds(self) -> int:
        """The verifier's wall time in seconds, or 0 if task.toml has none. Raises Refused."""
        given = _table(self.settings, "verifier").get("timeout_sec", 0)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e9:
            raise Refused("task.toml is not Harbor's", f"verifier.timeout_sec is {given!r}")
        return ceil(given)

    @property
    def repository(self) -> str:
        """Name of the archive with the task's code, or "" if the code is in an image. Raises Refused."""
        name = self.ours.get("repository") or ""
        if name and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise Refused("a path out of the folder", f"{name!r} is no repository's name")
        return str(name)


def folders_in(place: Path) -> list[Path]:
    """Returns the task folders in `place`, or `place` itself if it is a task folder.
    Ignores hidden folders."""
    if (place / SETTINGS).is_file():
        return [place]
    found = place.iterdir() if place.is_dir() else ()
    return sorted(each for each in found if each.is_dir() and not each.name.startswith("."))


def read_folder(path: Path) -> HarborFolder:
    """Reads a task folder.
    Raises Refused if a required part is missing or broken, or if the folder names no tests."""
    settings = _settings(path)
    _check_needs(path, settings)
    text = text_in(path, INSTRUCTION)
    instruction = _without_canary(text or "")
    if not instruction.strip():
        raise Refused("no instruction.md", "the file is missing" if text is None else "it is empty")
    folder = HarborFolder(path, settings, instruction, _row(path))
    if (asked := folder.verifier_env) and not folder.by_script:
        raise Refused("a setting that sandboxes here lack", f"task.toml: verifier.env = {asked!r}")
    return folder


def file_in(folder: Path, name: str) -> Path | None:
    """Returns the path of a task folder's file, or None if it is missing.
    Raises Refused if the path is outside the folder."""
    path = folder / name
    if not (path.exists() or path.is_symlink()):
        return None
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # before Python 3.12 a cycle of links raises RuntimeError
        raise Refused("a broken file", f"{name}: {error}") from None
    if not target.is_relative_to(folder.resolve()):
        raise Refused("a path out of the folder", f"{name} is a link to {target}")
    if not path.is_file():
        raise Refused("a broken file", f"{name} is no plain file")
    return path


def bytes_in(folder: Path, name: str, most: int = MOST_BYTES) -> bytes | None:
    """Returns the content of a task folder's file, or None if the file is missing. Raises Refused."""
    path = file_in(folder, name)
    if path is None:
        return None
    try:
        if path.stat().st_size > most:
            raise Refused("a broken file", f"{name} has more than {most >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise Refused("a broken file", f"{name}: {error.strerror}") from None


def text_in(folder: Path, name: str) -> str | None:
    """Returns the text of a task folder's file, or None if the file is missing. Raises Refused.
    Line ends become line feeds."""
    data = bytes_in(folder, name)
    try:
        return None if data is None else _with_line_feeds(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Refused("a broken file", f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None


def _settings(path: Path) -> Record:
    """Parses task.toml. Raises Refused."""
    text = text_in(path, SETTINGS)
    if text is None:
        raise Refused("no task.toml")
    try:
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("task.toml is not TOML", str(error)) from None
    version = settings.get("schema_version", settings.get("version", "1.0"))
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise Refused("another version of the format", f"{version!r}, expected 1.x")
    for name in _TABLES:
        if not isinstance(settings.get(name, {}), dict):
            raise Refused("task.toml is not Harbor's", f"{name} is no table")
    return settings


def _check_needs(path: Path, settings: Record) -> None:
    """Raises Refused for a task that needs more than one Linux container and one patch."""
    if settings.get("steps"):
        raise Refused("several steps", "task.toml: steps: one patch is judged here, not a sequence")
    if file_in(path, CONVERSATION):
        raise Refused("a conversation before it", f"{CONVERSATION}: attempts here begin with the instruction")
    for name in COMPOSED:
        if file_in(path, f"environment/{name}"):
            raise Refused("several containers", f"environment/{name}")
    system = _table(settings, "environment").get("os", "linux")
    if str(system).lower() != "linux":
        raise Refused("not of Linux", f"task.toml: environment.os = {system!r}")
    for key in _UNMET:
        *tables, name = key.split(".")
        found = settings
        for table in tables:
            found = _table(found, table)
        if found.get(name):
            raise Refused("a setting that sandboxes here lack", f"task.toml: {key} = {found[name]!r}")
    verifier = _table(settings, "verifier")
    mode = verifier.get("environment_mode") or ("separate" if verifier.get("environment") else "shared")
    for name in ("tests/Dockerfile", "tests/docker-compose.yaml"):
        if mode == "separate" and file_in(path, name):
            raise Refused("an image that has to be built", f"{name}: tests run in the task's own image here")


def _without_canary(instruction: str) -> str:
    """Returns the instruction without canary lines (which mark benchmarks) at its beginning.
    Harbor does not show these lines to agents."""
    lines = instruction.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        del lines[0]
    return "\n".join(lines).lstrip("\n")


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n")


def _row(path: Path) -> Record:
    """Returns the row in tests/config.json, or {} if there is only a script. Raises Refused."""
    text, judged = text_in(path, ROW), file_in(path, SCRIPT) is not None
    if text is None:
        if judged:
            return {}
        raise Refused("nothing that judges", f"neither {ROW} nor {SCRIPT}")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("tests/config.json is not JSON", str(error)) from None
    if not isinstance(row, dict):
        raise Refused("tests/config.json holds no row", f"it is a {type(row).__name__}")
    return row if "FAIL_TO_PASS" in row or not judged else {}


def _table(settings: Record, name: str) -> Record:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}
