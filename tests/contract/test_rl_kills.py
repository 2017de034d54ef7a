"""A reinforcement learning run that is killed repeatedly samples nothing twice, and ends well."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from swelab.records import read_jsonl
from tests.conftest import run_program
from tests.contract.small_rl import RECIPE, ROOT, command, journals, make_place, started

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
KILLS = int(os.environ.get("SWELAB_KILLS", "2"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("rl"))


def test_killed_again_and_again_it_ends_well(place):
    moments, ends = random.Random(5), []
    log = (place / "log").open("wb")
    for _ in range(KILLS):
        before = started(place)
        run = subprocess.Popen(command(place), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 240
        while started(place) == before and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 0.6))
        with contextlib.suppress(ProcessLookupError):  # it had ended
            os.killpg(run.pid, signal.SIGKILL)
        ends.append(run.wait())
    assert -signal.SIGKILL in ends, (place / "log").read_text()
    done = run_program(command(place), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["step"] for row in read_jsonl(place / "out/metrics.jsonl")] == [0, 1, 2, 3]
    said = (place / "log").read_text() + done.stderr  # a killed run may have finished the last step
    assert "step 3 of 3: 4 rollouts, " in said and "step 4 of 3" not in said
    assert len(journals(place)) == 3
    for path in [*journals(place), *place.glob("work/*/validation-*/*.jsonl")]:
        keys = [json.loads(text)["key"] for text in path.read_text().splitlines()]
        assert len(keys) == len(set(keys)), "something was sampled twice"


def test_more_steps_go_on_from_the_last(place):
    (place / "longer.yaml").write_text(RECIPE.replace("steps: 3", "steps: 4"))
    lines = started(place)
    done = run_program(command(place, "longer.yaml"), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["step"] for row in read_jsonl(place / "out/metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert len(journals(place)) == 4 and started(place) > lines


def test_a_poisoned_rollout_stops_the_run_with_the_last_good_checkpoint_kept(place):
    (work,) = (place / "work").iterdir()
    shutil.rmtree(work / "checkpoint-00004")
    path = journals(place)[3]
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    poisoned = next(line for line in lines if "grade" in line)
    poisoned["turns"][0]["logprobs"][0] = float("nan")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_program(command(place, "longer.yaml"), cwd=ROOT)
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(told) == 1 and "Traceback" not in done.stderr, done.stderr
    assert told[0].startswith(f"error: step 4: the loss of {poisoned['key']} is no number, in micro-batch ")
    assert str(work / "checkpoint-00003") in told[0]
    assert (work / "checkpoint-00003").is_dir() and not (work / "checkpoint-00004").exists()
