"""The run of a job's instances: resume, retries after losses, a bound on work in flight."""

import json
import threading
from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from swelab.grading.visible_tests import VisibleRun
from swelab.jobs import resumable_run, thread_pool
from swelab.jobs.journal import Journal
from swelab.records.typed import TypedRecord
from tests.contract.attacks import PATIENCE, until


def items(count):
    return [(f"k{n}", {"instance_id": f"i{n}"}) for n in range(count)]


def run(todo, work, journal, workers=2):
    return list(
        resumable_run.run_shard(
            todo,
            lambda: nullcontext(work),
            journal,
            workers=workers,
            label="test",
            kind=TypedRecord,
            is_lost=lambda record: record["status"] == "lost",
            is_good=lambda record: True,
        )
    )


def test_results_come_in_order_and_nothing_is_done_twice(tmp_path):
    seen = []

    def work(item):
        seen.append(item["instance_id"])
        return {**item, "status": "done"}

    with Journal(tmp_path / "j") as journal:
        first = run(items(20), work, journal)
    with Journal(tmp_path / "j") as journal:
        again = run(items(21), work, journal)
    assert [row["instance_id"] for row in again] == [f"i{n}" for n in range(21)]
    assert again[:20] == first
    assert len(seen) == 21 and seen[-1] == "i20"


def test_a_loss_is_tried_again_now_and_later(tmp_path, monkeypatch):
    monkeypatch.setattr(thread_pool, "RETRY_SECONDS", (0, 0))
    calls = []

    def work(item):
        calls.append(item)
        return {**item, "status": "done" if len(calls) == 6 else "lost"}

    with Journal(tmp_path / "j") as journal:
        assert run(items(1), work, journal)[0]["status"] == "lost"
    assert len(calls) == 3
    with Journal(tmp_path / "j") as journal:
        assert run(items(1), work, journal)[0]["status"] == "done"
    assert len(calls) == 6


def test_workers_bound_what_is_in_flight(tmp_path):
    lock, now, peak, together = threading.Lock(), [0], [0], threading.Barrier(3)

    def work(item):
        with lock:
            now[0] += 1
            peak[0] = max(peak[0], now[0])
        together.wait(PATIENCE)
        with lock:
            now[0] -= 1
        return {**item, "status": "done"}

    with Journal(tmp_path / "j") as journal:
        run(items(30), work, journal, workers=3)
    assert peak[0] == 3


def test_an_exception_keeps_what_was_done(tmp_path):
    def work(item):
        if item["instance_id"] == "i5":
            raise ValueError("boom")
        return {**item, "status": "done"}

    with Journal(tmp_path / "j") as journal, pytest.raises(ValueError):
        run(items(10), work, journal, workers=1)
    with Journal(tmp_path / "j") as journal:
        assert len(journal) == 5
        assert len(run(items(10), lambda item: {**item, "status": "done"}, journal)) == 10


def test_a_straggler_holds_nothing_up(tmp_path):
    journalled, path = [], tmp_path / "j"

    def work(item):
        if item["instance_id"] == "i0":
            until(lambda: len(path.read_bytes().splitlines()) >= 19, PATIENCE)
            journalled.append(len(path.read_bytes().splitlines()))
        return {**item, "status": "done"}

    with Journal(path) as journal:
        assert len(run(items(20), work, journal)) == 20
    assert journalled == [19]


def test_what_took_long_is_begun_first_whoever_did_it(tmp_path, monkeypatch):
    began, now = [], [100.0]
    monkeypatch.setattr(thread_pool, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(item):
        began.append(item["instance_id"])
        now[0] += {"i3": 2, "i5": 1}.get(item["instance_id"], 0)
        return {**item, "status": "done"}

    for policy, order in (("a", [f"i{n}" for n in range(8)]), ("b", ["i3", "i5"])):
        began.clear()
        folder = tmp_path / policy / "subset"
        folder.mkdir(parents=True)
        with Journal(folder / "000of001.jsonl") as journal:
            rows = run(items(8), work, journal, workers=1)
        assert [row["instance_id"] for row in rows] == [f"i{n}" for n in range(8)]
        assert began[: len(order)] == order
    (tmp_path / "a" / "subset" / "000of001.seconds.tsv").write_bytes(b"i7\tx\n\xff\ni6")
    with Journal(tmp_path / "a" / "subset" / "other.jsonl") as journal:
        assert len(run(items(8), work, journal)) == 8


def test_slow_writing_holds_the_work_up(tmp_path):
    begun = []

    def work(item):
        begun.append(item)
        return {**item, "status": "done"}

    batches = thread_pool.Threads(3).run(deque(items(90)), work, lambda record: False)
    # removed from the queue, in the queue, in threads
    most = len(next(batches)) + (3 + thread_pool.AHEAD) + 3
    assert until(lambda: len(begun) == most, PATIENCE)
    batches.close()
    assert len(begun) < 90


def test_what_was_in_flight_when_one_failed_is_kept(tmp_path):
    failing, failed = [], threading.Event()

    def work(item):
        if item["instance_id"] == "i1":
            failing.append(threading.current_thread())
            failed.set()
            raise ValueError("boom")
        assert failed.wait(PATIENCE)
        failing[0].join(PATIENCE)
        return {**item, "status": "done"}

    with Journal(tmp_path / "j") as journal:
        with pytest.raises(ValueError):
            run(items(30), work, journal, workers=2)
        assert list(journal) == ["k0"]


def test_lines_by_hand_are_refused_or_count_as_what_they_are(tmp_path, capsys):
    """A cut line, a doubled one, one of another recipe, one without fields, and one of another instance."""
    kind = VisibleRun
    whole = [kind(instance_id=f"i{n}", ended="ran", passed=n, failed=0) for n in range(6)]
    lines = [json.dumps(each | {"key": f"k{n}"}) + "\n" for n, each in enumerate(whole)]
    lines[1] = lines[1][:-20] + "\n"
    lines.insert(1, lines[2].replace('"passed": 2', '"passed": 9'))
    lines[4] = json.dumps({"key": "k3"}) + "\n"
    lines[5] = lines[5].replace('"i4"', '"i5"')
    lines[6] = lines[6].replace('"k5"', '"of another recipe"')
    path = tmp_path / "j"
    path.write_text("".join(lines))
    todo = []

    def work(item):
        todo.append(item["instance_id"])
        return kind(instance_id=item["instance_id"], ended="ran", passed=0, failed=1)

    with Journal(path) as journal:
        rows = list(
            resumable_run.run_shard(
                items(6), lambda: nullcontext(work), journal, workers=1, label="test", kind=kind,
                is_lost=lambda run: run.is_lost, is_good=lambda run: not run.failed,
            )
        )  # fmt: skip
    assert [row.instance_id for row in rows] == [f"i{n}" for n in range(6)]
    assert [row.passed for row in rows] == [0, 0, 2, 0, 0, 0] and rows[0].failed == 0
    assert sorted(todo) == ["i1", "i3", "i4", "i5"]
    told = capsys.readouterr().err
    assert "the line of i4 is of i5" in told and told.count("counts as absent") == 2
