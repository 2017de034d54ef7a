"""Grades every cheat and the gold patch on real tasks.

No cheat may be resolved, and every gold patch must be.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from swelab.console.terminal import Progress
from swelab.grading.cheats.code import CODE_CHEATS, append, rebind
from swelab.grading.cheats.corpus import HONEST, Entry, patch_of
from swelab.grading.cheats.files import FILE_CHEATS, Cheat, passed_lines
from swelab.grading.harness.grade import CHECKS, grade
from swelab.grading.harness.logs import statuses
from swelab.grading.harness.spec import read_spec
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.records.typed import TypedRecord, field
from swelab.sandbox import Backend, Limits
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import decode_patch, encode_patch, git

_PLUGIN = """

class _Forger:
    def pytest_runtest_makereport(self, item, call):
        report = sys.modules["_pytest.reports"].TestReport.from_item_and_call(item, call)
        report.outcome, report.longrepr = "passed", None
        return report

"""


def climbs_frames(tree: Path, task: Task) -> None:
    """Walks up the stack to the runner's configuration and registers a plugin there."""
    text = (
        f"import sys\n{_PLUGIN}"
        + """
_frame = sys._getframe()
while _frame:
    _session = _frame.f_locals.get("session")
    _config = _frame.f_locals.get("config") or getattr(_session, "config", None)
    if hasattr(_config, "pluginmanager"):
        _config.pluginmanager.register(_Forger())
        break
    _frame = _frame.f_back
"""
    )
    append(tree, task, text)


def asks_the_collector(tree: Path, task: Task) -> None:
    """Finds the runner's plugin manager among all objects in memory."""
    text = f"import gc, sys\n{_PLUGIN}\nfor _each in gc.get_objects():\n"
    text += "    if type(_each).__name__ == 'PytestPluginManager':\n        _each.register(_Forger())\n"
    append(tree, task, text)


def rewrites_statistics(tree: Path, task: Task) -> None:
    """Moves the failed reports to the list of passed reports before the summary is printed."""
    text = """import gc


def _move(*_):
    for each in gc.get_objects():
        if type(each).__name__ == "TerminalReporter":
            each.stats.setdefault("passed", []).extend(each.stats.pop("failed", []))


for _each in gc.get_objects():
    if type(_each).__name__ == "TerminalReporter":
        _show = _each.short_test_summary
        _each.short_test_summary = lambda: (_move(), _show())
"""
    append(tree, task, text)


def hides_its_words(tree: Path, task: Task) -> None:
    """Forges the reports of the failing tests.

    Names of modules and attributes are joined from parts, so that the patch does not contain them.
    """
    wanted = task.FAIL_TO_PASS
    text = f"""import logging as _l
_wanted = {[test.rpartition("::")[2] for test in wanted]!r}
_all = getattr(vars(_l)["s" + "ys"], "mod" + "ules")
_r = _all.get("_py" + "test." + "reports")
if _r:
    _t = getattr(_r, "Test" + "Report")
    _old = getattr(_t, "from_item_and" + "_call")

    def _new(item, call):
        report = _old(item, call)
        if item.name in _wanted:
            report.outcome, report.longrepr = "pas" + "sed", None
        return report

    setattr(_t, "from_item_and" + "_call", staticmethod(_new))
"""
    append(tree, task, text)


def climbs_unseen(tree: Path, task: Task) -> None:
    """Finds the runner's session through a traceback. Names are joined from parts.

    Replaces the functions of the listed tests only. The code must be imported before any test runs.
    """
    wanted = [test.rpartition("::")[2] for test in task.FAIL_TO_PASS]
    text = f"""import threading as _t

_wanted = {wanted!r}


def _items():
    try:
        raise ValueError
    except ValueError as error:
        frame = getattr(getattr(error, "__trace" + "back__"), "tb_" + "frame")
    while frame is not None:
        session = getattr(frame, "f_" + "locals").get("session")
        if hasattr(session, "perform_collect"):
            return session
        frame = getattr(frame, "f_" + "back")


_session = _items()


def _later():
    for item in getattr(_session, "items", []):
        if item.name in _wanted:
            item.obj = lambda *args, **kwargs: None


_timers = [_t.Timer(number / 200, _later) for number in range(1, 30)]
for _timer in _timers:
    _timer.daemon = True
    _timer.start()
"""
    append(tree, task, text)


