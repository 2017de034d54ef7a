"""Every shell script for users explains itself with --help, and does nothing else then."""

import shutil

import pytest

from tests.conftest import ROOT, run_program

LISTED = run_program(["git", "ls-files", "-s", "*.sh"], cwd=ROOT).stdout
SCRIPTS = [line.split("\t")[1] for line in LISTED.splitlines() if not line.startswith("100644")]
FOR_ANOTHER = {"envs/site_python.sh"}
"""The help of this script is that of a Python program."""
SOURCED = {"scripts/as_before.sh", "swe-rl/before.sh", "swe-rl/train.sh", "swe-pdb/train.sh"}
IN_A_SANDBOX = {
    *("swelab/sandbox/docker_init.sh", "swelab/sandbox/docker_prepare.sh", "swelab/tasks/scrub.sh")
}
BY_SNAKEMAKE = {"envs/workflow.post-deploy.sh"}


def run(script, *words, home):
    # Programs that the script may start do not exist, except those that read a script.
    tools = home / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "sed", "dirname", "readlink", "basename", "cat", "grep"):
        (tools / name).symlink_to(shutil.which(name))
    variables = {"PATH": str(tools), "HOME": str(home)}
    return run_program([ROOT / script, *words], cwd=home, env=variables)


def test_every_other_script_is_for_no_user():
    """These scripts are not started by name, but by another script, by a sandbox or by Snakemake."""
    listed = {line.split("\t")[1] for line in LISTED.splitlines()}
    assert listed - set(SCRIPTS) == SOURCED | IN_A_SANDBOX | BY_SNAKEMAKE


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_given_and_nothing_done(script, tmp_path):
    done = run(script, "--help", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "usage: " in done.stdout.lower(), done
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - FOR_ANOTHER))
def test_unknown_words_are_refused_before_anything_is_done(script, tmp_path):
    done = run(script, "--verbose", home=tmp_path)
    assert done.returncode == 2 and "--verbose" in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]
