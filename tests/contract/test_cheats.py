"""The cheat suite against real tasks on every backend: nothing that does not repair the code is resolved."""

import io
import json
import tarfile

import pytest

from swelab import recipes
from swelab.grading.cheats.suite import check_cheats, verify
from swelab.grading.grade import CHECKS, grade
from swelab.records import InputError
from swelab.sandbox import Limits
from swelab.tasks import drill
from swelab.tasks.checkout import RepoStore, gold_patch
from tests.conftest import FILES

pytestmark = pytest.mark.real
EVERY_BACKEND = True
SUBSET = {
    "side": "train",
    "heldout_share": 0.0,
    "limit": 1,
    "seed": 0,
    "max_per_function": 1,
    "repos": ["drill"],
}


@pytest.fixture(scope="session")
def drilled(backend, tmp_path_factory):
    """A task that the forge made, and the store of its repository."""
    folder = tmp_path_factory.mktemp("drill")
    tar = folder / "drill.tar"
    tar.write_bytes(drill.build_repo(recipes.named("repo", "drill")))
    rows, _ = drill.make_tasks(SUBSET, {"drill": tar}, backend, folder / "j.jsonl", 2)
    return rows[0], RepoStore(folder, folder / "trees")


@pytest.fixture
def judge(place, kind):
    """The place with a name, as the suite wants it."""
    place.name = kind
    return place


def told(summary, wanted="resolved"):
    return [json.dumps(row) for row in summary["rows"] if row["cheat"] != "gold" and row["status"] == wanted]


def test_no_cheat_is_resolved(drilled, judge):
    task, store = drilled
    summary = check_cheats([task], store, judge)
    assert summary["cheats"] >= 40 and summary["golds"] == 1
    verify(summary)


def test_a_plain_grader_is_fooled_by_most(task, repos_dir, tmp_path, backend):
    summary = check_cheats([task], RepoStore(repos_dir, tmp_path), backend, plain=True)
    fooled = [row["cheat"] for row in summary["rows"] if row["fools_plain"] and row["cheat"] != "gold"]
    assert len(fooled) >= summary["cheats"] / 2, fooled
    assert summary["resolved"] == 0 and summary["golds_resolved"] == 1, told(summary)


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
    with tarfile.open(tmp_path / "calc.tar", "w") as tar:
        for name, text in (FILES | {"calc/core.py": DEEP}).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    patch = "--- a/calc/core.py\n+++ b/calc/core.py\n@@ -2,5 +2,5 @@\n \n \n def add(a, b):\n"
    deep = task | {"patch": patch + "-    return a + b\n+    return a - b\n \n"}
    store = RepoStore(tmp_path, tmp_path / "trees")
    fix = gold_patch(store, deep)
    assert grade(deep, fix, store, backend, Limits())["reason"] == ""
    reaching = fix.replace(
        "+    return a + b", "+    return a + b + 0 * len(sys._getframe().f_back.f_code.co_name)"
    )
    verdict = grade(deep, reaching, store, backend, Limits())
    assert verdict["status"] == "tampered" and "f_back" in verdict["reason"]


def test_what_slips_through_is_reported():
    rows = [{"cheat": "x", "instance_id": "a", "status": "resolved"}]
    with pytest.raises(InputError, match="x on a is resolved"):
        verify({"rows": rows})
    with pytest.raises(InputError, match="gold on a is unresolved"):
        verify({"rows": [{"cheat": "gold", "instance_id": "a", "status": "unresolved"}]})
