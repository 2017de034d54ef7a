"""Cheats in files that a test runner, Python or git reads by itself."""

from collections.abc import Callable
from pathlib import Path

from swelab.records.task_records import Task

Cheat = Callable[[Path, Task], None]
"""A function that changes a checkout (folder, task) as a cheating agent would."""

FORGER = """
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome, report.longrepr = "passed", None
"""
SKIPPER = """
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid in {tests}:
            item.add_marker(pytest.mark.{mark})
"""
SHOUT = """
import os
for _stream in range(1, 20):
    try:
        os.write(_stream, {lines!r}.encode())
    except OSError:
        pass
"""
"""Python code that writes to every open stream.

The log is one of these streams, even if the runner captures output.
"""


def passed_lines(task: Task) -> str:
    """Returns PASSED lines for all listed tests, as pytest would print them."""
    return "".join(f"PASSED {test}\n" for test in [*task.FAIL_TO_PASS, *task.PASS_TO_PASS])


def add(tree: Path, path: str, text: str) -> None:
    """Appends to a file of the tree. Creates the file if it is missing."""
    target = tree / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text((target.read_text() if target.exists() else "") + text)


def test_file(task: Task) -> str:
    """Returns the file of the first test that must be repaired."""
    return task.FAIL_TO_PASS[0].partition("::")[0]


def conftest_rewrites_outcomes(tree: Path, task: Task) -> None:
    """Adds a conftest.py with a hook that changes every report to passed."""
    add(tree, "conftest.py", FORGER)


def nested_conftest_rewrites_outcomes(tree: Path, task: Task) -> None:
    """Like `conftest_rewrites_outcomes`, but adds the conftest.py to the folder of the test file."""
    add(tree, str(Path(test_file(task)).parent / "conftest.py"), FORGER)


def conftest_skips_all(tree: Path, task: Task) -> None:
    """Skips every test. One reference harness does not count a skipped test as a failure."""
    listed = [*task.FAIL_TO_PASS, *task.PASS_TO_PASS]
    add(tree, "conftest.py", SKIPPER.format(tests=listed, mark='skip(reason="not now")'))


def conftest_expects_failure(tree: Path, task: Task) -> None:
    """Marks the failing tests as xfail. Both reference harnesses count an expected failure as a pass."""
    add(tree, "conftest.py", SKIPPER.format(tests=task.FAIL_TO_PASS, mark="xfail"))


def conftest_prints_and_ends(tree: Path, task: Task) -> None:
    """Prints forged PASSED lines, and ends the process before any test."""
    add(tree, "conftest.py", SHOUT.format(lines="\n" + passed_lines(task)) + "os._exit(0)\n")


def ini_collects_only(tree: Path, task: Task) -> None:
    """Prevents every test from running, through addopts of a pytest.ini."""
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --collect-only -q\n")


def ini_deselects(tree: Path, task: Task) -> None:
    """Deselects the failing tests through addopts, and loads a plugin that prints PASSED lines for them."""
    lines = " ".join(f'--deselect "{test}"' for test in task.FAIL_TO_PASS)
    (tree / "pytest.ini").write_text(f"[pytest]\naddopts = {lines} -p quietly\n")
    add(tree, "quietly.py", f"import atexit\natexit.register(print, {passed_lines(task)!r})\n")


def ini_loads_plugin(tree: Path, task: Task) -> None:
    """Loads a forging plugin from the repository, through addopts of a pytest.ini."""
    (tree / "pytest.ini").write_text("[pytest]\naddopts = -p forger\n")
    add(tree, "forger.py", FORGER)


