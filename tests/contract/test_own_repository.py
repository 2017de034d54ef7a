"""Tasks from a user's own git repository: its files are read, installed, refused and graded."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import REPO, SUBSET
from swelab.grading.grading_stage import Bench, grade_prediction
from swelab.grading.harness.logs import statuses
from swelab.records import InputError, write_bytes
from swelab.records.attempt_records import Prediction
from swelab.sandbox import open_backend, toolbox_path
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.forge import build_repo, make_tasks
from swelab.tasks.forge.own_repository import SITE, SITE_FILE

pytestmark = pytest.mark.real
FILES = {
    "src/sums.py": "from units import ONE\n\n\ndef add(a, b):\n    return a + b * ONE\n"
    + "# long enough\n" * 8,
    "tests/test_sums.py": "from sums import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n',
}
INSTALL = f"mkdir -p {SITE} && echo 'ONE = 1' >{SITE}/units.py"


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *named, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A git repository of two commits. The second commit removes the tests."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "Meine Projekte" / "sums"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "state")
    return git(folder, "rev-parse", "HEAD")


def recipe_of(folder: Path, **settings) -> dict:
    settings = {
        "source": "git",
        "repository": str(folder),
        "commit": git(folder, "rev-parse", "HEAD"),
        "targets": ["src/*.py"],
        "install": INSTALL,
        **settings,
    }
    return recipes.complete(REPO, settings, "recipe")


def refused(tmp_path, recipe) -> str:
    with pytest.raises(InputError) as caught:
        build_repo(recipe, tmp_path / "cache")
    return str(caught.value)


@pytest.mark.parametrize("path_by", ["pyproject", "command"])
def test_tasks_are_made_and_graded(own, tmp_path, path_by):
    recipe = recipe_of(own)
    if path_by == "command":
        (own / "pyproject.toml").unlink()
        commit(own)
        recipe = recipe_of(own, test_cmd="python -m pytest -o pythonpath=src -rA --tb=no -q")
    later = own / "src" / "sums.py"
    later.write_text("raise SystemExit('a later state')\n")
    commit(own)
    backend, repos = open_backend(), tmp_path / "repos"
    write_bytes(repos / "sums.tar", build_repo(recipe, tmp_path / "cache"))
    (tmp_path / "configs" / "repos").mkdir(parents=True)
    (tmp_path / "configs" / "repos" / "sums.yaml").write_text(yaml.safe_dump(recipe.plain()))
    subset = {"source": "forge", "repos": ["sums"], "side": "heldout", "heldout_share": 1, "limit": 1}
    subset = recipes.complete(SUBSET, subset, "subset")
    tars, journal = {"sums": repos / "sums.tar"}, tmp_path / "journal.jsonl"
    (task,), _ = make_tasks(subset, tars, backend, journal, 2, statuses, tmp_path / "configs")
    assert task["FAIL_TO_PASS"] == ["tests/test_sums.py::test_add"]
    assert task["instance_id"].startswith(f"own__sums.{recipe.commit[:8]}.func_pm_")
    bench = Bench(RepoStore(repos, tmp_path / "trees"), backend)
    gold = gold_patch(bench.store, task)
    forged = f"--- a/{SITE}/units.py\n+++ b/{SITE}/units.py\n@@ -1 +1 @@\n-ONE = 1\n+ONE = 5 / 3 - 2 / 3\n"
    beside = "--- /dev/null\n+++ b/units.py\n@@ -0,0 +1 @@\n+ONE = 1\n"
    statuses_of = {}
    for name, patch in (("gold", gold), ("empty", ""), ("forged", forged), ("beside", gold + beside)):
        row = Prediction(instance_id=task["instance_id"], model_name_or_path="p", model_patch=patch)
        statuses_of[name] = grade_prediction(task, row, bench)["status"]
    assert statuses_of["gold"] == "resolved" and statuses_of["empty"] == "empty_patch"
    assert statuses_of["forged"] == "unresolved" and statuses_of["beside"] == "tampered"


def test_what_the_install_command_can_do(own, tmp_path):
    """The install command installs with pip into the checkout. It changes nothing else."""
    mark = tmp_path / "outside"
    command = f"pip --version && test $PIP_TARGET = $PWD/{SITE}; ! touch {mark} 2>/dev/null; {INSTALL}"
    assert build_repo(recipe_of(own, install=command), tmp_path / "cache")
    assert not mark.exists()
    assert list(toolbox_path().glob(f"lib/python3*/site-packages/{SITE_FILE}"))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"repository": "/nowhere/at/all"}, ["/nowhere/at/all: no such folder", "a folder or a URL"]),
        ({"repository": "file:///nowhere/at/all"}, ["git cannot fetch it", "a git repository"]),
        ({"commit": "0" * 40}, ["no commit 0000", "a full commit hash"]),
        ({"targets": ["lib/*.py"]}, ["targets: no file matches ['lib/*.py']", "such as src/sums.py"]),
        ({"tests": ["spec/*"]}, ["tests: no file matches ['spec/*']"]),
        ({"install": "echo no such package; exit 3"}, ["install: echo", "exit code 3: no such package"]),
        (
            {"install": f"mkdir -p {SITE} && cp src/sums.py {SITE}/copy.py"},
            ["a copy of src/sums.py", "an agent could read the fix"],
        ),
    ],
)
def test_what_is_refused(own, tmp_path, settings, words):
    told = refused(tmp_path, recipe_of(own, **settings))
    for word in words:
        assert word in told


def test_files_that_a_checkout_cannot_hold(own, tmp_path):
    (own / "link").symlink_to("src")
    commit(own)
    assert "1 paths are a symbolic link, such as link" in refused(tmp_path, recipe_of(own))
    assert build_repo(recipe_of(own, exclude=["link"]), tmp_path / "cache")
    (own / "link").unlink()
    (own / "model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    commit(own)
    assert "Git LFS pointer, such as model.bin" in refused(tmp_path, recipe_of(own))


def test_a_suite_that_does_not_run_says_why(own, tmp_path):
    recipe = recipe_of(own, install="")
    write_bytes(tmp_path / "sums.tar", build_repo(recipe, tmp_path / "cache"))
    (tmp_path / "configs" / "repos").mkdir(parents=True)
    (tmp_path / "configs" / "repos" / "sums.yaml").write_text(yaml.safe_dump(recipe.plain()))
    subset = {"source": "forge", "repos": ["sums"], "side": "heldout", "heldout_share": 1, "limit": 1}
    subset = recipes.complete(SUBSET, subset, "subset")
    tars = {"sums": tmp_path / "sums.tar"}
    with pytest.raises(InputError) as caught:
        make_tasks(subset, tars, open_backend(), tmp_path / "j", 2, statuses, tmp_path / "configs")
    assert "no test passes on the clean code" in str(caught.value)
    assert "No module named 'units'" in str(caught.value)
