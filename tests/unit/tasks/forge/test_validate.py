"""The forge from end to end on a small package in real sandboxes: verdicts, order, resume."""

import importlib.util
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.configs.kinds.repo import DrillRepo
from swelab.grading.harness.logs import statuses
from swelab.jobs.journal import Journal
from swelab.records import InputError, write_bytes, write_json
from swelab.sandbox import BackendMissing, SandboxLost, open_backend
from swelab.tasks.forge import rows as forge_rows
from swelab.tasks.forge.archive import write_tar
from swelab.tasks.forge.rows import make_tasks, open_repository
from swelab.tasks.forge.validate import Validator
from swelab.tasks.split import side_of
from swelab.tasks.task_rows import read_tasks
from tests.contract.attacks import PATIENCE

pytestmark = pytest.mark.real

MODULE = '''"""Small sums."""


def add(a, b):
    return a + b


def clip(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value


def unused(a):
    return a - 1


def spin(n):
    for _ in range(100):
        if n == 0:
            break
        n -= 1
    return n


BASE = add(1, 2) + 0
'''
TESTS = """import itertools
import pathlib

import pytest

from sums import BASE, add, clip, spin


@pytest.mark.parametrize("pair", [(1, 2), (3, 4)], ids=["plain", "with space"])
def test_add(pair):
    assert add(*pair) == sum(pair)


@pytest.mark.parametrize("value", range(12))
def test_add_many(value):
    assert add(value, 1) == value + 1


def test_clip():
    assert [clip(v, 0, 2) for v in (-1, 0, 1, 2, 3)] == [0, 0, 1, 2, 2]


def test_spin():
    assert spin(3) == 0


def test_always_fails():
    assert not BASE


@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
"""


ENDLESS = """from sums import f


def test_f():
    assert f(0) is None
"""


COLOURED = "[tool:pytest]\naddopts = --color=yes\n"


class Counted:
    """A backend that counts its sandboxes, and loses the first `lost` of them."""

    name = "counted"

    def __init__(self, backend, lost: int = 0):
        self.backend, self.started, self.lost = backend, 0, lost

    def start(self, tree, **limits):
        self.started += 1
        if self.started <= self.lost:
            raise SandboxLost("lost on purpose")
        return self.backend.start(tree, **limits)


