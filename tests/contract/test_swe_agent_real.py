"""SWE-agent itself, in containers of a real engine, with a chat service of a fixed plan.

Where it is installed: SWELAB_SWEAGENT names its program; SWELAB_SWEREX a folder that
`pip install --target` of swe-rex made for Python 3.11. Takes about five minutes.
"""

import os
import subprocess

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.grading.harness.grade import grade
from swelab.models import BudgetSpent
from swelab.records import InputError, check, write_json
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.sandbox import Image, Limits, open_backend
from swelab.tasks.checkout import RepoStore
from tests.contract.planned_model import KEY, planned_model
from tests.contract.test_grading_images import lab, rows  # noqa: F401

REX = os.environ.get("SWELAB_SWEREX", "")
LAUNCHER = '#!/bin/sh\nPYTHONPATH=/opt/swe-rex exec /usr/bin/python3 -m swerex.server "$@"\n'
PATH = "/opt/toolbox/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (os.environ.get("SWELAB_SWEAGENT") and REX),
        reason="SWELAB_SWEAGENT and SWELAB_SWEREX are not set",
    ),
]


@pytest.fixture(scope="module")
def held(lab, engine):  # noqa: F811
    """The lab's image, in the engine, with its programs on the path."""
    (lab.folder / "root/.bashrc").touch()
    packed = subprocess.run(["tar", "-c", "-C", lab.folder, "."], capture_output=True, check=True).stdout
    digest = engine.docker("import", "--change", f"ENV PATH={PATH}", "-", lab.name, input=packed)
    return Image(lab.name, digest)


@pytest.fixture
def batch(held, tmp_path, monkeypatch):
    """A function that runs both tasks, with changes to the policy and to the issue's text."""
    launcher = tmp_path / "swerex-remote"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    known = {"digest": held.digest, "bytes": 1, "folder": "", "workdir": "/testbed"}
    known |= {"pulled": "2025-01-01", "checked": 1, "leaks": []}
    write_json(tmp_path / "images.json", {"images": {held.name: known}, "failed": {}, "counts": {}})
    mounts = [f"--volume={REX}:/opt/swe-rex:ro", f"--volume={launcher}:/usr/local/bin/swerex-remote:ro"]
    scaffold = {"agent": "swe-agent", "call_limit": 6, "retries": 2, "port": 8000, "stall_seconds": 240}
    scaffold |= {"docker_args": ["--network=host", "--memory=2g", *mounts]}

    def run(form, policy, issue="add should add."):
        tasks = [rows()[name] | {"problem_statement": issue} for name in ("smith", "older")]
        config = scaffold | {"config": f"configs/swe-agent/{form}.yaml"}
        found = roll_out_batch(
            tasks,
            policy_name="gpt-4o",
            policy=recipes.complete(POLICY, {"scaffold": "x", "api_key_env": "K"} | policy, "policy"),
            scaffold=recipes.complete(SCAFFOLD, config, "scaffold"),
            subset="s",
            shard="000of001",
            images_path=tmp_path / "images.json",
            progress=tmp_path / "progress" / "000of001.jsonl",
            workers=1,
        )
        return tasks, list(found)

    monkeypatch.setenv("K", KEY)
    return run


def policy(form, url, **changes):
    """The expert behind a service by LiteLLM, or a student behind an endpoint of ours."""
    sampling = {"temperature": 0, "max_tokens": 512}
    if form == "generate":
        return {"kind": "hosted", "model": "openai/gpt-4o", "api_base": url, "sampling": sampling} | changes
    return {"kind": "checkpoint", "weights": "w", "endpoint": url, "sampling": sampling} | changes


@pytest.mark.parametrize("form", ["generate", "infer"])
def test_both_forms_to_resolved_patches(form, batch, held, tmp_path, engine):
    with planned_model() as service:
        tasks, found = batch(form, policy(form, service.url))
    store, backend = RepoStore(tmp_path, tmp_path / "trees"), open_backend("docker")
    for task, record in zip(tasks, found, strict=True):
        check(record, "trajectory", "row")
        assert record["outcome"] == "submitted" and record["info"]["patch_from"] == "pred"
        assert record["info"]["model_stats"]["instance_cost"] == 0 or form == "generate"
        verdict = grade(task, record["model_patch"], store, backend, Limits(), image=held)
        assert (verdict["status"], verdict["reason"]) == ("resolved", "")
    seen = str(found[0]["messages"][3]["content"])
    assert "OBSERVATION:\n1\n" in seen  # one commit, so nothing tells the clean code
    left = [path for path in (tmp_path / "progress").rglob("*") if path.is_file()]
    assert left and not [path for path in left if KEY.encode() in path.read_bytes()]
    assert not engine.containers()


def test_a_full_context_and_a_call_limit_are_told_apart(batch):
    with planned_model() as service:
        _, full = batch("infer", policy("infer", service.url), "OVERFLOW")
        _, endless = batch("infer", policy("infer", service.url), "ENDLESS")
    assert {record["outcome"] for record in full} == {"context_limit"}
    assert {record["outcome"] for record in endless} == {"step_limit"}


@pytest.mark.parametrize("form", ["generate", "infer"])
def test_a_wrong_key_is_one_line(form, batch, monkeypatch):
    monkeypatch.setenv("K", "wrong")
    with (
        planned_model() as service,
        pytest.raises(InputError, match=r"the model service refused: .*(wrong key|no key is left)"),
    ):
        batch(form, policy(form, service.url))


def test_a_budget_ends_a_batch_and_a_higher_one_goes_on(batch, engine):
    price = {"input": 1, "output": 1000}  # an answer costs a cent, and may cost 51
    with planned_model() as service:
        with pytest.raises(BudgetSpent, match="1 of 2 rollouts of this shard are left"):
            batch("generate", policy("generate", service.url, price=price, budget_dollars=0.56))
        assert 0 < len(service.requests) < 6 and not engine.containers()
        _, found = batch("generate", policy("generate", service.url, price=price, budget_dollars=5))
    assert [record["outcome"] for record in found] == ["submitted"] * 2
    assert all(record["info"]["model_stats"]["instance_cost"] > 0.02 for record in found)
