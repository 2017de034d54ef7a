"""The doctor without a cluster: each missing thing is one line with its remedy, and the exit code is 1."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.conftest import ROOT, run_program
from tests.e2e.clone import make_clone

pytestmark = pytest.mark.full

EXPERIMENT = """\
expert: {policy: mine, subsets: [drill-train]}
sft: mine
policies: [base, mine]
benchmarks: [drill-heldout]
compare: [base, mine]
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return make_clone(tmp_path_factory.mktemp("doctor") / "swelab")


@pytest.fixture
def doctor(clone):
    """Returns the doctor's exit code, the lines that say what to fix, and its whole output."""

    def run(*words, env=(), policy="", **settings):
        toolbox = os.environ.get("SWELAB_TOOLBOX") or str(ROOT / ".venv-sandbox")
        record = yaml.safe_load((ROOT / "configs/config.yaml").read_text())
        (clone / "configs/config.yaml").write_text(yaml.safe_dump(record | {"toolbox": toolbox, **settings}))
        (clone / "configs/policies/mine.yaml").write_text(policy or "kind: scripted\nscaffold: demo\n")
        shutil.copy(clone / "configs/sft/demo.yaml", clone / "configs/sft/mine.yaml")
        (clone / "configs/experiments/mine.yaml").write_text(EXPERIMENT)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        done = run_program(
            [sys.executable, "-m", "scripts.doctor", "--experiment", "mine" if policy else "demo", *words],
            cwd=clone,
            env={**kept, **dict(env)},
        )
        assert "Traceback" not in done.stderr, done.stderr
        fixes = [line[5:] for line in done.stdout.splitlines() if line.startswith("FIX")]
        return done.returncode, fixes, done.stdout + done.stderr

    return run


@pytest.mark.real
def test_a_machine_that_has_all_is_sound_and_nothing_is_asked_of_a_cluster(doctor):
    code, fixes, text = doctor()
    assert code == 0 and not fixes, text
    words = ["Python 3.11", "packages: all", "a command ran in one", "memory: ", "cores: ", "disk: "]
    assert all(f"ok   {word}" in text or f"low  {word}" in text or word in text for word in words), text
    assert "No SLURM controller answers here: configs/site.yaml was not looked at" in text


@pytest.mark.real
@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"backend": "docker", "env": {"DOCKER_HOST": "unix:///no/engine"}},
            ["sandboxes (docker)", "/no/engine", "start the engine, or set DOCKER_HOST"],
        ),
        (
            {"toolbox": "/no/toolbox"},
            ["sandboxes (bubblewrap)", "no Python venv for sandboxes at /no/toolbox"],
        ),
        ({"env": {"PATH": "/nonexistent"}}, ["no git patch", "apt-get install git patch"]),
    ],
    ids=["engine", "toolbox", "programs"],
)
def test_what_is_missing_is_one_line_with_what_to_do(doctor, changes, words):
    code, fixes, text = doctor(**changes)
    assert code == 1 and any(all(word in fix for word in words) for fix in fixes), text
    assert text.splitlines()[-1].startswith(f"error: {len(fixes)} to fix")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize(
    "options, words",
    [
        ("size=64m,noexec", ["is mounted noexec"]),
        ("size=64m", ["0.1 GiB free; expected 1 or more", "SWELAB_SCRATCH"]),
    ],
    ids=["noexec", "small"],
)
def test_the_scratch_folder_is_looked_at(doctor, tmp_path, options, words):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(tmp_path)], check=True)
    try:
        code, fixes, text = doctor(env={"SWELAB_SCRATCH": str(tmp_path)})
        assert code == 1 and any(all(word in fix for word in words) for fix in fixes), text
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
