"""Tools that watch attacks on a sandbox from the host."""

import os
import random
import time
from pathlib import Path

from swelab.sandbox import Limits
from tests.processes import command_line, matching
from tests.processes import processes_with as processes_with

SHORT = Limits(wall_seconds=120, cpu_seconds=60, memory_bytes=512 << 20, processes=48)
"""Small limits, but long timeouts: a command that ends does so on any machine.
"""

DEEP = """\
python -c 'import os, time
for i in range(200):
  for _ in range(25): os.mkdir("d" * 200); os.chdir("d" * 200)
  open("f", "wb").write(b"x" * (8 << 20)); time.sleep(.01)
time.sleep(600)'"""
MAPPED = """\
python -c 'import ctypes, os, time
libc = ctypes.CDLL(None)
for i in range(200):
  with open("f", "wb+") as f: f.write(b"x" * (8 << 20)); f.flush(); libc.mmap(None, 4096, 1, 1, f.fileno(), 0)
  os.unlink("f"); time.sleep(.01)
time.sleep(600)'"""
SOCKETS = """\
python -c 'import os, socket, time
listening = socket.create_server(("127.0.0.1", 0))
def pair():
  if "KIND" == "unix": return socket.socketpair()
  return socket.create_connection(listening.getsockname()), listening.accept()[0]
for _ in range(12):
  if os.fork() == 0:
    kept = []
    for _ in range(300):
      kept.append(pair()); kept[-1][0].setblocking(False)
      try:
        while kept[-1][0].send(b"x" * 65536): pass
      except BlockingIOError: pass
    time.sleep(600)
time.sleep(600)'"""
"""Commands that use up memory in ways that no list of files or processes shows."""


def program(pid):
    """Returns the name of the program that a process runs; "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def process_count():
    return sum(name.isdigit() for name in os.listdir("/proc"))


def token():
    """Returns a number of seconds for `sleep` that no other process uses."""
    return f"3{random.randrange(10**6)}.{random.randrange(10**6):06}"


def text(result):
    return result.output.decode()


PATIENCE = 120.0
"""Maximum number of seconds to wait for an event. No verdict depends on the speed of the machine."""


def until(condition, seconds=PATIENCE):
    """Waits until `condition` returns a true value, and returns that value. Returns False after `seconds`."""
    ends = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return result


def writers(log):
    """Maps pids to command lines, for the processes that write to `log`.

    (sglang renames its child processes.)
    """
    lines = {}

    def writes(folder):
        if (folder / "fd/1").readlink() == log:
            lines[int(folder.name)] = command_line(folder)

    matching(writes)
    return lines