@pytest.fixture(scope="module", autouse=True)
def _patient():
    """Gives runs of bugs enough time on slow machines, unless a test sets a limit."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("swelab.tasks.forge.validate.SPARE_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="module")
def real_backend():
    try:
        return open_backend()
    except BackendMissing as error:
        pytest.skip(str(error))


SETTINGS = {
    "source": "pypi",
    "package": "sums",
    "version": "1",
    "file": "sums-1.tar.gz",
    "sha256": "a" * 64,
    "owner": "someone",
    "licence": "MIT",
    "licence_file": "LICENSE",
    "targets": ["sums.py"],
    "tests": ["tests/*"],
    "test_cmd": "python -m pytest -rA --tb=no -q -p no:cacheprovider tests",
}


class Forge:
    """The small package in its own folder, and tasks made in it."""

    def __init__(self, folder: Path, backend):
        self.folder, self.real = folder, backend
        self.backend = Counted(backend)
        self.journal = folder / "journal.jsonl"
        self.settings(SETTINGS)
        self.pack({"sums.py": MODULE, "tests/test_sums.py": TESTS})

    def settings(self, content: dict) -> None:
        path = self.folder / "configs/repos/sums.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))

    def pack(self, files: dict[str, str]) -> None:
        write_bytes(self.folder / "sums.tar", write_tar({n: (t.encode(), False) for n, t in files.items()}))

    def __call__(self, limit: int, lost: int = 0, **changes):
        recipe = {"source": "forge", "repos": ["sums"], "side": "heldout", "heldout_share": 1, "limit": limit}
        path = self.folder / "subset.yaml"
        path.write_text(yaml.safe_dump(recipe | changes))
        self.backend = Counted(self.real, lost)
        tars = {"sums": self.folder / "sums.tar"}
        made = recipes.load(SUBSET, path)
        return make_tasks(made, tars, self.backend, self.journal, 2, statuses, self.folder / "configs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, real_backend):
    """All tasks of the package: (forge, tasks, drops)."""
    forge = Forge(tmp_path_factory.mktemp("whole"), real_backend)
    return forge, *forge(100)


@pytest.fixture
def forge(tmp_path, real_backend):
    return Forge(tmp_path, real_backend)


@pytest.fixture
def warm(forge, whole):
    """A forge whose journal has every verdict."""
    shutil.copy(whole[0].journal, forge.journal)
    return forge


def test_tasks_are_valid_rows_whose_bug_breaks_what_they_say(whole):
    forge, tasks, _ = whole
    write_json(forge.folder / "tasks.json", tasks)
    assert list(read_tasks(forge.folder / "tasks.json")) == tasks
    assert {task["function"] for task in tasks} == {"sums.py::clip", "sums.py::spin"}
    for task in tasks:
        assert 1 <= len(task["FAIL_TO_PASS"]) <= 10
        ids = task["FAIL_TO_PASS"] + task["PASS_TO_PASS"]
        assert len(ids) == 16 and not any("always" in test or "skip" in test for test in ids)
        assert "tests/test_sums.py::test_add[with space]" in ids
        assert task["tests_left_out"] == 1  # # one always fails
        assert task["test_files"] == ["tests/test_sums.py"]
        assert task["hint"]["name"] in task["problem_statement"]
        assert task["instance_id"].startswith(f"someone__sums.aaaaaaaa.func_pm_{task['op']}__")


def test_colours_by_the_repository_s_own_options_are_no_part_of_the_log(tmp_path, real_backend):
    forge = Forge(tmp_path, real_backend)
    forge.pack({"sums.py": MODULE, "tests/test_sums.py": TESTS, "setup.cfg": COLOURED})
    repo = open_repository("sums", tmp_path / "sums.tar", tmp_path / "trees", tmp_path / "configs")
    with Journal(forge.journal) as journal, Validator(real_backend, statuses, journal, 1) as validator:
        validator.baseline(repo)
    assert len(repo.passed) == 16 and repo.unstable == 1


def test_runs_of_bugs_take_the_test_files_as_the_clean_run_rewrote_them(forge):
    repo = open_repository(
        "sums", forge.folder / "sums.tar", forge.folder / "trees", forge.folder / "configs"
    )
    with Journal(forge.journal) as journal, Validator(forge.backend, statuses, journal, 1) as validator:
        validator.baseline(repo)
    with tarfile.open(fileobj=io.BytesIO(repo.compiled)) as tar:
        (name,) = tar.getnames()
        data = tar.extractfile(name).read()
    assert re.fullmatch(r"./tests/__pycache__/test_sums\..*-pytest-.*\.pyc", name)
    assert data[8:16] == importlib.util.source_hash(TESTS.encode()), "pytest looks for this"


def test_every_dropped_candidate_has_a_reason(whole):
    forge, tasks, drops = whole
    assert drops["survived"] > 0  # nothing calls `unused`
    assert drops["breaks_too_many"] > 0  # most tests are about `add`
    assert drops["collection_error"] > 0  # `add` is called on import
    assert drops["function_full"] > 0
    verdicts = [json.loads(line) for line in forge.journal.read_text().splitlines()]
    assert {row["reason"] for row in verdicts if "reason" in row} == {"", *drops} - {"function_full"}


def test_the_first_rows_do_not_depend_on_the_limit_or_the_journal(forge, whole):
    _, tasks, _ = whole
    assert forge(2)[0] == tasks[:2]
    assert forge(2)[0] == tasks[:2]
    assert forge.backend.started == 0


def test_a_journal_cut_by_a_kill_is_gone_on_with(warm, whole):
    _, tasks, drops = whole
    lines = warm.journal.read_bytes().splitlines(keepends=True)
    kept = next(n for n, line in enumerate(lines) if json.loads(line).get("reason") == "")
    warm.journal.write_bytes(b"".join(lines[:kept] + lines[kept + 1 :]) + lines[kept][:-9])
    assert warm(100) == (tasks, drops)
    assert 2 <= warm.backend.started <= 4


def test_long_functions_get_no_bugs(warm):
    tasks, drops = warm(100, max_function_lines=5)
    assert {task["function"] for task in tasks} == set()
    assert drops["function_too_long"] > 0
    tasks, _ = warm(100, max_function_lines=6)
    assert {task["function"] for task in tasks} == {"sums.py::clip", "sums.py::spin"}


def test_the_sides_share_no_function(warm):
    share = next(
        n / 20
        for n in range(20)
        if side_of("sums", "sums.py::clip", n / 20) != side_of("sums", "sums.py::spin", n / 20)
    )
    sides = [{t["function"] for t in warm(9, side=s, heldout_share=share)[0]} for s in ("train", "heldout")]
    assert all(sides) and not sides[0] & sides[1]


def test_lost_sandboxes_are_tried_again_and_then_told(forge):
    with pytest.raises(SandboxLost):
        forge(1, lost=50)
    assert len(forge(1, lost=2)[0]) == 1


def test_a_bug_that_never_ends_is_a_timeout(forge, monkeypatch):
    monkeypatch.setattr("swelab.tasks.forge.validate.SLOWER", 2)
    monkeypatch.setattr("swelab.tasks.forge.validate.SPARE_SECONDS", 1)
    forge.pack({"sums.py": "def f(n):\n    while n == 1:\n        pass\n", "tests/test_a.py": ENDLESS})
    assert forge(9, operators=["compare_change"]) == ([], {"timeout": 1})


def test_an_operator_that_is_not_known_is_refused(forge):
    with pytest.raises(InputError, match=r"'compare' .*compare_change"):
        forge(9, operators=["compare"])


def test_code_whose_tests_all_fail_is_refused(forge):
    forge.pack({"sums.py": "def f():\n    return 1\n", "tests/test_a.py": "import nothing\n"})
    with pytest.raises(InputError, match="no test passes on the clean code"):
        forge(1)


def test_targets_that_match_nothing_are_refused(forge):
    forge.settings(SETTINGS | {"targets": ["none.py"]})
    with pytest.raises(InputError, match="no file matches its targets"):
        forge(1)


def test_a_repository_of_another_source_is_refused(forge, monkeypatch):
    forge.settings({"source": "drill", "seed": 0})
    monkeypatch.setattr(
        recipes, "load_named", lambda *_: DrillRepo(source="drill", modules=1, functions_per_module=1)
    )
    with pytest.raises(InputError, match="its source is 'drill'"):
        forge_rows.open_repository("sums", Path("sums.tar"), Path("."), forge.folder / "configs")


def test_git_applies_the_bugs(whole):
    forge, tasks, _ = whole
    for task in tasks:
        tree = forge.folder / task["bug"]
        tree.mkdir()
        (tree / "sums.py").write_text(MODULE)
        subprocess.run(["git", "apply", "-"], input=task["patch"].encode(), cwd=tree, check=True)
        assert (tree / "sums.py").read_text() != MODULE
