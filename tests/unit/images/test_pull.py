"""Pulls that a journal lists as finished, and the search of their images for answers."""

import os

import pytest

from swelab.images import pull
from swelab.images.image_store import ImageStore
from swelab.images.pull import Pulling
from swelab.images.registry import Registry
from swelab.jobs.journal import Journal
from swelab.records.image_records import HeldImage
from swelab.records.task_records import Task
from swelab.tasks import pulled_for_tasks
from swelab.tasks.pulled_for_tasks import pull_for_tasks, search_digest
from tests.unit.images.store_files import DIGEST, unpack_root

PATCH = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
NAME = "lab/calc"


def row(instance_id="one", path="a.py", **more):
    return Task.of({"instance_id": instance_id, "patch": PATCH.format(path), "FAIL_TO_PASS": [], **more})


class Store(ImageStore):
    """A store that has one image and counts the pulls of it."""

    def __init__(self, folder):
        super().__init__(folder, Registry())
        self.pulls = 0

    def pull(self, name, source, on_bytes=lambda count: None):
        self.pulls += 1
        if not self.holds(DIGEST):
            unpack_root(self)
        return self.record(DIGEST)


@pytest.fixture
def search(tmp_path, monkeypatch):
    """Pulls the image of tasks. Returns (record, store). A task leaks if its patch changes `leak.py`."""
    store = Store(tmp_path / "images")

    def check(backend, image, tasks):
        leaks = [
            {"instance_id": task.instance_id, "what": "leak.py"} for task in tasks if "leak.py" in task.patch
        ]
        return len(tasks), leaks

    class Backend:
        name = "bubblewrap"

    monkeypatch.setattr(pulled_for_tasks, "open_backend", Backend)
    monkeypatch.setattr(pulled_for_tasks, "open_puller", lambda *_: store)
    monkeypatch.setattr(pulled_for_tasks, "check_image", check)
    return lambda *tasks: (
        pull_for_tasks({NAME: list(tasks)}, store.folder, tmp_path / "journal.jsonl"),
        store,
    )


@pytest.mark.parametrize(
    "later", [[row(), row("two", "leak.py")], [row(path="leak.py")]], ids=["more tasks", "another patch"]
)
def test_other_tasks_of_a_pulled_image_are_searched_for_without_a_second_pull(search, later):
    first, _ = search(row())
    assert first.images[NAME].leaks == []
    record, store = search(*later)
    assert record.images[NAME].checked == len(later)
    assert [leak.what for leak in record.images[NAME].leaks] == ["leak.py"]
    assert record.images[NAME].pulled == first.images[NAME].pulled
    assert store.pulls == 1 and record.counts["kept"] == 1 and record.counts["pulled"] == 0
    assert search(*later)[0] == record


def test_the_digest_of_a_search_depends_on_what_the_search_reads():
    assert search_digest([row()]) == search_digest([row(problem_statement="other words")])
    others = [row(base_commit="1" * 40), row("two"), row(version="1"), row(path="é.py")]
    assert len({search_digest([each]) for each in (row(), *others)}) == 5
    assert search_digest([row(base_commit="no commit; rm")])


def test_a_file_that_was_replaced_is_digested_and_searched_again(tmp_path, monkeypatch):
    path = tmp_path / "calc.sif"
    path.write_bytes(b"one")
    seen = []

    def check(image):
        seen.append(image.digest)
        return 1, []

    with Journal(tmp_path / "journal.jsonl") as journal:
        pulling = Pulling(None, tmp_path, "", journal, check, "apptainer")
        first = pulling.one(str(path))
        assert pulling.one(str(path)) == first and len(seen) == 1
        path.write_bytes(b"two")  # the same size
        os.utime(path, ns=(1, 1))
        second = pulling.one(str(path))
    assert second.digest != first.digest and seen == [first.digest, second.digest]


def test_an_entry_of_an_earlier_version_is_searched_again_and_not_pulled(tmp_path, monkeypatch):
    store = Store(tmp_path / "images")
    unpack_root(store)
    image = {**store.record(DIGEST), "pulled": "2026-01-01T00:00:00Z", "checked": 1, "leaks": []}
    monkeypatch.setattr(pull, "digest", lambda record: "key")
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append({"key": "key", "name": NAME, "image": image})
        check = lambda image: (2, [])  # noqa: E731
        record = Pulling(store, store.folder, "", journal, check, "", searches={NAME: "new"}).one(NAME)
    assert record.checked == 2 and store.pulls == 0 and isinstance(store.record(DIGEST), HeldImage)
