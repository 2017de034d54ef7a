"""Sandbox processes that exchange lines with the test, on every backend: obedient, hostile, dying."""

import subprocess
import sys
import threading
import time

import pytest

from swelab.sandbox import Limits, SandboxError, SandboxLost
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, SHORT, processes_with, token, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker", "remote")
PDB = b"(Pdb) "
LONG = Limits(**{**vars(SHORT), "wall_seconds": 600})
LATE = {"timeout": PATIENCE}
BUGGY = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / (len(values) + 1)


print(mean([2, 4]))
"""


@pytest.mark.on_docker
def test_pdb_is_spoken_to(sandbox):
    sandbox.put("mean.py", BUGGY.encode())
    with sandbox.session("python -m pdb mean.py", limits=LONG) as pdb:
        banner = pdb.say(None, until=PDB, **LATE)
        assert banner.end == "prompt" and "-> def mean(values):" in banner.text
        assert "Breakpoint 1 at /testbed/mean.py:5" in pdb.say("b 5", until=PDB, **LATE).text
        assert "-> return total" in pdb.say("c", until=PDB, **LATE).text
        assert pdb.say("p total, len(values)", until=PDB, **LATE).output == b"(6, 2)\n(Pdb) "
        assert "2.0\n" in pdb.say("c", until=PDB, **LATE).text
        left = pdb.say("q", until=PDB, **LATE)
        assert (left.end, left.returncode, left.limit) == ("exit", 0, "")


@pytest.mark.on_docker
def test_it_is_a_command_like_any_other(sandbox):
    sandbox.put("note", b"one")
    sandbox.exec("echo 'echo from bashrc' > ~/.bashrc")
    with sandbox.session('cat note; id -un; pwd; echo "$A"; cat', env={"A": "b\nc"}) as session:
        assert session.say(None, until=b"\nc\n", **LATE).output == b"oneagent\n/testbed\nb\nc\n"
        sandbox.put("note", b"two")  # its files are the sandbox's files
        assert session.say("half \ud800 and \udcff", until=b"\n", **LATE).output == b"half ? and \xff\n"
        assert session.say("", **LATE).output == b"\n"
        assert sandbox.exec("cat note").output == b"two"
        second = sandbox.session("cat")
        lines = [each.say(line, until=b"\n", **LATE).output for each, line in ((second, "2"), (session, "1"))]
        assert lines == [b"2\n", b"1\n"]


@pytest.mark.full
def test_the_end_of_an_answer(sandbox):
    script = "while read -r a b; do echo -n \"$a\"; sleep \"$b\"; echo ' done> '; echo -n '> '; done"
    with sandbox.session(script, limits=LONG) as session:
        assert session.say("x 0", until=b"> ").output == b"x done> \n> "
        late = session.say("slow 1.5", until=b"> ", timeout=0.5)
        assert (late.end, late.output) == ("timeout", b"slow") and 0.4 < late.seconds < 1.4
        assert session.say(None, until=b"> ").output == b" done> \n> "
        assert session.say(None, until=b"> ", timeout=0.2).end == "timeout"  # that prompt was reported before
        quiet = session.say("y 0", quiet=1.5)
        assert (quiet.end, quiet.output) == ("quiet", b"y done> \n> ")
        for wrong in ({"timeout": 0}, {"until": b"x" * 257}, {"quiet": -1}):
            with pytest.raises(ValueError, match="expected"):
                session.say("z 0", **wrong)
        with pytest.raises(ValueError, match="expected at most 1048576"):
            session.say("x" * (1 << 20))


@pytest.mark.on_docker
def test_bytes_of_any_kind_come_as_they_are(sandbox):
    every = (
        "import sys; [(sys.stdout.buffer.write(bytes(range(256))), sys.stdout.flush()) for _ in sys.stdin]"
    )
    with sandbox.session(f'python -c "{every}"') as session:
        for _ in range(2):
            assert session.say("more", until=b"\xfe\xff", **LATE).output == bytes(range(256))
        assert session.say("text", until=b"\xfe\xff", **LATE).text.endswith("\ufffd")


@pytest.mark.full
def test_printing_without_end_is_bounded_and_interrupts_nobody(sandbox):
    limits = Limits(**{**vars(SHORT), "output_bytes": 10_000, "cpu_seconds": 60, "wall_seconds": 60})
    with sandbox.session("read x; yes", limits=limits) as session:
        for line in ("go", None):
            answer = session.say(line, until=b"never", timeout=1)
            assert answer.end == "timeout" and answer.dropped_bytes > 10_000
            assert len(answer.output) < 10_100 and b"bytes dropped" in answer.output
        assert sandbox.exec("echo fine").output == b"fine\n"


@pytest.mark.full
def test_one_that_never_answers_is_killed_at_once(sandbox):
    sleep = token()
    session = sandbox.session(f"trap '' TERM INT HUP; sleep {sleep}; sleep {sleep}", limits=LONG)
    assert session.say("hello?", timeout=0.5).end == "timeout"
    assert processes_with(sleep)
    session.close()
    assert processes_with(sleep) == []
    session.close()
    with pytest.raises(SandboxError, match="the session is closed"):
        session.say("hello?")
    assert sandbox.exec("echo fine").output == b"fine\n"


@pytest.mark.full
def test_one_that_does_not_read_blocks_nobody(sandbox):
    with sandbox.session("sleep 60", limits=LONG) as session:
        assert session.say("x" * 1_000_000, timeout=1).end == "timeout"
        with pytest.raises(SandboxError, match="the process does not read"):
            session.say("x" * 1_000_000, timeout=1)


def test_one_that_reads_only_what_is_answered_gets_a_long_line(sandbox):
    limits = Limits(**{**vars(LONG), "output_bytes": 2_000_000})
    with sandbox.session("cat", limits=limits) as session:
        line = "0123456789" * 90_000
        assert session.say(line, until=b"\n", **LATE).output == line.encode() + b"\n"


@pytest.mark.full
def test_what_is_written_while_nobody_asks_is_told_at_the_next_question(sandbox):
    limits = Limits(**{**vars(LONG), "output_bytes": 2_000_000})
    script = "read x; sleep 0.5; head -c 1000000 /dev/zero | tr '\\0' y; echo; read x; echo \"got $x\""
    with sandbox.session(script, limits=limits) as session:
        assert session.say("go", timeout=0.1).end == "timeout"
        time.sleep(2)
        assert session.say("on", until=b"got on\n", **LATE).output == b"y" * 1_000_000 + b"\ngot on\n"


@pytest.mark.full
def test_one_that_closes_its_streams(sandbox):
    with sandbox.session("echo bye; exec <&- >&- 2>&-; sleep 2; exit 7", limits=LONG) as session:
        assert session.say(None).output == b"bye\n"
        deaf = session.say("are you there?", timeout=0.5)
        assert (deaf.end, deaf.output) == ("timeout", b"")
        ended = session.say("are you there?", timeout=20)
        assert (ended.end, ended.returncode) == ("exit", 7)


@pytest.mark.full
def test_what_it_forked_ends_with_it(sandbox):
    sleep = token()
    command = (
        f"nohup setsid sleep {sleep} & (setsid sleep {sleep} &); echo up; read x; echo last words; exit 3"
    )
    with sandbox.session(command, limits=LONG) as session:
        assert "up\n" in session.say(None).text and processes_with(sleep)
        ended = session.say("go", until=b"never", timeout=20)
        assert (ended.end, ended.output, ended.returncode) == ("exit", b"last words\n", 3)
        assert processes_with(sleep) == []
        again = session.say("still there?", until=b"never")
        assert (again.end, again.output, again.returncode) == ("exit", b"", 3)


TAKE = "python -c 'x = bytearray(90 << 20); import time; time.sleep(60)'"


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "limit", "changed"),
    [
        ("read x; sleep 60", "wall", {"wall_seconds": 2}),
        ("read x; while :; do :; done", "cpu", {"cpu_seconds": 1}),
        (f"read x; {TAKE} & {TAKE}", "memory", {"memory_bytes": 140 << 20}),
        ("read x; head -c 40000000 /dev/zero >big; sleep 60", "disk", {"disk_bytes": 20 << 20}),
    ],
)  # fmt: skip
def test_limits_hold_as_for_any_command(sandbox, command, limit, changed):
    with sandbox.session(command, limits=Limits(**{**vars(LONG), **changed})) as session:
        ended = session.say("go", until=b"never", timeout=40)
    assert (ended.end, ended.limit) == ("exit", limit)
    assert ended.returncode == {"wall": 124, "cpu": 152}.get(limit, 137)
    assert sandbox.exec("echo fine").output == b"fine\n"


@pytest.mark.full
def test_a_fork_bomb_and_a_kill_of_everything(sandbox):
    with sandbox.session("read x; :(){ :|:& };:; sleep 30", limits=LONG) as session:
        session.say("go", timeout=1)
    with sandbox.session("read x; sleep 60 & sh -c 'kill -9 -1'; sleep 60", limits=LONG) as session:
        ended = session.say("go", until=b"never")
        assert (ended.end, ended.returncode) == ("exit", 137)
    assert sandbox.exec("echo fine").output == b"fine\n"


@pytest.mark.on_docker
def test_there_is_no_way_out(sandbox):
    code = b"""import socket