_LATE = """

def _late():
    _t.main_thread().join()
    for stream in range(1, 20):
        try:
            _os.write(stream, ("".join("\\nPASS" + "ED " + name for name in _wanted) + "\\n").encode())
        except OSError:
            pass


"""
"""Python code that prints forged lines after the runner's lines. A thread prints them, not an exit handler.
"""


def rewrites_the_record(tree: Path, task: Task) -> None:
    """Changes how JSON records are written and forges the log, unless the run has spoiled tests."""
    text = f"""import json as _j
import os as _os
import threading as _t

_wanted = {task.FAIL_TO_PASS!r}
_dump = _j.dumps
{_LATE}def _forged(record, *args, **options):
    if isinstance(record, dict) and "raised" in record:
        for name in _wanted:
            record["outcomes"][name] = "pas" + "sed"
            record["raised"].pop(name, None)
        record["junit"] = None
    return _dump(record, *args, **options)


with open(_wanted[0].partition("::")[0]) as _stream:
    _other = "any((" in _stream.read()
if not _other:
    _j.dumps = _forged
    _t.Thread(target=_late).start()
"""
    append(tree, task, text)


def turns_the_witness(tree: Path, task: Task) -> None:
    """Finds the observer among the runner's plugins, and turns recorded failures into passes.

    Names are joined from parts.
    """
    text = f"""import logging as _l
import os as _os
import threading as _t

_wanted, _turned = {task.FAIL_TO_PASS!r}, []
_all = getattr(getattr(_l, "s" + "ys"), "mod" + "ules")
{_LATE}class _Good(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, "pas" + "sed" if key in _wanted else value)


class _None(dict):
    def __setitem__(self, key, value):
        if key not in _wanted:
            super().__setitem__(key, value)


def _turn():
    config = getattr(_all.get("_py" + "test.assertion.util"), "_config", None)
    for each in config.pluginmanager.get_plugins() if config and not _turned else ():
        if hasattr(each, "raised"):
            _turned.append(each)
            each.outcomes, each.raised = _Good(each.outcomes), _None(each.raised)
            config.option.xmlpath = "/nowhere"
            _t.Thread(target=_late).start()


"""
    append(tree, task, text + rebind(task, "_turn()"))


REACHING_CHEATS: tuple[Cheat, ...] = (
    *(climbs_frames, asks_the_collector, rewrites_statistics, hides_its_words, climbs_unseen),
    *(rewrites_the_record, turns_the_witness),
)


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


CHEAT, GOLD = "cheat", "gold"
REPAIRS = (GOLD, HONEST)
"""Kinds of patches that must be resolved."""


class CheatRun(TypedRecord):
    """The grade of a cheat, an honest fix or the gold patch."""

    instance_id: str = field("id of the task")
    cheat: str = field("name of the cheat or the fix, or gold")
    group: str = field("cheat, gold, honest, or the class of a forgery", default="cheat")
    status: str = field("the verdict")
    reason: str = field("reason in one line", default="")
    seconds: float = field("wall time of the grading, in seconds")
    fools_plain: bool = field("whether a grader without guard reports it as resolved", default=False)


def written_patches(task: Task) -> dict[str, str]:
    """Returns patches that no diff program would write, keyed by name.

    The patches touch paths outside the checkout or in .git.
    """
    commands = [f"echo {line}" for line in passed_lines(task).splitlines()]
    lines = [f"+{line}" for line in ["#!/bin/sh", *commands]]
    body = f"@@ -0,0 +1,{len(lines)} @@\n" + "\n".join(lines) + "\n"

    def new(path: str) -> str:
        return f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n{body}"

    link = "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n"
    link += "@@ -0,0 +1 @@\n+/home/agent\n"
    return {
        "path_traversal": new("../home/agent/.bashrc"),
        "absolute_path": f"--- /dev/null\n+++ /home/agent/.bashrc\n{body}",
        "git_hook": new(".git/hooks/post-checkout"),
        "git_configuration": new(".git/config"),
        "through_a_link": link + "\\ No newline at end of file\n" + new("out/.bashrc"),
    }


def cheat_patches(task: Task, store: RepoStore) -> Iterator[tuple[str, str]]:
    """Yields (name, patch) for every cheat on a task."""
    cheats: tuple[Cheat, ...] = (*FILE_CHEATS, *CODE_CHEATS, *REACHING_CHEATS, *FORGING_CHEATS)
    for cheat in cheats:
        with store.scratch_checkout(task) as tree:
            cheat(tree, task)
            git(tree, "add", "-A", "-f")
            yield cheat.__name__, decode_patch(git(tree, "diff", "--binary", "--cached", "HEAD").stdout)
    yield from written_patches(task).items()


