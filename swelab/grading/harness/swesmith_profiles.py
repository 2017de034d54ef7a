"""Test settings for SWE-smith's repositories, used for rows that have no settings of their own.

The settings are from the profiles of swesmith 0.0.9. A test compares them with each profile.
"""

import re
import shlex
from collections.abc import Iterable

from swelab.grading.harness.logs import DEFAULT_PARSER, GO_PARSER, GROUPS, UNITTEST_PARSER, VERBOSE_PARSER
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.tasks.patch_text import language

ACTIVATE = "source /opt/miniconda3/bin/activate && conda activate testbed"
_TESTS = "pytest --disable-warnings --color=no --tb=no --verbose"
_GPXPY = "pytest test.py --verbose --color=no --tb=no --disable-warnings"

OWN = {
    "tkrajina/gpxpy": (f"{ACTIVATE} && {_GPXPY}", VERBOSE_PARSER),
    "hips/autograd": (f"{ACTIVATE} && {_TESTS} -n0", VERBOSE_PARSER),  # one process, to be observable
    "mido/mido": (f"{ACTIVATE} && {_TESTS} -rs -c /dev/null --rootdir=.", VERBOSE_PARSER),
    "paramiko/paramiko": (f"{ACTIVATE} && pytest -rA --color=no --disable-warnings", DEFAULT_PARSER),
    "un33k/python-slugify": (f"{ACTIVATE} && python test.py --verbose", UNITTEST_PARSER),
    "tornadoweb/tornado": (f"{ACTIVATE} && python -m tornado.test --verbose", UNITTEST_PARSER),
    "pydantic/pydantic": (f"/root/.local/bin/uv run {_TESTS}", VERBOSE_PARSER),
    "python/mypy": (f"{ACTIVATE} && pytest --color=no -rA -k", DEFAULT_PARSER),
}
"""Maps repositories (in lower case) with a special test command to that command and the name of the log
parser.
"""

BY_FILE = frozenset(
    "scrapy/scrapy sqlfluff/sqlfluff tobymao/sqlglot sunpy/sunpy sympy/sympy getmoto/moto iterative/dvc "
    "project-monai/monai dask/dask modin-project/modin conan-io/conan pandas-dev/pandas".split()
)
"""Repositories too large to run all tests: only the files of the listed tests run."""

_OUTSIDE = "../dev/"
"""Prefix of paths in pytest's log if its configuration file is /dev/null."""
_OF_MODULE = re.compile(r" \(([a-z_][\w.]*?)(?:\.[A-Z]\w*)+(?:\.\w+)?\)$")


def repository(task: Task) -> str:
    """Returns owner/name of a row's repository in lower case.

    The name is read from `repo` (swesmith/owner__name.commit) or from the row's id.
    """
    mirror = str(task.get("repo") or "").rpartition("/")[2]
    if "__" not in mirror:
        mirror = task.instance_id.rpartition(".")[0]
    return re.sub(r"\.[0-9a-f]{8}$", "", mirror).replace("__", "/").lower()


def listed_tests(task: Task) -> Record:
    """Returns the listed tests by group, with the log's ids. mido's rows put `../dev/` before each id."""
    return {group: [test.removeprefix(_OUTSIDE) for test in task[group]] for group in GROUPS}


def test_files(task: Task) -> tuple[str, ...]:
    """Returns the files of tests whose ids do not have pytest's form: `name (module.Class)`, and mypy's
    cases.
    """
    files = {}
    for test in (test for group in GROUPS for test in task[group]):
        if named := _OF_MODULE.search(test):
            module = "test" if named[1] == "__main__" else named[1].replace(".", "/")
            files[f"{module}.py"] = 0
        files |= {f"test-data/unit/{part}": 0 for part in test.split("::")[1:] if part.endswith(".test")}
    return tuple(files)


def cases(listed: Iterable[str]) -> str:
    """Returns the names of tests as an expression for `pytest -k`."""
    return " or ".join(dict.fromkeys(test.rpartition("::")[2] for test in listed))


def command(task: Task) -> tuple[str, str]:
    """Returns (Bash that runs a row's tests, name of the log parser).

    Raises InputError if the tests are in a language other than Python or Go.
    """
    name, listed = repository(task), [test for group in GROUPS for test in task[group]]
    if name in OWN:
        line, parser = OWN[name]
        if line.endswith(" -k"):  # the cases are in data files, so they are selected by name
            line += " " + shlex.quote(cases(listed))
        return line, parser
    spoken = language(task)
    if spoken == "go":
        return "go test -v ./...", GO_PARSER
    if spoken not in ("", "python") and not any(".py::" in test for test in listed):
        known = "test_cmd and log_parser in the row, or `criteria: {languages: [python, go]}` in the subset"
        raise InputError(f"no test command is known for {spoken}", task.instance_id, known)
    files = dict.fromkeys(test.partition("::")[0] for test in listed if name in BY_FILE)
    return " ".join((f"{ACTIVATE} && {_TESTS}", *map(shlex.quote, files))), VERBOSE_PARSER
