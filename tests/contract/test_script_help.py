"""Every shell script that a user can start says what it does when it is asked, and does nothing then."""

import shutil
import subprocess

import pytest

from tests.conftest import ROOT

LISTED = subprocess.run(["git", "ls-files", "-s", "*.sh"], cwd=ROOT, capture_output=True, text=True).stdout
SCRIPTS = [line.split("\t")[1] for line in LISTED.splitlines() if not line.startswith("100644")]
VARIABLES_ALONE = [
    *("scripts/train_run_ft_torchtune.sh", "scripts/train_run_ft_torchtune_local.sh"),
    *("scripts/train_serve_sglang_local.sh", "swe-rl/data/pull_swe_images.sh", "hosts/host.sh"),
    *("swe-rl/data/pull_swebench_verified_images.sh", "swe-rl/server/setup_ecs_seed.sh"),
]


def run(script, *words, home):
    # Nothing that it may start is there, but for what reads a script.
    tools = home / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "sed", "dirname", "readlink", "basename", "cat", "grep"):
        (tools / name).symlink_to(shutil.which(name))
    variables = {"PATH": str(tools), "HOME": str(home)}
    return subprocess.run([ROOT / script, *words], cwd=home, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_given_and_nothing_done(script, tmp_path):
    done = run(script, "--help", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.strip()) > 40, done
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize("script", VARIABLES_ALONE)
def test_unknown_words_are_refused_before_anything_is_done(script, tmp_path):
    done = run(script, "--verbose", home=tmp_path)
    assert done.returncode == 2 and "--verbose" in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]
