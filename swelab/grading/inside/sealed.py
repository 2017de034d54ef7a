"""The sealed record of a watched run, and what goes wrong inside the guard itself. PYTEST_DONT_REWRITE

An error of the guard's own code is never taken for an act of the patch: it is written down under the run's
seal at once, with the stack that it met, and says of itself whether a patched file was at work in it.
"""

import hashlib
import importlib.util
import json
import os
import sys
import traceback
from _thread import get_ident

HERE = os.path.dirname(os.path.abspath(__file__))
PLAN = os.path.join(HERE, "plan.json")
ASIDE = frozenset("-h --help -V -VV --version --markers --fixtures --collect-only --co".split())
"""With one of these pytest runs no test: the plan is another process's."""
EXHAUSTED = (RecursionError, MemoryError)
"""What tested code can bring about anywhere: no error of the guard's."""
MOST_FAULTS, MOST_TEXT = 5, 20000


def own_copy(name):
    """A module of the standard library loaded once more, for nobody else to change."""
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


ENCODE, SEAL, DIGEST = own_copy("json.encoder").JSONEncoder().encode, own_copy("hmac").new, hashlib.sha256


def command_words():
    """This process's command line as text."""
    try:
        with open("/proc/self/cmdline", "rb") as stream:
            return [os.fsdecode(word) for word in stream.read().split(b"\0")]
    except OSError:
        return []


def read_plan():
    """The plan of the run, or None where another process has taken it."""
    try:
        with open(PLAN) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def claim():
    """The plan of the run, which goes with the first reading; None in every later process."""
    plan = None if ASIDE.intersection(command_words()) else read_plan()
    if plan is not None:
        os.unlink(PLAN)
    return plan


class Faults:
    """Errors of the guard's own code. As a context: those of the block, which are raised on."""

    def __init__(self, plan):
        self.plan, self.key = plan, bytes.fromhex(plan["key"])
        self.files = {os.path.join(plan["root"], name): name for name in plan["changed"]}
        self.told = []
        self.busy = set()  # threads in which what happens is the guard's own doing

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Exception) and not isinstance(error, EXHAUSTED):
            self.note(error)

    def note(self, error):
        """Writes an error down; its record stands until the session's own takes its place."""
        within = get_ident() in self.busy
        self.busy.add(get_ident())
        try:
            if len(self.told) < MOST_FAULTS:
                self.told.append(self.described(error))
                self.write({"faults": self.told})
        finally:
            if not within:
                self.busy.discard(get_ident())

    def described(self, error):
        """{"error", "traceback", "patched": the patched file that was at work, or ""}."""
        places = [getattr(error, "filename", None)]
        step, frame = error.__traceback__, sys._getframe().f_back
        while step is not None:
            places.append(step.tb_frame.f_code.co_filename)
            step = step.tb_next
        while frame is not None:
            places.append(frame.f_code.co_filename)
            frame = frame.f_back
        patched = [self.files[place] for place in places if type(place) is str and place in self.files]
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        line = traceback.format_exception_only(type(error), error)[-1].strip()
        return {"error": line, "traceback": text[-MOST_TEXT:], "patched": patched[0] if patched else ""}

    def write(self, record):
        """Writes what is known of the run, under its seal."""
        body = ENCODE(record).encode("utf-8", "backslashreplace")
        with open(self.plan["record"], "wb") as stream:
            stream.write(SEAL(self.key, body, DIGEST).hexdigest().encode() + b"\n" + body)


def note_at_start(error):
    """Writes down an error from before the observer took the plan."""
    plan = read_plan()
    if plan is not None:
        Faults(plan).note(error)
