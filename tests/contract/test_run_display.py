"""The display of a workflow run: real Snakemake on a small workflow, with and without a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from swelab.console.run_display import INTO_LOG, take_over
shell.prefix(
    ("" if workflow.output_settings.verbose else INTO_LOG).replace("{{", "{{{{").replace("}}", "}}}}")
    + "export PYTHONPATH={root} PATH={bin}:$PATH; "
)
take_over(workflow)
rule all:
    input: "a.one", "a.two", "a.last"
rule last:
    input: "{{n}}.one", "{{n}}.two"
    output: "{{n}}.last"
    log: "results/logs/last/{{n}}.log"
    shell: "touch {{output}}; SWELAB_LOG={{log:q}} python job.py 2 0.2"
rule try:
    output: "{{n}}.{{kind}}"
    wildcard_constraints: kind="one|two"
    log: "results/logs/try/{{n}}.{{kind}}.log"
    shell: "touch {{output}}; SWELAB_LOG={{log:q}} python job.py 8 0.4"
"""
JOB = """
import sys, time
from swelab.console.terminal import Progress, run_script
from swelab.records import InputError

def main():
    print("to stdout"); print("to stderr", file=sys.stderr)
    bar = Progress(int(sys.argv[1]), "work")
    for number in range(int(sys.argv[1])):
        time.sleep(float(sys.argv[2]))
        bar.done(number > 0)
    bar.close()
    if FAULT:
        raise InputError("the field is wrong", "some.json", "another one")

run_script(main)
"""


@pytest.fixture
def workflow(tmp_path):
    """Returns a function that makes the workflow's folder. With `fault`, its jobs fail at the end."""

    def made(fault=False):
        text = SNAKEFILE.format(root=str(ROOT), bin=os.path.dirname(sys.executable))
        (tmp_path / "Snakefile").write_text(text)
        (tmp_path / "job.py").write_text(JOB.replace("FAULT", str(fault)))
        return [sys.executable, "-m", "snakemake", "--cores", "2", "--workflow-profile", "none", "--nolock"]

    return made


def run(command, tmp_path):
    """Runs a command without a terminal. Returns exit code, stdout and stderr."""
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def on_terminal(command, tmp_path, stop_at=b"", term="xterm-256color", columns=100):
    """Runs a command on a terminal and returns (exit code, output).

    stop_at: text after which the command is interrupted, as by Ctrl-C.
    """
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": str(columns), "LINES": "24"}
    started = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment,
        start_new_session=True,
    )
    os.close(child)
    seen, ends = b"", time.monotonic() + 120
    while time.monotonic() < ends:
        if select.select([parent], [], [], 0.2)[0]:
            try:
                data = os.read(parent, 1 << 16)
            except OSError:
                break
            seen += data
            if stop_at and stop_at in seen:
                os.killpg(started.pid, signal.SIGINT)
                stop_at = b""
        elif started.poll() is not None:
            break
    os.close(parent)
    return started.wait(30), seen.decode()


def test_without_a_terminal_a_job_is_a_line(workflow, tmp_path):
    code, _, text = run(workflow(), tmp_path)
    assert code == 0, text
    lines = text.splitlines()
    assert (
        len([line for line in lines if re.match(r"\d of 4  try a (one|two) +8/8, 7 ok +0:0\d$", line)]) == 2
    )
    assert re.fullmatch(r"3 of 4  last a +2/2, 1 ok +0:0\d", lines[3])
    assert len(lines) == 5 and "\x1b" not in text and "\r" not in text
    log = (tmp_path / "results/logs/try/a.one.log").read_text()
    assert "to stdout" in log and "to stderr" in log and "work: 8/8, 7 ok" in log
    assert not list(tmp_path.rglob("*.progress.json")), "what told how far a job is goes with it"
    code, _, text = run(workflow(), tmp_path)
    assert code == 0 and "Nothing to be done" in text


def test_a_terminal_gets_bars_below_the_lines(workflow, tmp_path):
    code, text = on_terminal(workflow(), tmp_path)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert re.search(r"try a one +\S.* [1-7]/8, [0-6] ok +0:0\d, ends \d\d:\d\d", plain)
    assert re.search(r"0 of 4 jobs, 0:0\d", plain) and "to stderr" not in plain
    assert "\x1b[?25l" not in text, "the cursor is never hidden: a killed run would leave it so"


def test_a_failed_job_is_its_error_and_its_log(workflow, tmp_path):
    code, _, text = run(workflow(fault=True), tmp_path)
    assert code == 1 and "Traceback" not in text and "RuleException" not in text
    assert text.count("FAILED    try a ") == 2
    assert text.count("          error: some.json: the field is wrong; expected another one\n") == 2
    assert "          log: results/logs/try/a.one.log\n" in text
    assert "2 of 4 jobs failed; 0 are done. The same command goes on from here." in text.splitlines()[-1]


def test_an_interrupted_run_says_so_and_leaves_the_terminal_usable(workflow, tmp_path):
    code, text = on_terminal(workflow(), tmp_path, stop_at=b"jobs, 0:01")
    assert code != 0 and "Stopping: running jobs are ended" in text and text.count("stopped   try a ") == 2
    assert "Stopped; 0 are done. The same command goes on from here." in text and "FAILED" not in text
    assert text.rstrip().endswith(".snakemake.log")


def test_a_dry_run_says_what_and_why(workflow, tmp_path):
    code, text, _ = run([*workflow(), "-n"], tmp_path)
    assert code == 0 and re.search(r"^try a one +there is no a.one$", text, re.M)
    assert "Job stats:" in text and not (tmp_path / "results").exists()
    (tmp_path / "a.one").touch()
    (tmp_path / "a.two").touch()
    (tmp_path / "a.last").touch()
    code, text, _ = run([*workflow(), "-n", "--forcerun", "try"], tmp_path)
    assert re.search(r"^last a +a job before makes a.(one|two) and 1 more$", text, re.M)
    assert re.search(r"^try a one +forced execution$", text, re.M)
