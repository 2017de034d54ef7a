"""Output, time, memory and disk of a command in a sandbox, each pushed over its limit."""

import tracemalloc

import pytest

from swelab.sandbox import CpuExceeded, Limits, OutOfMemory, SandboxFull, Timeout
from tests.contract.attacks import DEEP, MAPPED, PATIENCE, SHORT, processes_with, text, token

pytestmark = [pytest.mark.real, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker")
HOG = "for i in 1 2 3 4 5; do python -c 'import time; b = b\"x\" * 70000000; time.sleep(600)' & done; wait"
LONG = 600.0
"""A wall time that never ends a command before another limit does."""


# -- output


@pytest.mark.on_docker
def test_output_is_bytes_in_the_order_written(sandbox):
    result = sandbox.exec(r"printf 'a\xff\xfe\x00'; printf 'b\n' >&2; printf c")
    assert result.output == b"a\xff\xfe\x00b\nc"
    assert (result.returncode, result.limit, result.dropped_bytes) == (0, "", 0)


def test_a_hundred_megabytes_are_counted_and_cost_no_memory(sandbox):
    tracemalloc.start()
    try:
        result = sandbox.exec("printf BEGIN; head -c 100000000 /dev/zero; printf END; exit 3")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert result.dropped_bytes == 100_000_008 - SHORT.output_bytes
    assert (result.returncode, result.limit) == (3, "output")
    assert result.output.startswith(b"BEGIN") and result.output.endswith(b"END")
    assert f"[... {result.dropped_bytes} bytes dropped ...]".encode() in result.output


@pytest.mark.on_docker
def test_endless_output_ends_with_the_wall(sandbox):
    result = sandbox.exec("yes", limits=Limits(wall_seconds=0.5))
    assert (result.returncode, result.timed_out, result.limit) == (124, True, "wall")


@pytest.mark.on_docker
@pytest.mark.parametrize(
    "command, limits, error",
    [
        ("sleep 600", {"wall_seconds": 0.5}, Timeout),
        ("while :; do :; done", {"wall_seconds": LONG, "cpu_seconds": 1}, CpuExceeded),
        (HOG, {"wall_seconds": LONG, "memory_bytes": 300 << 20}, OutOfMemory),
        ("head -c 300000000 /dev/zero >big", {"file_bytes": 1 << 20}, SandboxFull),
    ],
)
def test_who_needs_a_whole_result_gets_an_error_of_its_type(sandbox, command, limits, error):
    with pytest.raises(error, match="met its limit"):
        sandbox.exec(f"set -o pipefail; {command}", limits=Limits(**limits)).check()
    assert sandbox.exec("exit 3").check().returncode == 3


@pytest.mark.parametrize("command", ["echo \0", "echo " + "x" * 200_000])
def test_commands_bash_cannot_be_given_fail_as_commands(sandbox, command):
    assert sandbox.exec(command).returncode == 126


def test_half_a_surrogate_pair_is_no_crash(sandbox):
    assert sandbox.exec("echo '\ud800' '\udcff'").output == b"? \xff\n"


@pytest.mark.on_docker
def test_errors_read_as_those_of_bash(sandbox):
    result = sandbox.exec("nosuch; (exit 7)")
    assert text(result) == "bash: line 1: nosuch: command not found\n"
    assert result.returncode == 7


# -- limits


@pytest.mark.on_docker
def test_wall_time_ends_what_ignores_signals(sandbox):
    sleep = token()
    for wall in (0.5, 4, 32, PATIENCE):
        result = sandbox.exec(
            f"trap '' TERM INT HUP; echo begun; sleep {sleep} & sleep {sleep}; sleep {sleep}",
            limits=Limits(wall_seconds=wall),
        )
        if result.output:  # otherwise this machine had not started the command in time
            break
    assert (result.returncode, result.timed_out, result.limit, text(result)) == (124, True, "wall", "begun\n")
    assert result.seconds >= wall
    assert processes_with(sleep) == []


@pytest.mark.parametrize(
    "spin",
    [
        "while :; do :; done",
        "trap '' XCPU; while :; do :; done",
        "for i in 1 2 3; do (while :; do :; done) & done; wait",
        "while :; do timeout 0.2 sh -c 'while :; do :; done'; done",  # no single one reaches the limit
    ],
)
def test_cpu_time_is_of_all_processes_together(sandbox, spin):
    result = sandbox.exec(spin, limits=Limits(wall_seconds=LONG, cpu_seconds=1))
    assert (result.returncode, result.limit, result.timed_out) == (152, "cpu", False)


def test_one_process_is_refused_too_much_memory(sandbox):
    result = sandbox.exec("python -c 'b = bytearray(600 << 20)'")
    assert result.returncode == 1
    assert b"MemoryError" in result.output


@pytest.mark.parametrize(
    "hog",
    [
        HOG,
        "python -c 'import mmap, os, time\n"
        "for i in range(6):\n"
        '  if os.fork() == 0: m = mmap.mmap(-1, 60 << 20); m.write(b"x" * (60 << 20)); time.sleep(600)\n'
        "time.sleep(600)'",
    ],
)
def test_many_processes_share_one_memory_limit(sandbox, hog):
    result = sandbox.exec(hog, limits=Limits(wall_seconds=LONG, memory_bytes=300 << 20))
    assert (result.returncode, result.limit) == (137, "memory")


def test_shared_pages_are_counted_once(sandbox):
    forks = (
        "import os, time\nb = b'x' * (100 << 20)\n"
        "for i in range(8):\n  if os.fork() == 0: time.sleep(1); os._exit(0)\n"
        "time.sleep(1); print('all fit')"
    )
    result = sandbox.exec(f'python -c "{forks}"', limits=Limits(wall_seconds=LONG, memory_bytes=400 << 20))
    assert (text(result), result.returncode) == ("all fit\n", 0)


def test_memory_that_belongs_to_no_process_is_not_given(sandbox):
    result = sandbox.exec(
        "python - <<'E'\nimport os, ctypes\n"
        "try: os.memfd_create('x')\nexcept OSError as e: print(e.strerror)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.shmget(0, 1 << 20, 0o1600), ctypes.get_errno())\nE\n"
        "head -c 500M /dev/zero > /dev/shm/x"
    )
    assert text(result).splitlines()[:2] == ["Function not implemented", "-1 1"]
    assert "No space left on device" in text(result)


def test_a_big_file_is_stopped(sandbox):
    result = sandbox.exec("head -c 10G /dev/zero > big", limits=Limits(file_bytes=10 << 20))
    assert (result.returncode, result.limit) == (153, "file")
    assert int(text(sandbox.exec("stat -c %s big"))) <= 10 << 20
    assert sandbox.exec("truncate -s 10G sparse", limits=Limits(file_bytes=10 << 20)).returncode != 0


@pytest.mark.parametrize(
    "filler",
    [
        "for i in $(seq 1000); do head -c 8M /dev/zero > /tmp/f$i; done",
        "python -c 'import os, time\nfor i in range(200):\n"
        '  f = open(str(i), "wb"); os.unlink(str(i)); f.write(b"x" * (8 << 20)); f.flush(); time.sleep(.01)\n'
        "  globals()[str(i)] = f'",
        pytest.param(DEEP, id="paths longer than the kernel takes"),
        pytest.param(MAPPED, id="removed, closed and mapped"),
        pytest.param(f"chmod 311 .; {DEEP}", id="closed folders"),
    ],
)
def test_many_files_are_stopped(sandbox, filler):
    result = sandbox.exec(filler, limits=Limits(wall_seconds=LONG, disk_bytes=100 << 20))
    assert (result.returncode, result.limit) == (137, "disk")


@pytest.mark.on_docker
def test_no_core_dumps_and_few_descriptors(sandbox):
    assert text(sandbox.exec("ulimit -c; ulimit -Hn; sh -c 'kill -SEGV $$'; ls")).split()[:2] == ["0", "1024"]
    assert text(sandbox.exec("ls")) == "a.txt\n"
