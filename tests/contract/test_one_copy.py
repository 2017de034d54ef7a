"""A sandbox contains an image's repository once. No backend shows the unscrubbed copy."""

import io
import tarfile

import pytest

from swelab.records.task_records import Task
from swelab.sandbox import Image, open_backend
from swelab.tasks.image_history import prepare
from swelab.tasks.image_leaks import check_image
from tests.contract.attacks import SHORT, text
from tests.contract.image_files import folder_layer, programs_layer
from tests.contract.test_history import BUG, BUGGY, CLEAN, commit, git

pytestmark = [pytest.mark.real, pytest.mark.full]
FOLDERS = r"find / -path /proc -prune -o -type d \( -name .git -o -name objects \) -print 2>/dev/null"
HIDDEN = """
for store in $(find / -path /proc -prune -o -type d -name objects -print 2>/dev/null); do
    GIT_DIR=/testbed/.git GIT_OBJECT_DIRECTORY=$store git cat-file -e {commit} 2>/dev/null && echo $store
done
"""


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Returns (a repository whose HEAD is a task's base, the base, the commit that repairs it)."""
    tree = tmp_path_factory.mktemp("history")
    git(tree, "init", "-q", "-b", "main")
    base = commit(tree, calc=BUGGY, test_calc="def test_add(): pass\n")
    fix = commit(tree, "repair", calc=CLEAN)
    git(tree, "checkout", "-q", base)
    return tree, base, fix


@pytest.fixture(scope="module", params=["folder", "docker", "remote"])
def make_image(request, backend):
    """Returns a function that makes (backend, image). The image has a repository at a path, and programs."""

    def make(tree, path):
        layers = [programs_layer(), folder_layer(tree, path.strip("/"))]
        if request.param == "folder":
            root = request.getfixturevalue("tmp_path_factory").mktemp("image") / "root"
            for layer in layers:
                with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                    tar.extractall(root)
            return backend, Image("scratch", "sha256:" + "3" * 64, root, path)
        engine = request.getfixturevalue("engine")
        if request.param == "remote":
            request.getfixturevalue("pool")
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as out:
            for layer in layers:
                with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                    for entry in tar:
                        out.addfile(entry, tar.extractfile(entry) if entry.isreg() else None)
        digest = engine.docker("import", "-", "lab/scratch", input=whole.getvalue())
        return open_backend(request.param), Image("lab/scratch", digest, workdir=path)

    return make


@pytest.mark.parametrize("path", ["/testbed", "/workspace/calc"])
def test_the_unscrubbed_repository_is_nowhere(history, make_image, path):
    tree, base, fix = history
    backend, image = make_image(tree, path)
    task = Task.of({"instance_id": "a__b-1", "patch": BUG, "test_patch": "x", "base_commit": base})
    task |= {"FAIL_TO_PASS": ["test_calc.py::test_add"], "image_name": image.name}
    assert check_image(backend, image, [task]) == (1, [])
    with backend.start(None, image=image, limits=SHORT) as box:
        assert text(box.exec(HIDDEN.format(commit=fix))).split() == ["/testbed/.git/objects"] + (
            [f"{path}/.git/objects"] if path != "/testbed" and backend.name == "bubblewrap" else []
        )  # the same folder, by the image's name for it
        assert prepare(box, task) == base
        assert text(box.exec(HIDDEN.format(commit=base))).split()[0] == "/testbed/.git/objects"
        assert text(box.exec(HIDDEN.format(commit=fix))) == ""
        for found in text(box.exec(FOLDERS)).split():
            own = found[found.index("/.git") :] if "/.git" in found else "/none"
            assert box.exec(f"[[ {found} -ef /testbed{own} ]]").returncode == 0, found
        assert text(box.exec(f"echo x > {path}/new; cat new; ls -A {path}")) == (
            "x\n.git\ncalc.py\nnew\ntest_calc.py\n"
        )


def test_every_command_starts_outside_of_the_closed_folder(history, make_image):
    backend, image = make_image(history[0], "/testbed")
    with backend.start(None, image=image, limits=SHORT) as box:
        for _ in range(2):
            assert text(box.exec("pwd; ls /proc/self/cwd/; cd - 2>&1")).startswith("/testbed\ncalc.py\n")
        assert "Permission denied" in text(box.exec("ls -A /.swelab /proc/1/cwd/ 2>&1")) or (
            backend.name == "bubblewrap"
        )
