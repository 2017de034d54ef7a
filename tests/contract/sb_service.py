"""A stand-in for SWE-bench's service with POST /submit, GET /get-quotas and POST /get-report.

Its responses have the shapes that sb-cli 0.1.5 reads and that its reports were seen to have. The attributes
of a `Service` set its faults.
"""

import threading
import time
from contextlib import contextmanager

from tests.json_service import json_service

KEY = "key-of-the-test"
TOTAL = 500


class Service:
    """Runs by id. All instances count as graded after `looks` requests for the report."""

    def __init__(self, resolved=(), looks=1, quota=3):
        self.resolved, self.looks, self.quota = set(resolved), looks, quota
        self.runs, self.asked, self.posts = {}, 0, []
        self.statuses = {}  # path -> list of (status, message), one for each response; the last one repeats
        self.refuse = {}  # instance id -> list of (status, message), one for each attempt
        self.stall, self.stalled = set(), lambda: None
        self.lock = threading.Lock()
        self.change = lambda report: report

    def answer(self, path, key, body):
        """Returns (status, response) for a request."""
        if path in self.stall:
            self.stalled()
            time.sleep(60)
        if key != KEY:
            return 401, {"message": "Invalid API key"}
        if queue := self.statuses.get(path):
            status, message = queue.pop(0) if len(queue) > 1 else queue[0]
            if status != 200:
                return status, message
        if path == "/get-quotas":
            return 200, {"remaining_quotas": {"swe-bench_verified": {"dev": 9, "test": self.quota}}}
        if path == "/submit":
            return self.submit(body)
        return (200, self.report(body)) if path == "/get-report" else (404, {"message": "no such path"})

    def submit(self, body):
        row = body["prediction"]
        with self.lock:
            if refusals := self.refuse.get(row["instance_id"]):
                status, message = refusals.pop(0)
                return status, {"message": message}
            run = self.runs.setdefault((body["subset"], body["split"], body["run_id"]), {})
            launched = row["instance_id"] not in run
            run.setdefault(row["instance_id"], row)
            self.posts.append(row["instance_id"])
        return 200, {"launched": launched, "instance_id": row["instance_id"]}

    def report(self, body):
        self.asked += 1
        run = self.runs[(body["subset"], body["split"], body["run_id"])]
        ids, done = sorted(run), self.asked > self.looks
        judged = ids if done else ids[: len(ids) // 2]
        lists = {
            "submitted": ids,
            "completed": judged,
            "resolved": [name for name in judged if name in self.resolved],
            "unresolved": [name for name in judged if name not in self.resolved],
            "pending": [name for name in ids if name not in judged],
            "error": [],
            "failed": [],
        }
        report = {"total_instances": TOTAL, "schema_version": 2}
        for name, found in lists.items():
            report |= {f"{name}_instances": len(found), f"{name}_ids": found}
        return {"report": self.change(report), "message": "report made"}


@contextmanager
def serving(service):
    """Serves `service` during the block and yields its address."""

    def reply(path, headers, body):
        status, record = service.answer(path, headers.get("x-api-key"), body or {})
        return status, record.encode() if isinstance(record, str) else record

    with json_service(reply) as server:
        yield server.url