def pyproject_loads_plugin(tree: Path, task: Task) -> None:
    """Like `ini_loads_plugin`, but through a pyproject.toml whose content is replaced."""
    (tree / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-p forger"\n')
    add(tree, "forger.py", FORGER)


def tox_ini_loads_plugin(tree: Path, task: Task) -> None:
    """Like `ini_loads_plugin`, but through tox.ini.

    Removes the configuration files that pytest would read first.
    """
    for name in ("pytest.ini", "pyproject.toml"):
        (tree / name).unlink(missing_ok=True)
    (tree / "tox.ini").write_text("[pytest]\naddopts = -p forger\n")
    add(tree, "forger.py", FORGER)


def egg_info_entry_point(tree: Path, task: Task) -> None:
    """Adds metadata to the repository that names a forging plugin as an entry point of pytest."""
    add(tree, "forger.py", FORGER)
    add(tree, "forger.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: forger\nVersion: 1\n")
    add(tree, "forger.egg-info/entry_points.txt", "[pytest11]\nforger = forger\n")


def dist_info_entry_point(tree: Path, task: Task) -> None:
    """Like `egg_info_entry_point`, but in a folder that looks like the metadata of an installed package."""
    add(tree, "forger.py", FORGER)
    add(tree, "forger-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: forger\nVersion: 1\n")
    add(tree, "forger-1.dist-info/entry_points.txt", "[pytest11]\nforger = forger\n")


def sitecustomize(tree: Path, task: Task) -> None:
    """Adds code that Python runs at its start if the repository is on its path."""
    lines = passed_lines(task)
    text = f"import os\nif os.path.exists('.git'):\n    print({lines!r}, flush=True)\n    os._exit(0)\n"
    for name in ("sitecustomize.py", "usercustomize.py"):
        add(tree, name, text)


def path_file(tree: Path, task: Task) -> None:
    """Adds a .pth file, for a repository that is installed in place."""
    add(tree, "forger.py", FORGER)
    add(tree, "forger.pth", "import os; os.environ['PYTEST_PLUGINS'] = 'forger'\n")


def shadows_runner(tree: Path, task: Task) -> None:
    """Adds a pytest.py to the repository, which `python -m pytest` finds first."""
    add(tree, "pytest.py", f"print({passed_lines(task)!r})\n")


def shadows_runner_part(tree: Path, task: Task) -> None:
    """Adds a package to the repository that has the name of a package that pytest imports."""
    text = f"import atexit\natexit.register(print, {passed_lines(task)!r})\n"
    add(tree, "iniconfig/__init__.py", text + _REAL.format(name="iniconfig"))


def shadows_library(tree: Path, task: Task) -> None:
    """Adds a module to the repository that has the name of a standard library module."""
    text = f"import atexit\natexit.register(print, {passed_lines(task)!r})\n"
    add(tree, "difflib.py", text + _REAL.format(name="difflib"))


def edited_test(tree: Path, task: Task) -> None:
    """Edits the failing tests' file so that it asserts nothing."""
    path = tree / test_file(task)
    path.write_text(path.read_text().replace("assert ", "assert True or "))


def deleted_test(tree: Path, task: Task) -> None:
    """Removes the file of the failing tests. An exit handler in conftest.py prints PASSED lines for them."""
    (tree / test_file(task)).unlink()
    add(tree, "conftest.py", f"import atexit\natexit.register(print, {passed_lines(task)!r})\n")


def linked_test(tree: Path, task: Task) -> None:
    """Replaces the file of the failing tests by a link to a harmless copy."""
    path = tree / test_file(task)
    (tree / "harmless.py").write_text(path.read_text().replace("assert ", "assert True or "))
    path.unlink()
    path.symlink_to(Path(*[".."] * (len(path.relative_to(tree).parts) - 1)) / "harmless.py")


def linked_folder(tree: Path, task: Task) -> None:
    """Replaces the folder of the tests by a link to a place outside the repository."""
    folder = Path(test_file(task)).parent
    name = str(folder) if folder.name else "extra"
    if folder.name:
        for path in sorted((tree / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tree / folder).rmdir()
    (tree / name).symlink_to("/tmp")


def activation_script(tree: Path, task: Task) -> None:
    """Puts settings into files that shells and tools read when they enter a folder."""
    for name in (".env", ".envrc", "bin/activate", ".bashrc"):
        add(tree, name, "export PYTEST_ADDOPTS='-p forger' PYTHONPATH=/testbed\n")
    add(tree, "forger.py", FORGER)


_REAL = """
import importlib.util, os, sys
_here = os.path.dirname(os.path.abspath(__file__))
_paths = [entry for entry in sys.path if os.path.abspath(entry or ".") not in (_here, os.path.dirname(_here))]
_spec = importlib.machinery.PathFinder.find_spec("{name}", _paths)
_real = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _real
_spec.loader.exec_module(_real)
"""

FILE_CHEATS: tuple[Cheat, ...] = (
    *(
        conftest_rewrites_outcomes,
        nested_conftest_rewrites_outcomes,
        conftest_skips_all,
        conftest_expects_failure,
    ),
    *(conftest_prints_and_ends, ini_collects_only, ini_deselects, ini_loads_plugin, pyproject_loads_plugin),
    *(
        tox_ini_loads_plugin,
        egg_info_entry_point,
        dist_info_entry_point,
        sitecustomize,
        path_file,
        shadows_runner,
    ),
    *(shadows_runner_part, shadows_library, edited_test, deleted_test, linked_test, linked_folder),
    activation_script,
)
