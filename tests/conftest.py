"""Fixtures for all tests: a small package with tests, its archive, and a bug in the package."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from swelab.records.task_records import Task

ROOT = Path(__file__).resolve().parents[1]
FIRST = (
    *("test_demo", "engine sandboxes", "engine pool", "engine tasks", "chain", "test_slurm"),
    *("test_fleet", "test_ranks"),
)
GROUPS = {
    "chain": "test_chain test_interrupt",
    "engine sandboxes": "test_forgetting test_sandbox_apptainer test_sandbox_deferred test_sandbox_ends "
    "test_sandbox_faults test_sandbox_hostile test_sandbox_images test_sandbox_limits test_sandbox_sessions "
    "test_sandbox_state",
    "engine pool": "test_one_copy test_pool_chaos test_pool_host test_pool_hostile test_pool_run",
    "engine tasks": "test_cheats test_witness test_grading_faults test_grading_images test_images_engine "
    "test_swe_agent test_install_steps test_real_instances test_harbor_rewards",
}
"""Groups of test files that share a slow start.

Each group with an engine has its own engine. Tests with an engine wait more than they compute, so these
groups run side by side.
"""
GROUP_OF = {stem: group for group, stems in GROUPS.items() for stem in stems.split()}
FILES = {
    "calc/__init__.py": "",
    "calc/core.py": "def add(a, b):\n    return a + b\n\n\ndef last(items):\n    return items[-1]\n",
    "tests/test_core.py": (
        "from calc.core import add, last\n\n\n"
        "def test_add():\n    assert add(2, 3) == 5\n\n\n"
        "def test_last():\n    assert last([1, 2]) == 2\n"
    ),
    "conftest.py": "",
}
BUG = """--- a/calc/core.py
+++ b/calc/core.py
@@ -1,3 +1,3 @@
 def add(a, b):
-    return a + b
+    return a - b
\x20
"""


# SIGINT is ignored in tests that were started in the background, and in every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each run tries properties on the same inputs, and no verdict depends on the speed of the machine.
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def backend():
    from swelab.sandbox import open_backend

    return open_backend()


def make_repos(folder, files=FILES):
    """Writes the archive of the package `calc` to the folder `repos` in `folder`. files: text by name."""
    repos = folder / "repos"
    repos.mkdir(exist_ok=True)
    with tarfile.open(repos / "calc.tar", "w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return repos


def make_task():
    """Returns a task in the package `calc`."""
    return Task.of(
        {
            "instance_id": "swelab__calc.00000000.func_pm_op_change__abcd1234",
            "repo": "swelab/swelab__calc.00000000",
            "patch": BUG,
            "problem_statement": "add in calc/core.py should return the sum of a and b.",
            "FAIL_TO_PASS": ["tests/test_core.py::test_add"],
            "PASS_TO_PASS": ["tests/test_core.py::test_last"],
            "image_name": "swelab/calc",
            "repo_recipe": "calc",
            "source": "forge",
            "test_cmd": "python -m pytest -rA --tb=no -q -p no:cacheprovider",
            "log_parser": "parse_log_pytest",
            "test_files": ["tests/test_core.py", "conftest.py"],
            "test_timeout": 20,
            "function": "calc/core.py::add",
            "bug": "0" * 16,
            "op": "op_change",
        }
    )


@pytest.fixture
def configs(tmp_path):
    """A copy of the shipped recipes, which a test may change."""
    shutil.copytree("configs", tmp_path / "configs")
    return tmp_path / "configs"


@pytest.fixture
def repos_dir(tmp_path):
    return make_repos(tmp_path)


@pytest.fixture
def task():
    return make_task()


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        # xdist ignores Ctrl-C in its processes. Programs that tests start there would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        config.pluginmanager.register(_AtOnce(config))


class _AtOnce:
    """Prints the name of a failed test at once, because a run takes minutes."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.ensure_newline()
            reporter.write_line(f"FAILED {report.nodeid} ({getattr(report, 'when', 'import')})", red=True)

    pytest_collectreport = pytest_runtest_logreport


def _group(nodeid):
    """Returns the name of a test's group.

    One process runs all tests of a group, because they share a slow start.
    """
    stem = Path(nodeid.partition("::")[0]).stem
    return GROUP_OF.get(stem, stem)


def pytest_collection_modifyitems(items):
    """Moves the slowest groups to the front: `make test` runs two groups at a time."""
    first = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: first.get(_group(item.nodeid), len(first)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Assigns groups to processes.

    (xdist's own marks for this have no effect under this version of pytest.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _group(nodeid)

    return Groups(config, log)


def pytest_sessionfinish(session, exitstatus):
    """Fails the run in CI if a test of a real program was skipped, since it would check nothing."""
    if hasattr(session.config, "workerinput"):
        return  # the process that started this process decides
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [r for r in reporter.stats.get("skipped", []) if "real" in getattr(r, "keywords", {})]
    if os.environ.get("CI") and skipped and exitstatus == 0:
        reporter.write_line(f"CI: {len(skipped)} tests of real programs were skipped", red=True)
        session.exitstatus = 1


def run_program(command, **options):
    """Runs a program. Returns the completed process with text output."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def run_python(*arguments, **options):
    """Runs a script as a user does. Returns the completed process with text output."""
    return run_program([sys.executable, *map(str, arguments)], cwd=ROOT, **options)
