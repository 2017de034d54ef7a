"""Whole runs of a paid policy: two jobs on one budget, a kill during a call, and a resumed run."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from swelab.jobs.shards import shard_of
from swelab.records import read_jsonl, write_json
from tests.conftest import ROOT
from tests.contract.hosted_service import Odd, Service, text_of

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
SHARDS = ("000of002", "001of002")
BUDGET = 0.004


class Vendor(Service):
    """A service that holds back one call of the second shard until the test releases it."""

    def __init__(self):
        super().__init__(self.hang_once)
        self.hanging, self.over = threading.Event(), threading.Event()

    @staticmethod
    def call(body):
        """Returns the task's name and the number of earlier turns of a request."""
        name = re.search(r"task-\d+", "".join(map(text_of, body["messages"])))[0]
        return name, sum(each["role"] == "assistant" for each in body["messages"])

    def hang_once(self, number, request):
        name, turn = self.call(request["body"])
        if turn != 1 or shard_of(name, 2) != 1 or self.hanging.is_set():
            return None
        self.hung = (name, turn)
        self.hanging.set()
        self.over.wait(60)
        return Odd("stall")


@pytest.fixture
def world(tmp_path, task, repos_dir):
    vendor = Vendor()
    tasks = [task | {"instance_id": f"task-{n}", "problem_statement": f"Mend task-{n}."} for n in range(8)]
    write_json(tmp_path / "settings.json", {"url": f"{vendor.url}/v1", "tasks": tasks})
    yield vendor, tmp_path
    vendor.over.set()
    vendor.close()


def start(folder, budget, *shards):
    command = [sys.executable, "-m", "tests.contract.paying", folder, budget, *shards]
    environment = os.environ | {"TOY_KEY": "secret"}
    return subprocess.Popen(
        [*map(str, command)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def entries(folder):
    return list(read_jsonl(folder / "progress/paid/ledger.jsonl"))


def test_two_jobs_share_a_budget_lose_one_to_a_kill_and_go_on_without_paying_twice(world):
    vendor, folder = world
    run = start(folder, BUDGET, *SHARDS)
    pids = dict(run.stdout.readline().split() for _ in SHARDS)
    assert vendor.hanging.wait(120)
    os.kill(int(pids[SHARDS[1]]), signal.SIGKILL)
    vendor.over.set()
    ends = json.loads(run.stdout.readline())
    run.wait(60)

    assert ends == {SHARDS[0]: 2, SHARDS[1]: -signal.SIGKILL}
    assert vendor.charged <= BUDGET
    told = (folder / f"{SHARDS[0]}.err").read_text().splitlines()[-1]
    assert re.search(r"^error: the budget of \$0.0040 of policy expert has no room for a call", told)
    assert re.search(r"\d of \d rollouts of this shard are left: raise budget_dollars of policy expert", told)
    assert not any((folder / f"{shard}.jsonl").exists() for shard in SHARDS)
    outcomes = {row["outcome"] for row in read_jsonl(folder / f"progress/{SHARDS[0]}.jsonl")}
    assert {"budget_spent"} <= outcomes <= {"budget_spent", "submitted"}
    paid_before = [vendor.call(each["body"]) for each in vendor.requests]

    again = start(folder, 1.0, *SHARDS)
    assert json.loads(again.stdout.readlines()[-1]) == dict.fromkeys(SHARDS, 0)
    again.wait(60)
    rows = [row for shard in SHARDS for row in read_jsonl(folder / f"{shard}.jsonl")]
    assert len(rows) == 8 and {row["outcome"] for row in rows} == {"submitted"}
    assert all("a + b" in row["model_patch"] for row in rows)
    assert any(row["info"].get("resumed") for row in rows)
    calls = [vendor.call(each["body"]) for each in vendor.requests]
    assert len(calls) > len(paid_before) > 4
    books = entries(folder)
    cut = [row["nanodollars"] for row in books if row["how"] == "cut off"]
    turns = Counter((row["instance_id"], turn) for row in rows for turn in range(3))
    twice = Counter(calls) - turns
    assert not turns - Counter(calls) and twice[vendor.hung] == 1
    assert sum(twice.values()) <= len(cut) <= 3, "only what the kill cut off is paid for again"
    spent = sum(row["nanodollars"] for row in books if row["how"] != "open")
    assert spent >= vendor.charged * 1e9
    stored = sum(row["info"]["model_stats"]["instance_cost"] for row in rows)
    assert stored == pytest.approx((spent - sum(cut)) / 1e9)
    assert not list((folder / "progress/paid/turns").iterdir())
    written = [path for path in folder.rglob("*") if path.suffix in (".jsonl", ".err")]
    assert written and not [path for path in written if "secret" in path.read_text()]
