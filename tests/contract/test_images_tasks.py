"""From a task row that names an image to a rollout in that image: pulled, checked for leaks, scrubbed."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from minisweagent.models.test_models import DeterministicModel, make_output

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.images.image_names import parse_image_name
from swelab.images.image_store import ImageStore
from swelab.images.registry import Registry
from swelab.records import InputError, write_json
from swelab.records.task_records import Task
from swelab.rollouts import rollout_stage
from swelab.sandbox import Image, open_backend
from swelab.sandbox.pulled_images import load_images
from swelab.tasks.image_leaks import check_image
from swelab.tasks.task_images import task_images
from tests.conftest import ROOT, run_python
from tests.contract.image_files import folder_layer, programs_layer
from tests.contract.registry import entry, faulty_proxy, has_registry, layer, running_registry
from tests.contract.test_history import BUG, BUGGY, CLEAN, NAME, commit, git

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(not has_registry(), reason="Debian's docker-registry is not installed"),
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with running_registry(tmp_path_factory.mktemp("registry")) as opened:
        yield opened


@pytest.fixture(scope="module")
def smith(tmp_path_factory, registry):
    """Returns (name, layers) of an image: one repository with a branch for each task and a clean HEAD."""
    tree = tmp_path_factory.mktemp("smith")
    git(tree, "init", "-q", "-b", "main")
    commit(tree, pkg__calc=CLEAN, test_calc="def test_add(): pass\n")
    git(tree, "checkout", "-q", "-b", NAME)
    commit(tree, pkg__calc=BUGGY)
    git(tree, "checkout", "-q", "main")
    layers = [programs_layer(), folder_layer(tree, "testbed")]
    registry.image("lab/smith", layers)
    return f"{registry.host}/lab/smith", layers


def row(image, name=NAME):
    return Task.of(
        {
            "instance_id": name,
            "repo": "lab/calc",
            "patch": BUG.replace("calc.py", "pkg/calc.py"),
            "problem_statement": "add should add.",
            "FAIL_TO_PASS": ["test_calc.py::test_add"],
            "PASS_TO_PASS": [],
            "image_name": image,
            "test_cmd": "true",
            "hint": {"path": "pkg/calc.py", "line": 2, "name": "add"},
        }
    )


def pull(tmp_path, rows, *options):
    path = rows if isinstance(rows, Path) else tmp_path / "tasks.json"
    if path is not rows:
        write_json(path, rows)
    return run_python(
        *(
            "-m",
            "scripts.pull_images",
            "--tasks",
            path,
            "--store",
            os.path.relpath(tmp_path / "images", ROOT),
        ),
        *("--progress", tmp_path / "progress.jsonl", "--output", tmp_path / "images/s.json", *options),
    )


def test_a_row_with_an_image_is_pulled_looked_through_and_rolled_out(smith, tmp_path, registry):
    image, _ = smith
    done = pull(tmp_path, [row(image)])
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "images/s.json").read_text())
    assert record["counts"] == {"kept": 0, "leaking": 0, "named": 1, "pulled": 1}
    assert record["images"][image]["checked"] == 1 and record["images"][image]["leaks"] == []
    found = load_images(tmp_path / "images/s.json")[image]
    assert found.folder.is_dir() and found.digest == record["images"][image]["digest"]
    again = pull(tmp_path, [row(image)])
    assert json.loads((tmp_path / "images/s.json").read_text())["counts"]["kept"] == 1, again.stderr
    record = attempt(tmp_path, row(image))
    assert record["outcome"] == "submitted"
    assert record["model_patch"].startswith("diff --git a/notes.txt b/notes.txt\nnew file")
    assert "calc.py" not in record["model_patch"]
    seen = "".join(str(message["content"]) for message in record["messages"])
    assert "return a - b" in seen and "return a + b" not in seen and "1 commits" in seen


class Planned(DeterministicModel):
    timed = False

    def close(self):
        pass


def attempt(tmp_path, task):
    """A rollout of a model that looks for the clean code, writes a note and submits."""
    scaffold = loop_of(recipes.load_named(SCAFFOLD, "demo"))
    commands = (
        "cat pkg/calc.py; git log -p --all --reflog; echo $(git rev-list --all --count) commits",
        "grep -r 'a +' .; echo note > notes.txt",
        f"echo {scaffold.submit_marker}",
    )
    model = Planned(outputs=[make_output("", [{"command": command}]) for command in commands])
    images = task_images([task], tmp_path / "images/s.json")
    return rollout_stage.attempt_task(
        task, lambda task: model, None, open_backend(), scaffold, tmp_path, images
    )


def test_images_that_cannot_be_had_are_counted_and_named(smith, tmp_path, registry):
    image, _ = smith
    absent = f"{registry.host}/lab/absent"
    rows = [row(image), row(absent, "other"), row("no name!", "third")]
    done = pull(tmp_path, rows)
    assert done.returncode == 2 and not (tmp_path / "images/s.json").exists()
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith("error: 2 of 3 images could not be pulled; the first: ")
    )
    done = pull(tmp_path, rows, "--may-fail", "2")
    record = json.loads((tmp_path / "images/s.json").read_text())
    assert (
        done.returncode == 0
        and record["counts"]["failed_unknown"] == 1
        and record["counts"]["failed_failed"] == 1
    )
    assert record["failed"][absent]["reason"] == "unknown" and absent not in record["images"]
    with pytest.raises(InputError, match=r"the image of other was not pulled \(2 such tasks\)"):
        task_images(rows, tmp_path / "images/s.json")
    with pytest.raises(InputError, match="this task runs in an image"):
        task_images(rows, None)


def test_a_dozen_images_of_a_registry_that_nobody_reaches_fail_at_the_first(smith, tmp_path):
    started = time.monotonic()
    rows = [row(f"127.0.0.1:9/lab/i{number}", f"t{number}") for number in range(12)]
    done = pull(tmp_path, [row(smith[0]), *rows], "--may-fail", "12")
    assert done.returncode == 2 and not (tmp_path / "images/s.json").exists()
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r"error: image 127.0.0.1:9/lab/i\d+:latest: 127.0.0.1:9 does not answer: .*refused", last)
    assert "none of its images can be pulled" in last and last.count("lab/") == 1
    assert time.monotonic() - started < 100  # a single image was waited for, two minutes


def test_a_mirror_is_asked_and_the_row_keeps_its_name(smith, tmp_path, registry):
    _, layers = smith
    registry.image("mirror/swebench/calc", layers)
    done = pull(tmp_path, [row("swebench/calc")], "--prefix", f"{registry.host}/mirror/")
    assert done.returncode == 0, done.stderr
    assert list(load_images(tmp_path / "images/s.json")) == ["swebench/calc"]


def test_a_journal_spares_the_registry(smith, tmp_path, registry):
    image, layers = smith
    with faulty_proxy(registry.host, lambda answer: False) as proxy:
        name = image.replace(registry.host, proxy.host)
        assert pull(tmp_path, [row(name)]).returncode == 0
        count = len(proxy.requests)
        assert pull(tmp_path, [row(name)]).returncode == 0
        assert len(proxy.requests) == count > 0


@pytest.fixture
def checked(registry, backend, tmp_path, smith):
    """Returns the leaks in the smith image with more layers on top."""

    def act(*extra):
        tag = f"t{abs(hash(extra))}"
        registry.image("lab/leaky", [*smith[1], *extra], tag=tag)
        store = ImageStore(tmp_path / "images", Registry())
        name = parse_image_name(f"{registry.host}/lab/leaky:{tag}")
        record = store.pull(name, name)
        image = Image(str(name), record["digest"], store.folder / record["folder"])
        count, leaks = check_image(backend, image, [row("x"), row("x", "second")])
        assert count == 2
        return [(leak["instance_id"], leak["what"]) for leak in leaks]

    return act


def one(path, text):
    return layer((entry(path), text.encode()))


def test_copies_of_the_answer_are_found(checked):
    both = lambda what: [(NAME, what), ("second", what)]  # noqa: E731
    assert checked() == []
    assert checked(one("usr/lib/site-packages/pkg/calc.py", CLEAN)) == both(
        "/usr/lib/site-packages/pkg/calc.py holds the answer to pkg/calc.py"
    )
    assert checked(one("testbed/build/lib/pkg/calc.py", CLEAN)) == both(
        "/testbed/build/lib/pkg/calc.py holds the answer to pkg/calc.py"
    )
    assert checked(one("testbed/pkg/calc.py.orig", CLEAN)) == both(
        "/testbed/pkg/calc.py.orig holds the answer to pkg/calc.py"
    )
    assert checked(one("testbed/pkg/calc.py.rej", "@@ -1 +1 @@\n")) == both(
        "/testbed/pkg/calc.py.rej holds a rejected part of a patch"
    )
    assert checked(one("usr/lib/site-packages/pkg/calc.py", BUGGY), one("opt/other/calc.py", CLEAN)) == []


def test_an_unrelated_repository_is_no_leak(checked, tmp_path):
    other = tmp_path / "unrelated"
    other.mkdir()
    git(other, "init", "-q")
    commit(other, x="1\n")
    assert checked(folder_layer(other, "opt/unrelated")) == []


def test_a_clone_of_the_repository_elsewhere_is_found(checked, smith, tmp_path, backend, registry):
    store = ImageStore(tmp_path / "first", Registry())
    record = store.pull(parse_image_name(smith[0]), parse_image_name(smith[0]))
    tree = store.folder / record["folder"] / "testbed"
    git(tmp_path, "-c", "safe.directory=*", "clone", "-q", "--bare", str(tree), str(tmp_path / "clone"))
    assert checked(folder_layer(tmp_path / "clone", "opt/mirror.git")) == [
        ("", "/opt/mirror.git/objects is another copy of the repository's history")
    ]


def test_a_leaking_image_is_refused_in_one_line(smith, tmp_path, registry):
    registry.image("lab/leak", [*smith[1], one("usr/lib/pkg/calc.py", CLEAN)])
    image = f"{registry.host}/lab/leak"
    done = pull(tmp_path, [row(image)])
    assert done.returncode == 0
    assert json.loads((tmp_path / "images/s.json").read_text())["counts"]["leaking"] == 1
    with pytest.raises(InputError, match="1 tasks run in images that reveal answers, .*holds the answer"):
        task_images([row(image)], tmp_path / "images/s.json")
    with pytest.raises(InputError, match="reveal answers"):
        list(
            rollout_stage.roll_out(
                [row(image)],
                policy_name="scripted",
                policy=recipes.load_named(POLICY, "scripted"),
                scaffold=loop_of(recipes.load_named(SCAFFOLD, "demo")),
                subset="s",
                shard="000of001",
                repos_dir=tmp_path,
                progress=tmp_path / "p.jsonl",
                workers=1,
                images_path=tmp_path / "images/s.json",
            )
        )


def test_an_image_without_a_repository_is_a_leak_of_its_own(registry, backend, tmp_path):
    registry.image("lab/empty", [programs_layer(), one("testbed/a", "x")])
    store = ImageStore(tmp_path / "images", Registry())
    name = parse_image_name(f"{registry.host}/lab/empty")
    image = Image("e", store.pull(name, name)["digest"], store.root(store.pull(name, name)["digest"]))
    assert check_image(backend, image, [row("x")])[1] == [
        {"instance_id": "", "what": f"{NAME}: there is no git repository at /testbed"}
    ]
