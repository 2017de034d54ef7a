"""Big bodies are looked at elsewhere: the server's loop goes on, and nothing stays behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swelab.pool import request_schemas
from swelab.pool.body_scan import BodyScan
from swelab.pool.json_bounds import examined
from swelab.sandbox.remote_protocol import NotReached
from tests.conftest import ROOT
from tests.contract.attacks import until

SHAPE = request_schemas.acts("lease_id")["exec"]
FEW = {"lease_id": "x", "command": "true"}
BODIES = [
    (json.dumps({**FEW, "command": "x" * (1 << 20)}), ""),
    (json.dumps({**FEW, "env": None}), ""),
    (json.dumps({**FEW, "env": {"A": 1}}), "field env.A: data.env.A must be string"),
    (json.dumps({**FEW, "env": dict.fromkeys(map(str, range(300_000)), "")}), "more than 100000 values"),
    ('{"env": ' + "[" * 2_000_000, "nested deeper than 16"),
    ('{"command": "' + '\\"' * 2_000_000, "is not JSON"),
    ('{"command": "x", "command": "y"}', "names a field twice"),
    ('{"command": NaN}', "is not JSON"),
]


@pytest.fixture
def scan():
    made = BodyScan()
    yield made
    made.close()


@pytest.mark.parametrize(("body", "words"), BODIES, ids=range(len(BODIES)))
def test_what_is_wrong_is_said_in_one_line(scan, body, words):
    told = asyncio.run(scan.fault(body.encode(), SHAPE))
    assert words in told and bool(words) == bool(told) and "\n" not in told and len(told) < 500
    assert told == examined(body.encode(), SHAPE)[1]


@pytest.mark.full
def test_the_server_does_not_look_itself(scan):
    """What it does itself, in whichever thread, its loop waits for."""
    body = json.dumps({**FEW, "env": dict.fromkeys(map(str, range(300_000)), "")}).encode()

    async def used():
        await scan.fault(b"{}", SHAPE)  # it has started
        began = time.process_time()
        await scan.fault(body, SHAPE)
        return time.process_time() - began

    began = time.process_time()
    examined(body, SHAPE)
    here = time.process_time() - began
    assert asyncio.run(used()) < here / 3


def test_a_process_that_ended_is_started_again(scan):
    async def asked():
        await scan.fault(b"{}", SHAPE)
        os.kill(scan._process.pid, signal.SIGKILL)
        with pytest.raises(NotReached, match="try again"):
            await scan.fault(b"{}", SHAPE)
        return await scan.fault(json.dumps(FEW).encode(), SHAPE)

    assert asyncio.run(asked()) == ""


def has_ended(status):
    try:
        return "State:\tZ" in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_ends_with_its_server_however_that_ends():
    lines = (
        "import asyncio, time",
        "from swelab.pool.body_scan import BodyScan",
        "scan = BodyScan()",
        "asyncio.run(scan.fault(b'{}', {}))",
        "print(scan._process.pid, flush=True)",
        "time.sleep(600)",
    )
    started = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, stdout=subprocess.PIPE)
    other = Path(f"/proc/{int(started.stdout.readline())}/status")
    assert other.exists()
    started.kill()
    started.wait()
    started.stdout.close()
    assert until(lambda: has_ended(other))
