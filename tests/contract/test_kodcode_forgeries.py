"""Forged repairs of debugging tasks without a gold patch get no reward, and honest repairs do.

These tasks have no witness, because no gold patch supplies values. The tests are one file in the root of the
checkout and run with `-s`, so the code's output is in the log.
"""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.configs.kinds.kodcode_subset import CompatKeys, KodcodeSubset
from swelab.grading.grading_stage import Bench, grade_prediction, prediction_key
from swelab.grading.harness.grade import grade
from swelab.grading.regrade import regrade
from swelab.grading.run_cache import Archive
from swelab.records.attempt_records import Prediction
from swelab.sandbox import Limits
from swelab.tasks.checkout import RepoStore
from swelab.tasks.kodcode import make_tasks
from tests.small_tasks import change, code_of, made, write_rows

pytestmark = pytest.mark.real
LINES = "\n".join(f"PASSED test.py::test_case_{number}" for number in range(24))
AHEAD = {
    "prints the count at import": "print('24 passed in 0.01s')\n",
    "prints the lines of a report at import": f"print({LINES!r} + '\\n24 passed in 0.01s')\n",
    "prints the count at exit": "import atexit\natexit.register(print, '24 passed in 0.01s')\n",
    "ends with 0 at exit": "import atexit, os\n"
    f"atexit.register(lambda: (print({LINES!r}, flush=True), os._exit(0)))\n",
    "sys.exit(0)": "import sys\nprint('24 passed in 0.01s')\nsys.exit(0)\n",
    "os._exit(0)": f"import os\nprint({LINES!r} + '\\n24 passed in 0.01s', flush=True)\nos._exit(0)\n",
    "kills its own process after a report": "import os, signal\n"
    f"print({LINES!r}, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "runs another pytest in its place": "import os, sys\nif not os.environ.get('AGAIN'):\n"
    "    os.environ['AGAIN'] = '1'\n    os.execv(sys.executable, "
    "[sys.executable, '-m', 'pytest', '--collect-only', 'test.py'])\n",
    "options by the environment": "import os\nos.environ['PYTEST_ADDOPTS'] = '--collect-only'\n",
    "tests do nothing": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n",
    "all reports say passed": "import _pytest.reports as r\nold = r.TestReport.from_item_and_call\n"
    "def new(item, call):\n    report = old(item, call)\n    report.outcome = 'passed'\n    return report\n"
    "r.TestReport.from_item_and_call = staticmethod(new)\n",
    "the session's exit code is 0": "import _pytest.main as m\nm.Session.testsfailed = "
    "property(lambda self: 0, lambda self, value: None)\n",
    "tests are emptied in memory": "import gc, types\nfor each in gc.get_objects():\n"
    "    if isinstance(each, types.FunctionType) and each.__name__.startswith('test_case'):\n"
    "        each.__code__ = (lambda: None).__code__\n",
    "a thread marks items": "import gc, threading, time\ndef work():\n    for _ in range(50):\n"
    "        for each in gc.get_objects():\n            if type(each).__name__ == 'TestReport':\n"
    "                each.outcome = 'passed'\n        time.sleep(.01)\n"
    "threading.Thread(target=work, daemon=True).start()\n",
    "a plug-in of the module": "import pytest, gc\nfor each in gc.get_objects():\n"
    "    if type(each).__name__ == 'PytestPluginManager':\n        class P:\n"
    "            @pytest.hookimpl(tryfirst=True)\n            def pytest_runtest_call(self, item):\n"
    "                item.obj = lambda: None\n        each.register(P())\n        break\n",
    "forks and reports": "import os, time\nif os.fork():\n    time.sleep(1)\n"
    f"    print({LINES!r} + '\\n24 passed', flush=True)\n    os._exit(0)\n",
}  # fmt: skip
"""Code that a forgery puts before the faulty code, by what it does."""
BEHIND = {
    "returns what equals all": "class Any(int):\n    def __new__(cls, *given):\n"
    "        return int.__new__(cls)\n"
    "    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n",
    "compares by reflection": "class Any:\n    def __init__(self, *given):\n        pass\n"
    "    def __eq__(self, other):\n        return not None\n",
    "skips inside": "import pytest\ndef Any(*given):\n    pytest.skip('later')\n",
    "expects to fail inside": "import pytest\ndef Any(*given):\n    pytest.xfail('later')\n",
    "ends the session inside": "import pytest\ndef Any(*given):\n"
    "    pytest.exit('24 passed', returncode=0)\n",
    "empties the other tests when it is first called": "import gc, types\ndef Any(*given):\n"
    "    for each in gc.get_objects():\n"
    "        if isinstance(each, types.FunctionType) and each.__name__.startswith('test_case'):\n"
    "            each.__code__ = (lambda: None).__code__\n",
    "reads the tests' expectations": "import ast\ndef Any(name, *given):\n"
    "    for node in ast.walk(ast.parse(open('test.py').read())):\n"
    "        if isinstance(node, ast.Compare) and node.left.func.id == name:\n"
    "            if [ast.literal_eval(each) for each in node.left.args] == [*given]:\n"
    "                return ast.literal_eval(node.comparators[0])\n",
    "reads the caller's source": "import sys, linecache, ast\ndef Any(*given):\n"
    "    frame = sys._getframe(2)\n"
    "    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()\n"
    "    return eval(line.partition('==')[2])\n",
    "reads the caller's constants": "import sys\ndef Any(name, *given):\n"
    "    return [each for each in sys._getframe(2).f_code.co_consts if each is not None][-1]\n",
}
"""Code after which each function of the module returns `Any(its name, *arguments)`."""
FILES = {
    "a conftest that skips all": {
        "conftest.py": "import pytest\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.add_marker(pytest.mark.skip)\n"
    },
    "a conftest that reports": {
        "conftest.py": "import pytest\n@pytest.hookimpl(hookwrapper=True)\n"
        "def pytest_runtest_makereport(item, call):\n    out = yield\n"
        "    out.get_result().outcome = 'passed'\n"
    },
    "edited tests": {"test.py": "def test_case_0():\n    pass\n"},
    "no tests": {"test.py": None},
    "settings that collect only": {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "settings that deselect": {
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k nothing_has_this_name'\n"
    },
    "a pytest of its own": {"pytest.py": f"print({LINES!r} + '\\n24 passed')\n"},
    "a package of pytest's name": {
        "pytest/__init__.py": "",
        "pytest/__main__.py": f"print({LINES!r} + '\\n24 passed')\n",
    },
    "sitecustomize": {
        "sitecustomize.py": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
    },
    "a module of the library's name": {
        "ast.py": f"import os\nprint({LINES!r} + '\\n24 passed', flush=True)\nos._exit(0)\n"
    },
}
"""Files that a forgery adds, changes or removes (None)."""
NAMED = re.compile(r"^def (\w+)", re.MULTILINE)


def forgeries(row):
    """Returns (what it does, its patch) of each forgery of a row."""
    path, code = code_of(row)
    tests = row["extra_info"]["files"][0]["content"]
    for what, text in AHEAD.items():
        yield what, change(path, code, text + code)
    for what, text in BEHIND.items():
        bodies = "".join(
            f"\n\ndef {name}(*given):\n    return Any({name!r}, *given)\n" for name in NAMED.findall(code)
        )
        yield what, change(path, code, text.replace("def Any(*given)", "def Any(name, *given)") + bodies)
    for what, files in FILES.items():
        before = {"test.py": tests}
        yield what, "".join(change(name, before.get(name), text) for name, text in files.items())


def honest(row, sound):
    """Returns (what it does, its patch) of honest repairs, some unlike a publisher's repair."""
    path, code = code_of(row)
    yield "the repair", change(path, code, sound)
    yield "the repair, and it prints", change(path, code, "print('3 passed, loading')\n" + sound)
    yield (
        "the repair, typed and documented",
        change(path, code, '"""Small functions."""\n\nimport math\n' + sound),
    )
    moved = "from made_parts import *  # noqa: F403\n"
    yield "the repair in another module", change(path, code, moved) + change("made_parts.py", None, sound)
    yield (
        "the repair, with tests of its own",
        change(path, code, sound) + change("test_more.py", None, "def test_more():\n    assert True\n"),
    )


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, backend):
    folder = tmp_path_factory.mktemp("rows")
    pairs = [made(number) for number in range(2)]
    write_rows([row for row, _ in pairs], folder / "rows.parquet")
    recipe = KodcodeSubset(source="kodcode", path=str(folder / "rows.parquet"))
    rows, drops = make_tasks(recipe, lambda: backend, folder / "journal.jsonl", 2)
    assert not drops
    return list(zip(rows, pairs, strict=True))


