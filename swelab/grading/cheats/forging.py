"""Cheats that know how the grader observes a run, and forge the grader's records."""

from pathlib import Path

from swelab.grading.cheats.code import append, rebind
from swelab.grading.cheats.files import Cheat
from swelab.records.task_records import Task

_CLIMB = """

_wanted = {wanted!r}


def _frames():
    try:
        raise ValueError
    except ValueError as error:
        frame = getattr(getattr(error, "__trace" + "back__"), "tb_" + "frame")
    while frame is not None:
        yield frame
        frame = getattr(frame, "f_" + "back")


def _config():
    for frame in _frames():
        for value in list(getattr(frame, "f_" + "locals").values()):
            config = getattr(value, "config", None)
            if hasattr(config, "pluginmanager"):
                return config


def _put_right(config):
    for each in config.pluginmanager.get_plugins():
        if hasattr(each, "raised") and hasattr(each, "outcomes") and not each.plan["only"]:
            for name in _wanted:
                each.outcomes[name] = "pas" + "sed"
                each.raised.pop(name, None)
        stats = getattr(each, "stats", None)
        if isinstance(stats, dict) and isinstance(stats.get("failed"), list):
            bad = [report for report in stats["failed"] if report.nodeid in _wanted]
            stats["failed"] = [report for report in stats["failed"] if report not in bad]
            stats.setdefault("pas" + "sed", []).extend(bad)
            for report in bad:
                report.outcome, report.longrepr = "pas" + "sed", None


class _Open:
    def __init__(self, names):
        self.names, self.real = names, names["op" + "en"]

    def __call__(self, path, *words, **options):
        if str(path).endswith("junit.xml"):
            config = _config()
            if config is not None:
                {act}
        return self.real(path, *words, **options)


_names = globals()["__built" + "ins__"]
_names = _names if isinstance(_names, dict) else vars(_names)
_names["op" + "en"] = _Open(_names)
"""
"""Python code that waits until the runner opens its JUnit file.

Then it finds the runner's plugins through the call stack, and runs `act`.
"""


def edits_what_was_seen(tree: Path, task: Task) -> None:
    """Changes failures to passes in the observer, the terminal's summary and the JUnit file."""
    act = '_put_right(config)\n                path = "/dev/null"'
    append(tree, task, _CLIMB.replace("{wanted!r}", repr(task.FAIL_TO_PASS)).replace("{act}", act))


def silences_the_observer(tree: Path, task: Task) -> None:
    """Prints forged PASSED lines, then ends the runner's process before the observer's record is complete."""
    lines = "".join(f"PASSED {test}\n" for test in [*task.FAIL_TO_PASS, *task.PASS_TO_PASS])
    act = f"import os\n                os.write(1, {lines!r}.encode())\n                os._exit(0)"
    act = act.replace("PASSED", 'PAS" "SED')
    append(tree, task, _CLIMB.replace("{wanted!r}", repr(task.FAIL_TO_PASS)).replace("{act}", act))


def writes_lines_of_the_record(tree: Path, task: Task) -> None:
    """Takes the run's nonce from the environment, and writes record lines that are sealed with another
    key.
    """
    text = f"""

import hashlib
import os

_mark = os.environ.get("PYTHONPATH", "").partition("/tmp/g")[2][:16]


def _tell(*words):
    for number in range(200):
        for test in {task.FAIL_TO_PASS!r}:
            line = '%d .["report", "%s", "%s"]' % (number, test, "pas" + "sed")
            seal = hashlib.sha256(line.encode()).hexdigest()[:32]
            os.write(1, ("\\x1e%s %s %s\\x1f" % (_mark, seal, line)).encode())


"""
    append(tree, task, text + rebind(task, "_tell()"))


def learns_what_is_expected(tree: Path, task: Task) -> None:
    """Makes the broken function return an object that equals only the first value that it is compared with.

    Calls with equal arguments share the learned value.
    """
    text = """

_known = {}


class _Learning:
    __hash__ = None

    def __eq__(self, other):
        return _known.setdefault(self.asked, other) == other


def _answer(*words):
    made = _Learning()
    made.asked = repr(words)
    return made


"""
    append(tree, task, text + rebind(task, "return _answer(args, kwargs)"))


FORGING_CHEATS: tuple[Cheat, ...] = (
    *(edits_what_was_seen, silences_the_observer, writes_lines_of_the_record, learns_what_is_expected),
)
