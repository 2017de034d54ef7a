"""Progress is an occasional line in a log, and one redrawn line on a terminal. Faults are one line."""

import errno
import io
import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from swelab.console import terminal
from swelab.console.job_runs import machine_record, read_runs
from swelab.console.terminal import Progress, clock, run_script
from swelab.machine import this_machine
from swelab.records import InputError
from tests.conftest import run_program


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_few_lines(monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count(0, 0.1).__next__)
    monkeypatch.setattr(terminal, "time", clock)
    stream = io.StringIO()
    progress = Progress(1000, "grade", stream)
    for number in range(1000):
        progress.done(number % 2 == 0)
    progress.close()
    assert stream.getvalue().splitlines()[-1].startswith("grade: 1000/1000, 500 ok, ")
    assert len(stream.getvalue().splitlines()) == 4, "one each 30 s of 100, and the last"


def test_a_terminal_gets_one_line_that_is_redrawn():
    stream = Terminal()
    progress = Progress(4, "x", stream)
    progress.interval = 0
    progress.skip(2, 1)
    progress.done(True)
    progress.done(None)
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert "x: 4/4, 2 ok" in stream.getvalue()


def test_clock():
    assert [clock(5), clock(65), clock(3725)] == ["0:05", "1:05", "1:02:05"]


@pytest.mark.parametrize(
    "error, text",
    [
        (InputError("bad\nthing", "f.json", "a good one"), "error: f.json: bad thing; expected a good one\n"),
        (
            OSError(errno.ENOSPC, "No space left", "out.json"),
            "error: out.json: disk full; expected room to write\n",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "error: x: Permission denied\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"),
            "error: /proc/x: No such file or directory; expected another path\n",
        ),
    ],
)
def test_faults_are_one_line(error, text, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as ended:
        run_script(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == text


def test_the_log_repeats_standard_error(tmp_path):
    log = tmp_path / "log"
    code = "from swelab.console.terminal import run_script, fail; run_script(lambda: fail('no'))"
    done = run_program([sys.executable, "-c", code], env={"SWELAB_LOG": str(log)})
    assert done.returncode == 2 and done.stderr == log.read_text() == "error: no\n"


CLOCKED = (
    "import time; time.time = lambda: 1e9; from swelab.console.terminal import run_script, fail; "
    "time.time = lambda: 1e9 + 2.5"
)
"""Its process has different times at its start and its end."""


def test_every_run_of_a_job_is_noted_next_to_its_log(tmp_path):
    log = tmp_path / "grade" / "p" / "s" / "000of001.log"
    log.parent.mkdir(parents=True)
    for ending in ("fail('no')", "None", "1 / 0"):
        code = f"{CLOCKED}; run_script(lambda: {ending})"
        subprocess.run([sys.executable, "-c", code], env={"SWELAB_LOG": str(log)}, capture_output=True)
    with log.with_name("000of001.runs.jsonl").open("a") as file:
        file.write('{"started": "20')
    found = list(read_runs(tmp_path))
    assert [(rule, names) for rule, names, _ in found] == [("grade", ["p", "s", "000of001"])] * 3
    assert [run["code"] for *_, run in found] == [2, 0, 1]
    for *_, run in found:
        assert (run["started"], run["seconds"]) == ("2001-09-09T01:46:40+00:00", 2.5)
        assert run["cpu_seconds"] > 0 and run["machine"] == machine_record()
    here = this_machine()
    assert machine_record()["cpus"] == here.cores and machine_record()["processor"]
    assert machine_record()["gpus"] == [gpu.name for gpu in here.gpus]


def test_a_job_of_a_run_that_draws_tells_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("SWELAB_LOG", str(tmp_path / "x.log"))
    Progress(4, "grade", io.StringIO()).skip(1, 1)
    assert not list(tmp_path.iterdir()), "nobody looks"
    monkeypatch.setenv("SWELAB_PROGRESS", "1")
    progress = Progress(4, "grade", io.StringIO())
    progress.skip(1, 1)
    told = json.loads((tmp_path / "x.progress.json").read_text())
    assert told == {"label": "grade", "done": 1, "total": 4, "good": 1, "left": None}
    progress.done(False)
    progress.close()
    told = json.loads((tmp_path / "x.progress.json").read_text())
    assert (told["done"], told["good"]) == (2, 1) and told["left"] >= 0
    monkeypatch.setenv("SWELAB_LOG", str(tmp_path / "none/x.log"))
    Progress(1, "grade", io.StringIO()).close()  # a missing folder is not this job's fault
