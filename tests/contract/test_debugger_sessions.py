"""Live pdb sessions that are abused on every backend: no rollout hangs and no process is left.

SWELAB_SESSIONS is the number of sessions on each backend. The test prints the figures.
"""

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.agents.debugger.pdb_session import PdbSession
from swelab.agents.debugger.task_files import TaskFiles
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import Limits as LoopLimits
from swelab.sandbox import Limits
from tests.contract.attacks import processes_with, token, until
from tests.contract.debugging import recipe

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker", "remote")
SESSIONS = int(os.environ.get("SWELAB_SESSIONS", "12"))
AT_ONCE = 4
HANG = 4.0
"""Seconds to wait where no answer comes. Elsewhere the wait is longer, for busy machines."""
PATIENCE = 120
"""Maximum number of seconds for a session on a busy machine."""
CHECK = "p 1111 + 2222"
"""pdb must still answer this. Output of other processes may stand between its words."""
ABUSES = {
    "hangs": (["c"], "while True: pass", "did not come back to pdb within 4 s"),
    "waits": (["c"], "import time; time.sleep(600)", "did not come back to pdb within 4 s"),
    "asks": (["c"], "input('name? ')", "EOFError"),
    "reads": (["c"], "import sys; print(repr(sys.stdin.read()), 'was all')", "'' was all"),
    "crashes": (["c"], "import os; os._exit(7)", "has ended, with exit code 7"),
    "dies": (["c"], "import os; os.kill(os.getpid(), 11)", "has ended, with exit code 139"),
    "prints": (["c", CHECK], "print(('x' * 99 + '\\n') * 104_858)", "bytes dropped"),
    "forks": (["c", CHECK], "FORKS", "The program finished"),
    "forks into pdb": (
        ["n", "n", "n", CHECK],
        "import os\nif os.fork() == 0:\n  import pdb; pdb.set_trace()\n",
        "",
    ),
    "kills its parent": (["c"], "import os, time; os.kill(os.getppid(), 9); time.sleep(1); print('on')", ""),
    "kills all": (["c"], "import os; os.kill(-1, 9)", ""),
    "closes": (["c"], "import os; [os.close(n) for n in range(20) if n > 2]; os.close(1)", ""),
    "writes marks": (
        ["c", CHECK],
        "import os; os.write(1, b'\\x1e{\\x1e(Pdb) ' * 99)",
        "The program finished",
    ),
}
FORKS = """import os, sys
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "NAME"])
"""


def abuse(place, tree, number, name):
    """Abuses one session in its own sandbox. Returns the kind of abuse, the seconds, and the last output."""
    kind = list(ABUSES)[number % len(ABUSES)]
    commands, program, expected = ABUSES[kind]
    began = time.monotonic()
    with place.start(tree, limits=Limits(memory_bytes=512 << 20, processes=32)) as box:
        path = f"abuse_{name}.py"
        box.put(path, (FORKS.replace("NAME", name) if program == "FORKS" else program).encode())
        settings = DebuggerSettings(session_seconds=100, session_cpu_seconds=60)
        seconds = HANG if "within" in expected else 40.0
        limits = LoopLimits(wall_seconds=seconds, memory_bytes=512 << 20, processes=32)
        pdb = PdbSession(box, recipe().model_copy(update={"limits": limits}), settings, TaskFiles(box))
        said = [pdb.run("start", "python", path)]
        said += [pdb.run(command) for command in commands]
        pdb.close()
        assert box.exec("echo alive").output == b"alive\n"
    text = "\n".join(said)
    assert expected in text, f"{kind}: {said}"
    if commands[-1] == CHECK:
        assert "3333" in said[-1], f"{kind}: {said}"
    return kind, time.monotonic() - began, text


def test_abused_sessions_end_and_leave_nothing(place, tree):
    name = token()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda number: abuse(place, tree, number, name), range(SESSIONS)))
    assert until(lambda: not processes_with(name), 10), "processes are left"
    left, slowest = processes_with(name), max(done, key=lambda each: each[1])
    hung = [kind for kind, seconds, _ in done if seconds > PATIENCE]
    kinds = Counter(kind for kind, _, _ in done)
    print(
        f"\n{place.backend.name}: {len(done)} sessions opened, abused in {len(kinds)} ways: "
        f"{len(hung)} hung, {len(left)} processes left; the slowest ({slowest[0]}) took {slowest[1]:.1f} s"
    )
    assert not hung and not left
