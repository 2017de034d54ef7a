"""Rows of every published format, graded in an image that contains their repository."""

import shutil
import subprocess

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import grade
from swelab.grading.validation.validate_tasks import validate
from swelab.jobs.journal import Journal
from swelab.records.task_records import Task
from swelab.sandbox import Image, Limits, open_backend
from swelab.tasks.checkout import RepoStore
from tests.conftest import BUG, FILES

pytestmark = pytest.mark.real
FIX = BUG.replace("-    return a + b\n+    return a - b", "-    return a - b\n+    return a + b")
TEST_PATCH = """diff --git a/tests/test_core.py b/tests/test_core.py
--- a/tests/test_core.py
+++ b/tests/test_core.py
@@ -7,3 +7,7 @@
\x20
 def test_last():
     assert last([1, 2]) == 2
+
+
+def test_more():
+    assert add(1, 1) == 2
"""
SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
git checkout HEAD tests/test_core.py
git apply -v - <<'EOF_9'
{patch}EOF_9
{start}python -m pytest -rA -p no:cacheprovider tests/test_core.py
{end}git checkout HEAD tests/test_core.py
"""
START, END = ": '>>>>> Start Test Output'\n", ": '>>>>> End Test Output'\n"
UNITTEST = """import unittest

from calc.core import add, last


class TestCore(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)

    def test_last(self):
        self.assertEqual(last([1, 2]), 2)


if __name__ == "__main__":
    unittest.main()
"""
LISTED = {
    "FAIL_TO_PASS": ["tests/test_core.py::test_add", "tests/test_core.py::test_more"],
    "PASS_TO_PASS": ["tests/test_core.py::test_last"],
}
PRETENDS = FIX.replace("+    return a + b", "+    return _Any()").replace(
    "@@ -1,3 +1,3 @@\n",
    "@@ -1,3 +1,8 @@\n+class _Any:\n+    def __eq__(self, other):\n"
    "+        return type(other) is not object\n+\n+\n",
)
CHEAT = """diff --git a/conftest.py b/conftest.py
--- /dev/null
+++ b/conftest.py
@@ -0,0 +1,5 @@
+import pytest
+@pytest.hookimpl(hookwrapper=True)
+def pytest_runtest_makereport(item, call):
+    report = (yield).get_result()
+    report.outcome, report.longrepr = "passed", None
"""


def git(tree, *words):
    name = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *name, *words], cwd=tree, check=True, capture_output=True)


def commit(tree, text):
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", text)


@pytest.fixture(scope="module")
def lab(image, tmp_path_factory):
    """An image with a repository. Its HEAD has the bug, and it has a branch as in SWE-smith's images."""
    root = tmp_path_factory.mktemp("image") / "root"
    shutil.copytree(image.folder, root, symlinks=True)
    tree = root / "testbed"
    tree.mkdir(exist_ok=True)
    for name, text in FILES.items():
        if name != "conftest.py":
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_text(text)
    (tree / "test.py").write_text(UNITTEST)
    git(tree, "init", "-q", "-b", "main")
    commit(tree, "clean")
    (tree / "calc/core.py").write_text(FILES["calc/core.py"].replace("a + b", "a - b"))
    git(tree, "checkout", "-qb", "o__calc.1.x__1")
    commit(tree, "bug")
    (tree / "tests/test_core.py").unlink()
    commit(tree, "hide tests")
    git(tree, "checkout", "-q", "HEAD~1")
    activate = root / "opt/miniconda3/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text('conda() { true; }\npytest() { python -m pytest "$@"; }\n')
    return Image("lab/calc", "sha256:" + "0" * 64, root)


def script(marked):
    return SCRIPT.format(patch=TEST_PATCH, start=START if marked else "", end=END if marked else "")


def rows():
    base = Task.of({"repo": "pallets/flask", "image": "lab/calc", "problem_statement": "add should add."})
    bench = base | LISTED | {"patch": FIX, "test_patch": TEST_PATCH, "version": "2.0"}
    one = {"FAIL_TO_PASS": LISTED["FAIL_TO_PASS"][:1], "PASS_TO_PASS": LISTED["PASS_TO_PASS"]}
    new = {"instance_id": "o__calc-2", "log_parser": "parse_log_pytest", "eval_type": "pass_and_fail"}
    new["eval_script"] = script(True)
    smith = base | one | {"instance_id": "o__calc.1.x__1", "patch": BUG}
    outside = {group: [f"../dev/{test}" for test in tests] for group, tests in one.items()}
    names = {group: tests[0].rpartition("::")[2] for group, tests in one.items()}
    by_unittest = {group: [f"{name} (__main__.TestCore.{name})"] for group, name in names.items()}
    return {
        "older": bench | {"instance_id": "o__calc-1"},
        "newer": bench | new,
        "gym": bench | {"instance_id": "o__calc-3", "eval_script": script(False).replace("-uxo", "-exo")},
        "smith": smith,
        "smith of mido": smith | outside | {"repo": "swesmith/mido__mido.a0158ff9"},
        "smith of slugify": smith | by_unittest | {"repo": "swesmith/un33k__python-slugify.872b3750"},
    }  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return RepoStore(tmp_path, tmp_path / "trees")


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.full)])
def ground(request, lab, backend):
    """Returns (backend, image). The image is a folder, or imported into an engine."""
    if request.param == "bubblewrap":
        return backend, lab
    engine = request.getfixturevalue("engine")
    packed = subprocess.run(["tar", "-c", "-C", lab.folder, "."], capture_output=True, check=True).stdout
    digest = engine.docker("import", "-", lab.name, input=packed)
    return open_backend("docker"), Image(lab.name, digest)


def formats():
    """Returns the names of the rows. Rows that differ little from others are for `make test-full`."""
    little = ("gym", "smith of mido", "smith of slugify")
    return [pytest.param(name, marks=pytest.mark.full if name in little else ()) for name in rows()]


@pytest.mark.parametrize("name", formats())
def test_each_format(name, ground, store, tmp_path):
    row, (backend, lab) = rows()[name], ground

    def told(patch):
        verdict = grade(row, patch, store, backend, Limits(), image=lab)
        return verdict["status"], verdict["reason"]

    assert told(FIX) == ("resolved", "")
    assert told(FIX.replace("a + b", "a * b"))[0] == "unresolved"
    assert told(CHEAT)[0] == "unresolved"
    if name != "smith of slugify":  # unittest runs these tests, and the observer does not watch unittest
        assert told(PRETENDS)[0] == "tampered" and "cannot hold" in told(PRETENDS)[1]
    assert told(FIX + "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n")[0] == "tampered"
    assert told("nonsense")[0] == "apply_failed"


def test_rows_in_images_are_validated(ground, store, tmp_path):
    tasks, (backend, lab) = [row for name, row in rows().items() if " of " not in name], ground
    bench = Bench(store, backend, {task["instance_id"]: lab for task in tasks})
    with Journal(tmp_path / "j.jsonl") as journal:
        lock = validate(tasks, Validation(gold_runs=2), bench, journal, 2)
    assert [row["instance_id"] for row in lock["kept"]] == [task["instance_id"] for task in tasks], lock
    assert {row["place"] for row in lock["kept"]} == {lab.digest}
