"""The repository that tests see, made with real git."""

import subprocess

import pytest

from swelab.grading.harness.empty_history import history_files, history_line
from tests.at_hand import DATA, needs_rows
from tests.conftest import run_program
from tests.unit.grading.harness.test_spec import rows


def run(tree, *words):
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")
    return run_program([*git, *words], cwd=tree, check=True).stdout


@pytest.fixture
def place(tmp_path):
    """A folder for the files, and a repository with a tag two commits ago."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_x.py").write_text("the tests\n")
    run(tree, "init", "-q")
    for tag in ("v0.1", "release/v1.2", ""):
        run(tree, "add", "-A")
        run(tree, "commit", "-q", "--allow-empty", "-m", "x")
        if tag:
            run(tree, "tag", tag)
    return tmp_path / "scripts", tree


def swap(scripts, tree):
    for name, data in history_files(str(tree), str(scripts)).items():
        (scripts / name).parent.mkdir(parents=True, exist_ok=True)
        (scripts / name).write_bytes(data)
    command = f"set -euo pipefail\n{history_line(str(scripts))}\necho done"
    done = run_program(["bash", "-c", command], cwd=tree)
    assert (done.stdout, done.stderr, [*scripts.iterdir()]) == ("done\n", "", [])


def test_tests_see_the_last_tag_and_no_file(place):
    scripts, tree = place
    swap(scripts, tree)
    objects = run(tree, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectsize)")
    assert sorted(line.split()[0] for line in objects.splitlines()) == ["commit", "tree"]
    assert "tree 0" in objects
    assert run(tree, "ls-tree", "HEAD") == "" and run(tree, "fsck", "--strict") == ""
    assert run(tree, "describe", "--tags", "--dirty").strip() == "release/v1.2"
    assert run(tree, "rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    assert run(tree, "log", "-1", "--format=%cI").strip().startswith("2000-01-01")
    assert run(tree, "status", "--porcelain") == "?? test_x.py\n"


def test_a_history_without_a_tag_and_a_folder_without_a_history(place):
    scripts, tree = place
    for tag in ("v0.1", "release/v1.2"):
        run(tree, "tag", "-d", tag)
    swap(scripts, tree)
    assert run(tree, "tag") == "" and run(tree, "rev-list", "--count", "HEAD") == "1\n"
    subprocess.run(["rm", "-rf", tree / ".git"], check=True)
    swap(scripts, tree)
    assert not (tree / ".git").exists()


@needs_rows
def test_published_scripts_get_it_before_their_tests():
    """The line stands after all that a script does with git before its tests."""
    from swelab.grading.harness.script import runs_of_pytest, with_line_before_tests
    from swelab.grading.harness.spec import read_spec

    assert DATA.is_dir()
    for row in rows("swe_gym_subset20.jsonl"):
        before, line, after = with_line_before_tests(read_spec(row).eval_script, "HERE").partition("HERE\n")
        assert line and "git apply" in before and "git apply" not in after
        assert not runs_of_pytest(before) and runs_of_pytest(after)
