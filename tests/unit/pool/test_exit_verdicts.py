"""A verdict on a patch starts from the last commit, whatever an earlier patch in the same lease left."""

import subprocess
from types import SimpleNamespace

import pytest

from swelab.pool.exec_server import evaluate
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


class ReadingBox(HereBox):
    """A HereBox from which files are read, too."""

    def put(self, name, data):
        if name.startswith("/tmp/swelab-"):
            name = name.replace("/tmp/swelab-", f"{self.folder}/swelab-")
            (self.folder / name).parent.mkdir()
            (self.folder / name).write_bytes(data)
        else:
            super().put(name, data)

    def get(self, name):
        name = name.replace("/tmp/swelab-", f"{self.folder}/swelab-")
        return (self.folder / name).read_bytes()

    def exec(self, command, limits=None):
        done = super().exec(command.replace("/tmp/swelab-", f"{self.folder}/swelab-"), limits)
        done.check = lambda: done
        return done


MOVE = "diff --git a/{0} b/h\nsimilarity index 100%\n{1} from {0}\n{1} to h\n"


def test_a_patch_moves_files_of_the_repository_alone(repository):
    sandbox = SimpleNamespace(box=ReadingBox(repository.parent))

    def verdict(patch, script):
        request = SimpleNamespace(patch=patch, eval_script=script, cwd=str(repository))
        return evaluate(sandbox, request, Limits())

    assert verdict(MOVE.format("sub/f", "rename"), "set -e\ngrep -q one h\n! test -e sub/f\n")["resolved"]
    assert verdict(MOVE.format("sub//f", "copy"), "set -e\ngrep -q one h\ntest -e sub/f\n")["resolved"]
    (repository.parent / "secret").write_text("secret\n")
    for name, why in (("../secret", "leaves the repository"), ("none", "which is not there")):
        refused = verdict(MOVE.format(name, "copy"), "set -e\n")
        assert not refused["resolved"] and refused["error"] == "the patch does not apply"
        assert why in refused["output"]