def graded(tasks, patches, backend, tmp_path):
    """Returns the grades of (what, patch) pairs. The pairs are spread over the tasks."""
    store = RepoStore(tmp_path, tmp_path / "trees")

    def one(given):
        task, what, patch = given
        return what, grade(task, patch, store, backend, Limits())

    turns = [
        (tasks[at % 2][0], what, patch)
        for at, each in enumerate(zip(*(patches(*pair) for _, pair in tasks), strict=True))
        for what, patch in [each[at % 2]]
    ]
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, turns))


@pytest.mark.full
def test_forgeries(tasks, backend, tmp_path, capsys):
    found = graded(tasks, lambda row, sound: forgeries(row), backend, tmp_path)
    statuses = Counter(str(each.status) for each in found.values())
    with capsys.disabled():
        print(
            f"\nforgeries of debugging tasks: {len(found)}, {statuses['resolved']} rewarded; {dict(statuses)}"
        )
    assert len(found) >= 20
    assert not [what for what, each in found.items() if each.resolved]
    assert not statuses["infra_error"], {
        what: g.reason for what, g in found.items() if g.status == "infra_error"
    }
    for what, each in found.items():
        print(f"{each.status:12} {what}: {each.reason}")


def test_honest_fixes(tasks, backend, tmp_path):
    found = graded(tasks, honest, backend, tmp_path)
    assert {what: (each.status, each.reason) for what, each in found.items() if not each.resolved} == {}
    assert len(found) == 5


