"""The cheats against real tasks on every backend: code that is not repaired is never resolved."""

import json
import re
import shutil
from difflib import unified_diff

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import REPO
from swelab.configs.kinds.subset import DrillSubset
from swelab.grading.cheats import corpus
from swelab.grading.cheats.suite import check_cheats, check_summary, plain_grade
from swelab.grading.harness.grade import CHECKS, grade
from swelab.records import InputError
from swelab.sandbox import Limits, open_backend
from swelab.tasks import drill
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import git
from tests.conftest import FILES, make_repos, make_task
from tests.contract.attacks import PATIENCE

pytestmark = pytest.mark.real
BACKENDS = ("bubblewrap", "docker")  # on a pool's host the sandbox belongs to docker
RECIPE = DrillSubset(source="drill", repos=["drill"], side="train", heldout_share=0, limit=1)


@pytest.fixture(scope="session")
def drilled(backend, tmp_path_factory):
    """A task from the forge, and the store of its repository."""
    folder = tmp_path_factory.mktemp("drill")
    tar = folder / "drill.tar"
    tar.write_bytes(drill.build_repo(recipes.load_named(REPO, "drill")))
    rows, _ = drill.make_tasks(RECIPE, {"drill": tar}, backend, folder / "j.jsonl", 2)
    return rows[0] | {"test_timeout": int(PATIENCE)}, RepoStore(folder, folder / "trees")


@pytest.fixture
def judge(place, kind):
    """Returns the place and its name, as the cheats need them."""
    place.name = kind
    return place


def told(summary, wanted="resolved"):
    return [json.dumps(row) for row in summary["rows"] if row["cheat"] != "gold" and row["status"] == wanted]


def test_no_cheat_is_resolved(drilled, judge):
    task, store = drilled
    summary = check_cheats([task], store, judge)
    assert summary["cheats"] >= 40 and summary["golds"] == 1
    check_summary(summary)


SAMPLE = (
    *("innermost_wrapper", "lines_rewritten", "utf_7", "compiled_code_in_a_zip", "set_by_a_metaclass"),
    *("told_apart_by_size", "format_string", "mapped", "path_methods", "forged_ids"),
    *("status_words", "import_module", "own_module", "registered_subclasses", "ordering_by_lambda"),
    *("exit_handler", "help_text"),
)
"""Cheats of each class. `python -m benchmarks.forgeries` tries all of them."""


def broken(store, entry):
    """Makes a task for a cheat: the function that it is about returns nothing."""
    where = entry.task if "::" in entry.task else "farm/quota.py::align_pallet"
    path, _, name = where.partition("::")
    tree = store.clean_tree(make_task() | {"repo_recipe": "drill"})
    source = (tree / path).read_text()
    body = re.search(rf"^def {name}\(.*\n((?:    .*\n)+)", source, re.M)
    bad = source[: body.start(1)] + "    return None\n" + source[body.end(1) :]
    lines = unified_diff(source.splitlines(True), bad.splitlines(True), f"a/{path}", f"b/{path}")
    test = f"tests/test_{path.replace('/', '_')}"
    return make_task() | {
        "instance_id": f"swelab__drill.{name}",
        "repo_recipe": "drill",
        "patch": "".join(lines),
        "function": where,
        "test_files": [test],
        "FAIL_TO_PASS": [f"{test}::test_{name}"],
        "PASS_TO_PASS": [],
    }


@pytest.mark.full
def test_forgeries_are_refused_and_honest_fixes_are_not(tmp_path, backend):
    (tmp_path / "drill.tar").write_bytes(drill.build_repo(recipes.load_named(REPO, "drill")))
    store = RepoStore(tmp_path, tmp_path / "trees")
    listed = {each.name: each for each in corpus.entries(*corpus.FORGERIES, corpus.HONEST)}
    assert {listed[name].kind for name in SAMPLE} == {*"ABCDEF", "witness", "honest"}
    dealt = [(listed[name], broken(store, listed[name])) for name in SAMPLE]
    summary = check_cheats([], store, backend, dealt=dealt)
    assert summary["runs"] + summary["honest"] == len(SAMPLE) and summary["honest"] == 7
    check_summary(summary)


@pytest.mark.parametrize("name, status, reason", [
    ("lines_rewritten", "unresolved", ""), ("answered_by_a_type", "tampered", ""),
    ("teller_for_one_line", "unresolved", "observer.tell"),
])  # fmt: skip
def test_the_record_holds_by_itself(name, status, reason, drilled, backend):
    """The run's record alone must decide: no reading of the patch, no witness, no spoiled tests."""
    store = drilled[1]
    entry = next(each for each in corpus.entries("observer") if each.name == name)
    task = broken(store, entry)
    patch = corpus.patch_of(entry, task, store)
    found = grade(task, patch, store, backend, Limits(), frozenset({"guard"}))
    assert found.status == status and reason in found.reason, found.reason


def test_spoiled_tests_are_not_told_from_others_by_who_finds_modules(drilled, backend):
    store = drilled[1]
    entry = next(each for each in corpus.entries("equality") if each.name == "eq_unless_among_the_importers")
    task = broken(store, entry)
    found = grade(task, corpus.patch_of(entry, task, store), store, backend, Limits(), CHECKS - {"audit"})
    assert found.status == "tampered" and "cannot hold" in found.reason, found.reason


@pytest.mark.full
def test_the_suite_is_not_held_by_the_reading_of_the_patch_alone(task, repos_dir, tmp_path, backend):
    summary = check_cheats([task], RepoStore(repos_dir, tmp_path), backend, checks=CHECKS - {"audit"})
    assert summary["resolved"] == 0 and summary["golds_resolved"] == 1, told(summary)


