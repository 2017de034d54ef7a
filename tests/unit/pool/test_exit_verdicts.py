"""A verdict on a patch starts from the last commit, whatever an earlier patch in the same lease left."""

import subprocess
from types import SimpleNamespace

import pytest

from swelab.pool.exit_verdicts import evaluate
from swelab.sandbox.protocol import Limits

ADDS = "diff --git a/g b/g\nnew file mode 100644\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+new\n"
SCRIPT = "set -e\ngrep -q new g\ntest -e build/out\n"
GONE = "set -e\n! test -e g\ntest -e sub/left\n"


class HereBox:
    """A sandbox that is this machine: `put` writes files, `exec` runs bash."""

    def __init__(self, folder):
        self.folder = folder

    def put(self, name, data):
        (self.folder / name.rpartition("/")[2]).write_bytes(data)

    def exec(self, command, limits):
        command = command.replace("/tmp/.swelab-", f"{self.folder}/.swelab-")
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return SimpleNamespace(returncode=done.returncode, output=done.stdout, limit="")


@pytest.fixture
def repository(tmp_path):
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    (repository / "sub").mkdir()
    (repository / "sub/f").write_text("one\n")
    (repository / ".gitignore").write_text("build\n")
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", repository, *words], check=True)
    (repository / "build").mkdir()
    (repository / "build/out").touch()
    return repository


def test_a_patch_is_judged_again_and_the_image_s_own_files_stay(repository):
    sandbox = SimpleNamespace(box=HereBox(repository.parent))

    def verdict(patch, script, cwd=repository):
        request = SimpleNamespace(patch=patch, eval_script=script, cwd=str(cwd))
        return evaluate(sandbox, request, Limits())

    for _ in range(2):
        assert verdict(ADDS, SCRIPT)["resolved"] is True
    (repository / "sub/left").touch()
    assert verdict("", GONE)["resolved"] is True
    (repository / "g").write_text("left by an agent\n")
    assert verdict(ADDS, SCRIPT)["resolved"] is True
    assert verdict("", "set -e\n! test -e ../g\n", repository / "sub")["resolved"] is True
    assert (repository / "build/out").exists()
