"""The files of an exported task folder, tasks that have none, and the parsers that are included."""

import json
import re
import runpy
import shutil

import pytest

from swelab.grading.harness import logs
from swelab.grading.harness.logs import PARSER_REGISTRY
from swelab.grading.harness.spec import COMMANDS, read_spec
from swelab.records import InputError
from swelab.records.image_records import Images
from swelab.records.task_records import Task
from swelab.sharing import harbor_judge
from swelab.sharing.harbor_export import Export, parser_text, write_folders
from swelab.tasks.harbor.harbor_archives import write_archives
from swelab.tasks.harbor.harbor_source import import_folders
from tests.conftest import make_repos
from tests.unit.tasks.harbor.test_harbor_source import ROW

DIGEST = "sha256:" + "a" * 64
TESTS = {name: json.loads(ROW[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
PUBLISHED = Task.of({**ROW, **TESTS, "image_name": "swebench/own:1", "source": "dataset"})
LOGS = {
    "pytest": "PASSED t.py::test_a\nFAILED t.py::test_b - assert 1\nERROR t.py\nSKIPPED [1] t.py:3: no\n",
    "options": "PASSED t.py::test_a[/x/y/z]\nPASSED t.py::test_a[a b]\nXFAIL t.py::test_c\n",
    "django": "test_a (t.T) ... ok\ntest_b (t.T) ... FAIL\ntest_c (t) ... skipped 'x'\nERROR: test_d (t.T)\n",
    "sympy": "____ sympy/core/t.py:test_x ____\ntest_y ok\ntest_z F\ntest_e E\n",
    "colours": "\x1b[32mPASSED\x1b[0m t.py::\x1b[1mtest_a\x1b[0m\n",
    "verbose": "t.py::test_a PASSED\nt.py::test_b FAILED\n",
}


def one(tmp_path, task, **options):
    """Returns the folder of a task."""
    write_folders([task], tmp_path / "out", Export(tmp_path, **options))
    return tmp_path / "out" / task.instance_id


def test_a_published_task_starts_from_its_image_without_later_history(tmp_path):
    pulled = {
        "image_name": None,
        "digest": DIGEST,
        "bytes": 1,
        "folder": "",
        "workdir": "/testbed",
        "pulled": "",
    }
    images = Images.of({"images": {"swebench/own:1": {**pulled, "checked": 1, "leaks": []}}, "failed": {}})
    folder = one(tmp_path, PUBLISHED, images=images)
    lines = (folder / "environment/Dockerfile").read_text().splitlines()
    assert lines[0] == f"FROM docker.io/swebench/own:1@{DIGEST}"
    assert lines[-1] == f"RUN bash /swelab-start/scrub.sh fix '{ROW['base_commit']}' /swelab-start"
    assert not (folder / "environment/start/patch").read_bytes()
    assert "requests/api.py" in (folder / "solution/gold.patch").read_text()
    script = (folder / "tests/eval.sh").read_text()
    assert "tests/test_api.py" in script and script.count("git apply") == 1
    told = json.loads((folder / "tests/judge.json").read_text())
    assert told["FAIL_TO_PASS"] == TESTS["FAIL_TO_PASS"] and told["parser"] == "parse_log_pytest_options"
    found = import_folders(tmp_path / "out", tmp_path / "repos", read_spec)
    assert found.rows == [PUBLISHED] and not (tmp_path / "repos").exists()


def test_install_steps_are_done_when_the_image_is_built(tmp_path):
    script = "#!/bin/bash\nset -e\ncd /testbed\npip install numpy==1.0\npytest -rA tests/test_api.py\n"
    folder = one(tmp_path, PUBLISHED | {"eval_script": script, "log_parser": "parse_log_pytest"})
    assert "RUN bash /swelab-start/prepare.sh" in (folder / "environment/Dockerfile").read_text()
    assert "pip install numpy==1.0" in (folder / "environment/start/prepare.sh").read_text()
    assert "pip install" not in (folder / "tests/eval.sh").read_text()
    assert len(import_folders(tmp_path / "out", tmp_path / "repos", read_spec).rows) == 1


UNFIT = {
    "private answers": ({"answers": "private", "patch": "", "FAIL_TO_PASS": []}, "private"),
    "a script of its own": (
        {"answers": "script", "patch": "", "FAIL_TO_PASS": [], "verifier_tar": "x"},
        "its own script judges it",
    ),
    "SWE-smith's": ({"test_patch": "", "version": None}, "history of its image"),
    "a base commit that is none": ({"base_commit": "$(reboot)"}, "not a commit"),
    "a log of failures": (
        {"eval_script": "set -e\npytest -rA t.py\n", "eval_type": "fail_only"},
        "names failures only",
    ),
    "an eval script that cannot fail": (
        {"eval_script": "pytest t.py || true; pytest u.py; true"},
        "never fails",
    ),
    "a parser of ours": (
        {"eval_script": "set -e\ngo test -v ./...\n", "log_parser": "parse_log_go_verbose"},
        "cannot be sent along",
    ),
}


@pytest.mark.parametrize("case", list(UNFIT))
def test_a_task_that_a_folder_cannot_carry_is_left_out_by_name(tmp_path, capsys, case):
    changes, why = UNFIT[case]
    bad = PUBLISHED | {"instance_id": "bad", **changes}
    found = write_folders([PUBLISHED, bad], tmp_path / "out", Export(tmp_path))
    assert found["written"] == [PUBLISHED.instance_id] and why in found["left_out"]["bad"]
    assert "left out: bad: " in capsys.readouterr().err and not (tmp_path / "out/bad").exists()
    with pytest.raises(InputError, match="no task can be written"):
        write_folders([bad], tmp_path / "other", Export(tmp_path))


def test_folders_of_different_archives_with_one_name_stop_no_evaluation(tmp_path, task, capsys):
    make_repos(tmp_path)
    write_folders([task], tmp_path / "out", Export(tmp_path / "repos"))
    assert write_archives(tmp_path / "out", tmp_path / "made") == 1
    assert [path.name for path in (tmp_path / "made").iterdir()] == [f"{task.repo_recipe}.tar"]
    shutil.copytree(tmp_path / "out" / task.instance_id, tmp_path / "out/other")
    toml = tmp_path / "out/other/task.toml"
    toml.write_text(re.sub('(?<=sha256 = ")....', "0000", toml.read_text()))
    assert write_archives(tmp_path / "out", tmp_path / "made") == 1
    assert "are of different archives" in capsys.readouterr().err and not list((tmp_path / "made").iterdir())


def test_a_folder_that_holds_something_and_a_missing_archive_end_it(tmp_path, task):
    with pytest.raises(InputError, match="no such repository archive"):
        write_folders([PUBLISHED, task], tmp_path / "out", Export(tmp_path))
    assert not list((tmp_path / "out").iterdir()), "the same command with the archive is not refused"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/kept").touch()
    with pytest.raises(InputError, match="is there already"):
        write_folders([PUBLISHED], tmp_path / "full", Export(tmp_path))


@pytest.mark.parametrize("parser", sorted({parser for _, parser in COMMANDS.values()}))
def test_a_parser_that_goes_along_reads_as_the_harness_does(tmp_path, parser):
    name, text = parser_text(parser)
    (tmp_path / "parser.py").write_text(text)
    assert "MIT License" in text
    sent = runpy.run_path(str(tmp_path / "parser.py"))[name]
    for log in LOGS.values():
        assert sent(log, None) == PARSER_REGISTRY[parser](log, None)


def test_the_judge_of_a_folder_reads_colours_and_ids_with_spaces_as_the_harness_does():
    test = "t.py::test_a[one red apple]"
    for log in (f"PASSED {test}\n", f"\x1b[32mPASSED\x1b[0m t.py::\x1b[1m{test[6:]}\x1b[0m\n"):
        found = harbor_judge.statuses(log, "")
        assert found == logs.statuses(log)
        for listed in (test, test.partition(" ")[0]):
            assert harbor_judge.of(listed, found) == logs.Results(found).of(listed) == {"PASSED"}
