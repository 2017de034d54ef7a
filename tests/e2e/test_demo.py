"""The demo as `make` runs it: a tiny model really learns. Ten minutes: in CI, or with SWELAB_DEMO=1."""

import json
import os

import pytest

from tests.e2e.clone import make_clone, snakemake

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (os.environ.get("CI") or os.environ.get("SWELAB_DEMO")),
        reason="takes ten minutes: set SWELAB_DEMO=1 to run it",
    ),
]


@pytest.fixture(scope="module")
def score(tmp_path_factory):
    clone = make_clone(tmp_path_factory.mktemp("demo") / "swelab")
    code, text = snakemake(clone, config=["experiment=demo"])
    assert code == 0, text[-6000:]
    return json.loads((clone / "results/verified_score.json").read_text())


def test_the_demo_learns_what_its_base_cannot(score):
    base, sft = score["policies"]["base"], score["policies"]["sft"]
    assert score["benchmark"]["name"] == "drill-heldout" and score["benchmark"]["size"] >= 60
    assert base["resolve_rate"] <= 0.02 and sft["resolve_rate"] >= 0.8
    assert score["comparison"]["p_value"] < 0.001


def test_the_forged_tasks_are_scored_beside_it(score):
    (forged,) = score["others"]
    assert forged["benchmark"]["name"] == "forge-heldout" and forged["benchmark"]["size"] >= 40
    for policy in (*score["policies"].values(), *forged["policies"].values()):
        assert policy["statuses"]["infra_error"] == 0
