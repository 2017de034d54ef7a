"""Install steps of eval scripts: a real pip runs them once with a network. Tests run without a network."""

import shutil
import subprocess
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pip
import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench
from swelab.grading.validation.validate_tasks import validate
from swelab.images.engine_images import EnginePuller
from swelab.images.image_store import ImageStore
from swelab.images.install_layer import install_in_image
from swelab.images.registry import Registry
from swelab.jobs.journal import Journal
from swelab.records import InputError, write_json
from swelab.records.image_records import HeldImage
from swelab.records.task_records import Task
from swelab.sandbox import Image, open_backend
from swelab.tasks.checkout import RepoStore
from swelab.tasks.install_steps import preparation
from tests.conftest import FILES
from tests.contract.test_grading_images import FIX, commit, git
from tests.json_service import running

pytestmark = [pytest.mark.real, pytest.mark.full]
SCRIPT = """#!/bin/bash
set -exo pipefail
cd /testbed
git status
python -m pip install --index-url http://{index}/simple {package}; hash -r
git checkout HEAD tests/test_core.py
git apply -v - <<'EOF_114329324912'
{patch}EOF_114329324912
pytest -rA tests/test_core.py
git checkout HEAD tests/test_core.py
"""
TEST_PATCH = """diff --git a/tests/test_core.py b/tests/test_core.py
--- a/tests/test_core.py
+++ b/tests/test_core.py
@@ -7,3 +7,9 @@
\x20
 def test_last():
     assert last([1, 2]) == 2
+
+
+def test_more():
+    import addends
+
+    assert add(*addends.TWO) == 2
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The address of a package index on loopback that has one wheel."""
    folder = tmp_path_factory.mktemp("index")
    place = folder / "simple/addends"
    place.mkdir(parents=True)
    facts = "addends-1.0.dist-info"
    with zipfile.ZipFile(place / "addends-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("addends.py", "TWO = (1, 1)\n")
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: addends\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with running(server):
        yield f"127.0.0.1:{server.server_address[1]}"


@pytest.fixture(params=["bubblewrap", "docker"])
def pulled(request, image, backend, tmp_path):
    """Returns (backend, puller, record of an image with a repository and pip, as a pull leaves it)."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", image.folder, root], check=True)
    site = next((root / "opt/toolbox/lib").glob("python3*")) / "site-packages/pip"
    shutil.copytree(Path(pip.__file__).parent, site, ignore=shutil.ignore_patterns("__pycache__"))
    (site.parent / "testbed.pth").write_text("/testbed\n")
    tree = root / "testbed"
    for name, text in FILES.items():
        if name != "conftest.py":
            (tree / name).parent.mkdir(exist_ok=True, parents=True)
            (tree / name).write_text(text.replace("a + b", "a - b") if "core.py" in name else text)
    git(tree, "init", "-q", "-b", "main")
    commit(tree, "bug")
    record = {"workdir": "/testbed", "bytes": 1}
    if request.param == "bubblewrap":
        store = ImageStore(tmp_path / "images", Registry())
        digest = f"sha256:{7:064}"
        root.rename(store.root(digest))
        about = {"config": {"Env": ["PATH=/opt/toolbox/bin:/usr/bin:/bin"]}, "digest": digest, "bytes": 1}
        write_json(store.root(digest).with_name(store.root(digest).name + ".json"), about)
        return backend, store, store.record(digest)
    engine = request.getfixturevalue("engine")
    packed = subprocess.run(["tar", "-c", "-C", root, "."], capture_output=True, check=True).stdout
    digest = engine.docker("import", "--change=ENV PATH=/opt/toolbox/bin:/usr/bin:/bin", "-", input=packed)
    return open_backend("docker"), EnginePuller(Registry()), HeldImage(**record, digest=digest, folder="")


def row(index, package):
    tests = {"FAIL_TO_PASS": ["tests/test_core.py::test_add", "tests/test_core.py::test_more"]}
    script = SCRIPT.format(index=index, package=package, patch=TEST_PATCH)
    return Task.of(tests) | {
        "instance_id": "lab__calc-1",
        "repo": "lab/calc",
        "image_name": "lab/gym",
        "problem_statement": "add should add.",
        "patch": FIX,
        "test_patch": TEST_PATCH,
        "version": "1.0",
        "eval_script": script,
        "PASS_TO_PASS": ["tests/test_core.py::test_last"],
    }


def judged(task, ground, record, tmp_path):
    """Returns the lock of one task in the image of a record."""
    backend, puller, _ = ground
    folder = puller.folder / record["folder"] if record["folder"] else None
    image = Image("lab/gym", record["digest"], folder, install=record.get("install", ""))
    bench = Bench(RepoStore(tmp_path, tmp_path / "trees"), backend, {task["instance_id"]: image})
    with Journal(tmp_path / f"{record['digest'][-8:]}.jsonl") as journal:
        return validate([task], Validation(gold_runs=1, together=False), bench, journal, 1)


def test_steps_run_once_with_a_network_and_tests_run_without(pulled, index, tmp_path):
    backend, puller, before = pulled
    task = row(index, "addends")
    steps = preparation([task])
    record = install_in_image(puller, before, steps)
    assert record["install"] == "" and record["digest"] != before["digest"]
    assert install_in_image(puller, before, steps) == record  # found again
    lock = judged(task, pulled, record, tmp_path)
    assert [kept["instance_id"] for kept in lock["kept"]] == ["lab__calc-1"], lock
    folder = puller.folder / record["folder"] if record["folder"] else None
    with backend.start(None, image=Image("lab/gym", record["digest"], folder)) as box:
        assert box.exec("python -c 'import addends'").returncode == 0
        reach = f"import urllib.request as u; u.urlopen('http://{index}/simple/')"
        assert box.exec(f'python -c "{reach}"').returncode != 0  # agents and tests have no network
    if record["folder"]:
        old, new = puller.folder / before["folder"], puller.folder / record["folder"]
        assert (old / "usr/bin/git").samefile(new / "usr/bin/git")
        assert not list(old.rglob("addends.py")) and list(new.rglob("addends.py"))


def test_a_step_that_fails_is_quoted_in_the_lock(pulled, index, tmp_path):
    task = row(index, "absent")
    record = install_in_image(pulled[1], pulled[2], preparation([task]))
    assert record["digest"] == pulled[2]["digest"]
    step = f"`python -m pip install --index-url http://{index}/simple absent`"
    assert record["install"].startswith(f"the install step {step} fails (exit code 1): ERROR: ")
    with pytest.raises(InputError) as fault:
        judged(task, pulled, record, tmp_path)
    assert "the gold patch is resolved in 0 of 1 runs" in str(fault.value) and step in str(fault.value)
