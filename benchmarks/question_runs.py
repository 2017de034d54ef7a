"""Runs questions in a folder of sources, without a sandbox, for `benchmarks.witness`."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swelab.witness import CHANNEL, runtime_files
from swelab.witness.forming import Question, command_args

SECONDS = 600
"""Time limit of a run in seconds."""


@dataclass
class Run:
    """A run: the values that it emitted, its wall seconds, and pytest's output."""

    emitted: bytes
    seconds: float
    text: str


def environment(python_path: Sequence[Path]) -> dict[str, str]:
    """Returns the environment variables of a run."""
    fixed = {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "HOME": tempfile.gettempdir(),
    }
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(map(str, python_path)), **fixed}


def run_tests(python: Path, root: Path, args: Sequence[str], paths: Sequence[Path]) -> Run:
    """Runs the tests themselves, without questions."""
    return _run([str(python), "-m", "pytest", *args], root, environment(paths))


def run_question(
    python: Path,
    root: Path,
    question: Question,
    answers: bool,
    paths: Sequence[Path],
    extra: Sequence[str] = (),
) -> Run:
    """Replaces tests by their question in the folder `root`, runs it, and restores the folder.

    answers: whether to run the form of the question that has the expected values.
    """
    with tempfile.TemporaryDirectory() as scratch:
        code, away = Path(scratch, "code"), Path(scratch, "away")
        for folder in (code, away):
            folder.mkdir()
        for name, data in runtime_files().items():
            (code / name).write_bytes(data)
        files = question.answers if answers else question.files
        before = {name: (root / name).read_bytes() for name in files if (root / name).exists()}
        for number, name in enumerate(question.removed):
            (root / name).rename(away / str(number))
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
        pipe = Path(scratch, "pipe")
        os.mkfifo(pipe)
        chunks: list[bytes] = []
        reader = threading.Thread(target=lambda: chunks.append(pipe.read_bytes()))
        reader.start()
        keep = os.open(pipe, os.O_RDWR)  # lets the reader end even if no value is emitted
        try:
            args = ["--tb=line", *extra, *command_args(question.targets)]
            command = [str(python), "-m", "pytest", "-q", *args]
            run = _run(command, root, environment([code, *paths]) | {CHANNEL: str(pipe)})
        finally:
            os.close(keep)
            reader.join()
            for name in files:
                (root / name).unlink()
            for name, data in before.items():
                (root / name).write_bytes(data)
            for number, name in enumerate(question.removed):
                (away / str(number)).rename(root / name)
        return Run(chunks[0], run.seconds, run.text)


def _run(command: Sequence[str], root: Path, env: dict[str, str]) -> Run:
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=root, env=env, capture_output=True, timeout=SECONDS, errors="replace"
        )
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        text = "timeout"
    return Run(b"", time.monotonic() - start, text)