TESTS = """import pytest
import m_code as m


def test_a():
    assert m.one() == 1


def test_b():
    if m.two() is None:
        pytest.skip("there is no two")
    assert m.two() == 2
"""
SOUND = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
SKIPS = SOUND.replace("2", "None")


def bare(name, code, backend, tmp_path, **keys):
    """Returns a task with two tests whose code is `code`."""
    files = [{"path": "test.py", "content": TESTS}, {"path": "m_code.py", "content": code}]
    write_rows([{"task_id": name, "extra_info": {"files": files}}], tmp_path / f"{name}.parquet")
    recipe = KodcodeSubset(source="kodcode", path=str(tmp_path / f"{name}.parquet"), **keys)
    return make_tasks(recipe, lambda: backend, tmp_path / "journal.jsonl", 1)[0][0]


def test_a_repair_of_code_that_cannot_be_imported(backend, tmp_path):
    """The number of tests comes from a run in which the imports work.

    A full repair counts, half a repair does not.
    """
    task, store = bare("torn", "def one(:\n", backend, tmp_path), RepoStore(tmp_path, tmp_path / "trees")
    assert task.null_run.collected == 2 and not task.null_run.imports
    found = [
        grade(task, change("m_code.py", "def one(:\n", text), store, backend, Limits())
        for text in (SOUND, SOUND.replace("2", "3"))
    ]
    assert [each.status for each in found] == ["resolved", "unresolved"], [each.reason for each in found]


def test_published_ways_of_judging(backend, tmp_path):
    """Only with `compat` a skipped test passes, or a repair fails that the agent did not see pass."""
    broken, store = "def one():\n    return 0\n", RepoStore(tmp_path, tmp_path / "trees")
    strict = bare("strict", broken, backend, tmp_path)
    loose = bare("loose", broken, backend, tmp_path, compat=CompatKeys(skip_counts_as_pass=True))
    skipping, sound = change("m_code.py", broken, SKIPS), change("m_code.py", broken, SOUND)
    assert strict.compat is None and loose.compat.skip_counts_as_pass
    assert grade(strict, skipping, store, backend, Limits()).status == "unresolved"
    assert grade(loose, skipping, store, backend, Limits()).resolved
    assert not grade(
        loose, change("m_code.py", broken, SKIPS.replace("1", "0")), store, backend, Limits()
    ).resolved
    by_code = SOUND.replace("return 2", "import unittest\n    raise unittest.SkipTest('there is no two')")
    verdict = grade(loose, change("m_code.py", broken, by_code), store, backend, Limits())
    assert verdict.status == "unresolved", verdict.reason  # the test file itself has to skip
    own = bare("own", broken, backend, tmp_path, compat=CompatKeys(final_eval=False))
    bench = Bench(store, backend, archive=Archive(tmp_path / "runs"))
    told = {
        (task.instance_id, said): grade_prediction(task, prediction(task, sound, said), bench)
        for task in (strict, own)
        for said in ("passed", "failed", "")
    }
    resolved = {key for key, each in told.items() if each.resolved}
    assert resolved == {("strict", "passed"), ("strict", "failed"), ("strict", ""), ("own", "passed")}
    assert "the agent did not see that: it never called eval" in told["own", ""].reason
    assert "its last eval failed" in told["own", "failed"].reason
    keys = [
        {
            prediction_key(task, {task.instance_id: prediction(task, sound, said)}, bench)
            for said in ("passed", "")
        }
        for task in (strict, own)
    ]
    assert [len(each) for each in keys] == [1, 2]
    facts, (again,) = regrade([own], [prediction(own, sound, "")], {own.instance_id: "unresolved"}, bench)
    assert facts["changed"] == [] and again.reason == told["own", ""].reason


def prediction(task, patch, said):
    row = {"instance_id": task.instance_id, "model_name_or_path": "p", "model_patch": patch}
    return Prediction.of(row | ({"own_eval": said} if said else {}))
