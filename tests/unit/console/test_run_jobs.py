"""Messages about jobs: why they run, how they ended, when the run will end."""

import json
import logging
from types import SimpleNamespace

import pytest

from swelab.console import run_display
from swelab.console.run_display import Forecast, Job, last_words


def job(tmp_path, rule="grade", number=1):
    record = logging.makeLogRecord(
        {
            "jobid": number,
            "rule_name": rule,
            "wildcards": {"policy": "mine", "shard": "000of001", "sample": ""},
            "log": [str(tmp_path / f"{rule}.log")],
            "reason": "Forced execution",
        }
    )
    made = Job.of(record)
    made.started = 0.0
    return made


@pytest.fixture
def clock(monkeypatch):
    """The clock of jobs, which starts at 0."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(run_display, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_a_job_is_named_by_its_rule_and_what_tells_it_apart(tmp_path, clock):
    one = job(tmp_path)
    assert (
        one.name == "grade mine"
        and one.progress() == {}
        and one.outcome(120).split() == ["grade", "mine", "0:00"]
    )
    told = {"label": "grade", "done": 3, "total": 9, "good": 1, "left": 61.0}
    (tmp_path / "grade.progress.json").write_text(json.dumps(told))
    assert (
        one.outcome(60) == "grade mine  3/9, 1 ok  0:00"
        and one.line() == "grade mine 3/9, 1 ok 0:00, 1:01 left"
    )
    for half in ('{"done": 3', "[]", "{}", ""):
        (tmp_path / "grade.progress.json").write_text(half)
        assert one.progress() == {}, "what is being written is read again later"
    one.forget()
    assert not list(tmp_path.iterdir())


def test_a_failed_jobs_last_words(tmp_path):
    log = tmp_path / "x.log"
    assert "it was killed, or never started" in last_words([str(log)])
    log.write_text("error: the first\nTraceback\nerror: what was wrong; expected b\ngrade: 3/9\n\n")
    assert last_words([str(log)]) == "error: what was wrong; expected b"
    log.write_text("Traceback\nModuleNotFoundError: no x\n")
    assert last_words(["none", str(log)]) == "ModuleNotFoundError: no x"


def test_the_end_is_told_once_every_rule_was_seen(tmp_path, clock):
    first = Forecast(tmp_path)
    first.remaining.update({"grade": 3, "score": 1})
    assert first.seconds_left([], 0) is None
    done, clock.now = job(tmp_path), 10
    first.record_finish(done)
    assert first.seconds_left([], 10) is None, "no score was ever seen"
    row = {"started": "2026-01-01T00:00:00+00:00", "seconds": 4, "code": 0, "machine": {"cpus": 2}}
    (tmp_path / "score").mkdir()
    (tmp_path / "score/x.runs.jsonl").write_text(
        json.dumps(row) + "\n" + json.dumps(row | {"code": 1, "seconds": 900})
    )
    again = Forecast(tmp_path)
    again.remaining.update({"grade": 3, "score": 1})
    again.record_finish(done)
    assert again.seconds_left([], 10) == pytest.approx(2 * 10 + 4)
    running = job(tmp_path, number=2)
    assert again.seconds_left([running], 10) == pytest.approx((10 + 4) / 2), "two at once"
