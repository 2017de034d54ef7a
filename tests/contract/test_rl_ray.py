"""A reinforcement learning run with rollouts on two real Ray nodes: a node is lost, and the run is killed."""

import os
import signal

import pytest

from swelab.records import read_jsonl
from tests.contract.attacks import until
from tests.contract.ray_cluster import cluster
from tests.contract.small_rl import RECIPE, ROOT, command, journals, make_place

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def nodes():
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("rl-ray"), RECIPE.replace("steps: 3", "steps: 2"))


def train(ground, nodes, log):
    with open(log, "ab") as stream:
        env = nodes.env | {"SWELAB_EXECUTOR": "ray"}
        return nodes.inside(
            *command(ground), cwd=ROOT, env=env, stdout=stream, stderr=stream, start_new_session=True
        )


def test_a_training_on_hosts_survives_their_loss_and_its_own(ground, nodes):
    log = ground / "log"
    first = train(ground, nodes, log)
    hosts = set()

    def on_both():
        hosts.update(number for number in (0, 1) if nodes.actor(number))
        return first.poll() is not None or (journals(ground) and len(hosts) == 2)

    assert until(on_both, 600) and first.poll() is None, log.read_text()
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    nodes.kill(1)
    assert train(ground, nodes, log).wait() == 0, log.read_text()
    rows = list(read_jsonl(ground / "out/metrics.jsonl"))
    assert [row["step"] for row in rows] == [0, 1, 2]
    trained = [row for row in rows if "rollouts" in row]
    assert all(row["rollouts"] == 4 and row["rate/lost"] == 0 for row in trained)
    assert all(row["train/logprob_mismatch_max"] < 1e-3 for row in trained)
    # Other processes use the engine, so its idle time is unknown here.
    assert all("idle/places" in row and "idle/engine" not in row for row in trained)
    for path in journals(ground):
        keys = [row["key"] for row in read_jsonl(path)]
        assert len(keys) == len(set(keys)) == 4
    assert not list(ground.glob("work/*/on-hosts/*"))
