"""The cheat suite against real tasks on every backend: nothing that does not repair the code is resolved."""

import json

import pytest

from swelab import recipes
from swelab.grading.cheats.suite import check_cheats, verify
from swelab.grading.grade import CHECKS
from swelab.records import InputError
from swelab.tasks import drill
from swelab.tasks.checkout import RepoStore

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


def test_what_slips_through_is_reported():
    rows = [{"cheat": "x", "instance_id": "a", "status": "resolved"}]
    with pytest.raises(InputError, match="x on a is resolved"):
        verify({"rows": rows})
    with pytest.raises(InputError, match="gold on a is unresolved"):
        verify({"rows": [{"cheat": "gold", "instance_id": "a", "status": "unresolved"}]})