try: socket.create_connection(("1.1.1.1", 53), 2); print("CONNECTED")
except OSError: print("refused")
"""
    sandbox.put("call.py", code)
    with sandbox.session("read x; python call.py; touch /etc/mine || echo denied") as session:
        assert session.say("go", until=b"denied\n", **LATE).text.startswith("refused\n")


@pytest.mark.full
def test_closing_the_sandbox_ends_its_sessions(place, tree):
    sleep = token()
    box = place.start(tree, limits=LONG)
    session = box.session(f"setsid sleep {sleep} & sleep {sleep}")
    waits = []

    def wait():
        try:
            waits.append(session.say(None, **LATE).end)
        except SandboxLost as error:
            waits.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert until(lambda: processes_with(sleep))
    box.close()
    waiter.join(PATIENCE)
    assert waits == ["the sandbox was closed while a command ran"]
    assert processes_with(sleep) == [] and until(lambda: place.left_of(box) == [])
    with pytest.raises(SandboxLost):
        session.say("x")
    with pytest.raises(SandboxLost, match="the sandbox is closed"):
        box.session("cat")
    session.close()


@pytest.mark.full
def test_a_killed_caller_leaves_no_process(place, tree):
    sleep = token()
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom swelab.sandbox import open_backend\n"
        f"box = open_backend({place.backend.name!r}).start(Path({str(tree)!r}))\n"
        f"session = box.session('sleep {sleep} & sleep {sleep}')\nprint('up', flush=True)\ntime.sleep(600)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert caller.stdout.readline() == b"up\n"
    assert until(lambda: processes_with(sleep))
    caller.kill()
    caller.wait()
    caller.stdout.close()
    # A remote sandbox is only gone after its lease.
    assert until(lambda: processes_with(sleep) == [], PATIENCE)


@pytest.mark.full
def test_a_command_that_cannot_be_given(sandbox):
    with pytest.raises(ValueError, match="NUL"):
        sandbox.session("echo \0")
    with pytest.raises(ValueError, match="Argument list too long"):
        sandbox.session("x" * (200 << 10))
    began = time.monotonic()
    with sandbox.session("no-such-program") as session:
        ended = session.say("x", until=b"never")
    assert (ended.end, ended.returncode) == ("exit", 127) and b"not found" in ended.output
    assert time.monotonic() - began < 10