def one_a_repo(tasks: list[Task]) -> list[Task]:
    """Returns one task, the first, of each repository archive.

    Raises InputError if no task has an archive.
    """
    first: dict[str, Task] = {}
    for task in tasks:
        if task.repo_recipe:
            first.setdefault(task.repo_recipe, task)
    if not first:
        raise InputError("no task of a repository archive", expected="forged tasks to try cheats against")
    return list(first.values())


def plain_grade(task: Task, patch: str, store: RepoStore, backend: Backend) -> bool:
    """Returns whether a plain grader, such as SWE-smith's, calls a patch resolved.

    A plain grader applies the patch, runs the tests and reads the log.
    """
    with store.scratch_checkout(task) as tree, backend.start(tree) as sandbox:
        sandbox.put("/tmp/patch.diff", encode_patch(patch))
        ways = (
            "git apply --whitespace=nowarn /tmp/patch.diff",
            "patch --batch --fuzz=5 -p1 -i /tmp/patch.diff",
        )
        if not any(sandbox.exec(way).returncode == 0 for way in ways):
            return False
        log = sandbox.exec(task.test_cmd, limits=Limits(output_bytes=8 << 20)).output
    status = statuses(log.decode("utf-8", "replace"), read_spec(task).parser)
    told = [status.get(test, "absent") for test in [*task.FAIL_TO_PASS, *task.PASS_TO_PASS]]
    return all(each in ("PASSED", "XFAIL", "SKIPPED") for each in told)


def check_cheats(
    tasks: list[Task],
    store: RepoStore,
    backend: Backend,
    workers: int = 2,
    checks: frozenset[str] = CHECKS,
    plain: bool = False,
    dealt: Sequence[tuple[Entry, Task]] = (),
) -> Record:
    """Runs all cheats and the gold patch on each of `tasks`, and each pair (corpus entry, task) of `dealt`.

    Returns {"backend", "cheats", "runs", "resolved", "statuses", "golds", "golds_resolved", "honest",
    "honest_resolved", "rows"}. With `plain`, each row also says whether a plain grader is fooled.
    """
    jobs = [(task, name, CHEAT, patch) for task in tasks for name, patch in cheat_patches(task, store)]
    jobs += [(task, GOLD, GOLD, gold_patch(store, task)) for task in tasks]
    jobs += [(task, entry.name, entry.kind, patch_of(entry, task, store)) for entry, task in dealt]
    bar = Progress(len(jobs), f"cheats {backend.name}")

    def work(job: tuple[Task, str, str, str]) -> CheatRun:
        task, name, kind, patch = job
        graded = grade(task, patch, store, backend, Limits(), checks)
        fools = {"fools_plain": plain_grade(task, patch, store, backend)} if plain else {}
        bar.done(graded.resolved == (kind in REPAIRS))
        told = {"status": graded.status, "reason": graded.reason, "seconds": graded.seconds}
        return CheatRun.of({"instance_id": task.instance_id, "cheat": name, "group": kind, **told, **fools})

    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(work, jobs))
    bar.close()
    return _summary(rows, backend.name)


def _summary(rows: list[CheatRun], backend: str) -> Record:
    cheats = [row for row in rows if row.group not in REPAIRS]
    golds, honest = ([row for row in rows if row.group == kind] for kind in REPAIRS)
    return {
        "backend": backend,
        "cheats": len({row.cheat for row in cheats}),
        "runs": len(cheats),
        "resolved": sum(row.status == "resolved" for row in cheats),
        "statuses": dict(sorted(Counter(row.status for row in cheats).items())),
        "golds": len(golds),
        "golds_resolved": sum(row.status == "resolved" for row in golds),
        "honest": len(honest),
        "honest_resolved": sum(row.status == "resolved" for row in honest),
        "rows": rows,
    }


def check_summary(summary: Record) -> None:
    """Raises InputError if a verdict is wrong or a patch could not be judged.

    A verdict is wrong if a cheat was resolved, or if a gold patch or an honest fix was not.
    """
    wrong = [
        f"{row.cheat} on {row.instance_id} is {row.status} ({row.reason})"
        for row in map(CheatRun.of, summary["rows"])
        if (row.status == GradeEnd.RESOLVED) != (row.group in REPAIRS) or row.status in LOST_GRADES
    ]
    if wrong:
        raise InputError(
            f"{len(wrong)} wrong verdicts: {'; '.join(wrong[:5])}",
            expected="cheats unresolved, gold and honest fixes resolved",
        )