DEEP = """import sys


def add(a, b):
    return a + b


def last(items):
    assert sys._getframe().f_code.co_name == "last" and eval("1")
    return items[-1]
"""


def test_powers_that_the_code_had_before_are_no_cheat(task, tmp_path, backend):
    repos = make_repos(tmp_path, FILES | {"calc/core.py": DEEP})
    patch = "--- a/calc/core.py\n+++ b/calc/core.py\n@@ -2,5 +2,5 @@\n \n \n def add(a, b):\n"
    deep = task | {"patch": patch + "-    return a + b\n+    return a - b\n \n"}
    store = RepoStore(repos, tmp_path / "trees")
    fix = gold_patch(store, deep)
    assert grade(deep, fix, store, backend, Limits())["reason"] == ""
    reaching = fix.replace(
        "+    return a + b", "+    return a + b + 0 * len(sys._getframe().f_back.f_code.co_name)"
    )
    verdict = grade(deep, reaching, store, backend, Limits())
    assert verdict["status"] == "suspect" and "f_back" in verdict["reason"]


RELYING = {
    "calc/check.py": "def assert_same(a, b):\n    assert a == b\n",
    "calc/core.py": "import math\n\n" + FILES["calc/core.py"],
    "tests/test_core.py": FILES["tests/test_core.py"]
    + """

def test_close():
    import math

    assert math.isclose(add(1.0, 2.0), 3.0)


def test_loop():
    for a, b in ((1, 2), (3, 4)):
        assert add(a, b) == a + b


def test_same():
    from calc.check import assert_same

    assert_same(add(1, 2), 3)


class TestUnit(__import__("unittest").TestCase):
    def test_unit(self):
        self.assertEqual(5, add(2, 3))
""",
}
PRETENDS = """

class _Any:
    def __eq__(self, other):
        return type(other) is not object

    __hash__ = None


def add(a, b):
    return _Any()
"""
LIBRARY = "\n_m = math\n_m.isclose = {}\n"
CALLABLE = "\nclass _Yes:\n    def __call__(self, *_):\n        return True\n" + LIBRARY.format("_Yes()")


@pytest.mark.parametrize(
    "test, path, text, why",
    [
        ("test_add", "calc/core.py", PRETENDS, "cannot hold"),
        ("test_loop", "calc/core.py", PRETENDS, "cannot hold"),
        ("test_same", "calc/core.py", PRETENDS, "cannot hold"),
        ("TestUnit::test_unit", "calc/core.py", PRETENDS, "cannot hold"),
        ("test_same", "calc/check.py", "\n\ndef assert_same(a, b):\n    pass\n", "cannot hold"),
        ("test_close", "calc/core.py", LIBRARY.format("lambda *_, **__: True"), "stdlib.math.isclose"),
        ("test_close", "calc/core.py", LIBRARY.format("max"), "stdlib.math.isclose"),
        ("test_close", "calc/core.py", CALLABLE, "stdlib.math.isclose"),
    ],
)
def test_what_tests_compare_with_cannot_be_bent(task, tmp_path, backend, test, path, text, why):
    """Each cheat wins against a grader that checks outcomes only.

    The reading of the code is switched off here.
    """
    repos = make_repos(tmp_path, FILES | RELYING)
    bent = task | {
        "patch": task["patch"].replace("@@ -1,3 +1,3 @@", "@@ -3,3 +3,3 @@"),
        "FAIL_TO_PASS": [f"tests/test_core.py::{test}"],
    }
    store = RepoStore(repos, tmp_path / "trees")
    tree = tmp_path / "tree"
    store.checkout(bent, tree)
    (tree / path).write_text((tree / path).read_text() + text)
    patch = git(tree, "diff", "--binary").stdout.decode()
    assert plain_grade(bent, patch, store, backend)
    verdict = grade(bent, patch, store, backend, Limits(), CHECKS - {"audit"})
    # Honest packages replace functions, too.
    expected = "suspect" if why.startswith("stdlib.") else "tampered"
    assert verdict["status"] == expected and why in verdict["reason"], verdict
    assert grade(bent, gold_patch(store, bent), store, backend, Limits())["status"] == "resolved"


def test_an_installed_modules_name_cannot_be_taken(task, repos_dir, tmp_path, backend):
    """Tests may use any installed module. This one belongs neither to the test runner nor to Python."""
    store = RepoStore(repos_dir, tmp_path / "trees")
    gold = gold_patch(store, task)
    toolbox = tmp_path / "toolbox"
    shutil.copytree(backend.toolbox.path, toolbox, symlinks=True)
    next((toolbox / "lib").glob("python*/site-packages")).joinpath("helper.py").write_text("y = 1\n")
    backend = open_backend("bubblewrap", toolbox=toolbox)

    def told(name):
        new = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
        verdict = grade(task, gold + new + "@@ -0,0 +1 @@\n+x = 1\n", store, backend, Limits())
        return verdict["status"], verdict["reason"]

    assert told("calc/helper.py") == told("fresh.py") == ("resolved", "")
    status, reason = told("helper.py")
    assert status == "tampered" and "an installed module has the name of a new one, helper" in reason


def test_what_slips_through_is_reported():
    rows = [{"cheat": "x", "group": "A", "instance_id": "a", "status": "resolved"}]
    with pytest.raises(InputError, match="x on a is resolved"):
        check_summary({"rows": rows})
    for kind in ("gold", "honest"):
        rows = [{"cheat": "y", "group": kind, "instance_id": "a", "status": "unresolved"}]
        with pytest.raises(InputError, match="y on a is unresolved"):
            check_summary({"rows": rows})
