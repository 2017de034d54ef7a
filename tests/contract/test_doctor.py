"""The doctor on a real SLURM: a good site passes, and each fault is one line that says what to fix."""

import os
import sys

import pytest
import yaml

from tests.conftest import ROOT, run_program
from tests.contract.slurm import needed_cluster
from tests.e2e.clone import make_clone

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def cluster():
    with needed_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return make_clone(tmp_path_factory.mktemp("doctor") / "swelab")


@pytest.fixture
def examine(cluster, clone):
    """Runs the doctor on the shipped site file with changed settings.

    Returns exit code, lines, and whole output.
    """

    def run(site=(), env=(), **settings):
        record = yaml.safe_load((ROOT / "configs/site.yaml").read_text())
        toolbox = os.environ.get("SWELAB_TOOLBOX") or str(ROOT / ".venv-sandbox")
        record["site"]["max_mem_mb"] = 16000
        record |= {"experiment": "demo", "toolbox": toolbox, **settings}
        for key, value in dict(site).items():
            if isinstance(value, dict):
                record["site"][key] |= value
            else:
                record["site"][key] = value
        (clone / "configs/site.yaml").write_text(yaml.safe_dump(record))
        done = run_program(
            [sys.executable, "-m", "scripts.doctor"],
            cwd=clone,
            env={**os.environ, **cluster.env, **dict(env)},
        )
        text = done.stdout + done.stderr
        assert "Traceback" not in text and not list((clone / "results").glob(".doctor-*")), text
        fixes = [line[5:] for line in done.stdout.splitlines() if line.startswith("FIX")]
        assert done.returncode == 0 or len([x for x in text.splitlines() if x.startswith("error: ")]) == 1
        return done.returncode, fixes, text

    return run


def test_the_shipped_site_is_sound_on_a_cluster_of_its_kind(examine):
    code, fixes, text = examine()
    assert code == 0 and not fixes, text
    assert "site.partitions.cpu: cpu (2 of 2 nodes up, 8 CPUs" in text
    assert "(cpu): repository, locks, Python and sandbox work there" in text


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"site": {"partitions": {"cpu": "cpus"}}},
            ["partitions.cpu", "'cpus' (did you mean 'cpu'?)", "gpu"],
        ),
        ({"site": {"max_minutes": 100000}}, ["site.max_minutes is 100000", "takes 2880 at most"]),
        ({"site": {"max_mem_mb": 99999}}, ["site.max_mem_mb is 99999", "has 16000"]),
        ({"site": {"sbatch": {"constraint": "none"}}}, ["partition cpu", "Invalid feature specification"]),
        ({"workers": 64}, ["asks for 64 cpus", "a node of cpu has 8", "lower workers"]),
        (
            {"site": {"environments": {"serve": "/no/venv", "train": ["cuda"]}}},
            ["site.environments.serve: its Python cannot serve", "/no/venv/bin/python: No such file"],
        ),
        (
            {"site": {"environments": {"serve": "/no/image.sif"}}},
            ["site.environments.serve", "cannot serve", "apptainer: not found"],
        ),
        ({"toolbox": "/no/toolbox"}, ["sandboxes do not work there", "/no/toolbox"]),
        (
            {"backend": "docker", "env": {"DOCKER_HOST": "unix:///no/engine"}},
            ["node c1: sandboxes do not work there", "/no/engine"],
        ),
    ],
    ids=["partition", "time", "memory", "constraint", "size", "folder", "image", "sandbox", "engine"],
)
def test_each_fault_is_one_line_that_says_what_to_fix(examine, changes, words):
    code, fixes, text = examine(**changes)
    assert code == 1 and len(fixes) >= 1, text
    assert any(all(word in fix for word in words) for fix in fixes), text


def test_a_job_knows_how_long_it_has_left(cluster):
    asked = [
        sys.executable,
        "-c",
        "from swelab.rl.engines import verl_deadline; print(verl_deadline.seconds_left())",
    ]
    for limit, least, most in (("2", 90, 120), ("1-00:00:00", 86_300, 86_400)):
        left = float(cluster.ask("srun", "--quiet", f"--time={limit}", f"--chdir={ROOT}", *asked))
        assert least < left <= most
