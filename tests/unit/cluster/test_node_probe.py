"""The report of a node that shares everything with the doctor, and of a node that shares nothing."""

import json
import os

import pytest

from swelab.cluster import node_probe
from swelab.jobs.journal import lock


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The doctor's folder. SLURM's commands and sandboxes work."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SWELAB_BACKEND", "bubblewrap")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(node_probe, "sandbox_fault", lambda name: "")
    program(programs / "scontrol", "exit 0")
    (tmp_path / "token").write_text("abc")
    return tmp_path


def program(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_a_node_that_shares_all_has_no_fault_and_answers(folder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with lock(folder / "lock"):
        facts = node_probe.look(folder, "abc", 2, False)
    assert facts.faults == [] and (folder / facts.answer).read_text() == "seen"
    assert node_probe.NodeFacts.of(json.loads(json.dumps(facts))) == facts


def test_each_fault_of_a_node_is_a_sentence(folder, monkeypatch):
    program(folder / "bin/scontrol", "echo no controller >&2; exit 1")
    monkeypatch.setattr(node_probe, "sandbox_fault", lambda name: f"no {name}")
    facts = node_probe.look(folder, "another", 1, False)
    sees, locks, gpus, commands, sandboxes = facts.faults
    assert "it does not see" in sees and "locks held here" in locks
    assert gpus == "0 GPUs were given, not 1; check GRES names"
    assert commands.endswith("which job steps lose: no controller")
    assert sandboxes == "sandboxes do not work there: no bubblewrap"
    assert node_probe.look(folder / "nowhere", "abc", 0, False).answer == ""
