"""Rows without repairs from the published shape to the page: import, lock, rollouts, grades, scores.

With 100 rows, by hand: `SWELAB_KODCODE_ROWS=100 python -m pytest -s tests/contract/test_kodcode.py`.
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.configs.kinds.kodcode_subset import KodcodeSubset
from swelab.records import read_json, read_jsonl
from swelab.tasks.kodcode import make_tasks
from swelab.tasks.task_rows import read_tasks
from swelab.tasks.validation_lock import read_lock
from tests.contract.small_run import (
    DISJOINT,
    REPORT,
    Step,
    run_all,
    run_steps,
    score_step,
    task_steps,
    write_recipes,
)
from tests.small_tasks import code_of, made, write_repairs, write_rows

pytestmark = pytest.mark.real
COUNT = int(os.environ.get("SWELAB_KODCODE_ROWS", 4))
TRAIN = 2
SUBSET = "{{source: kodcode, validate: {{null_runs: 1}}, path: {}.parquet{}}}\n"
SCORE = Step(
    "score_experiment",
    "--experiment small --compare weak expert --benchmark heldout --scores results/scores/weak/heldout.json"
    " results/scores/expert/heldout.json --also results/disjoint/small.json"
    " results/grades/expert/train/report.json --output results/verified_score.json",
    ("results/verified_score.json",),
)
TASKS = [task_steps("heldout"), task_steps("train")]
RUNS = [run_steps("weak", "heldout"), [*run_steps("expert", "train"), *run_steps("expert", "heldout")]]
REST = [DISJOINT, score_step("weak"), score_step("expert"), SCORE, REPORT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kodcode")
    write_recipes(folder)
    pairs = [made(number) for number in range(COUNT + TRAIN)]
    write_repairs(pairs, folder / "repairs.jsonl")
    for name, part in (("train", pairs[:TRAIN]), ("heldout", pairs[TRAIN:])):
        write_rows([row for row, _ in part], folder / f"{name}.parquet")
        (folder / f"configs/subsets/{name}.yaml").write_text(SUBSET.format(name, ""))
    for name, more in (("expert", ""), ("weak", "give_up: 0.5, ")):
        policy = f"{{kind: scripted, scaffold: demo, seed: 1, shards: 1, {more}repairs: repairs.jsonl}}\n"
        (folder / f"configs/policies/{name}.yaml").write_text(policy)
    with ThreadPoolExecutor(2) as pool:
        for pair in (TASKS, RUNS):
            list(pool.map(lambda steps: run_all(folder, steps), pair))
    run_all(folder, REST)
    return folder


@pytest.mark.full
def test_from_rows_to_the_page(folder, capsys):
    lock = read_lock(folder / "results/tasks/heldout.lock.json")
    tasks = {task.instance_id: task for task in read_tasks(folder / "results/tasks/heldout.kept.json")}
    assert lock.total == len(lock.kept) == lock.null_tasks == COUNT and lock.settings.gold_runs == 0
    for row in lock.kept:
        assert row.validated == "null only" and row.imports and row.collected == 24
        assert row.fails == tasks[row.instance_id].FAIL_TO_PASS != []
        assert len(row.fails) + len(tasks[row.instance_id].PASS_TO_PASS) == 24
    resolved = {}
    for policy in ("weak", "expert"):
        grades = list(read_jsonl(folder / f"results/grades/{policy}/heldout/000of001.jsonl"))
        resolved[policy] = Counter(grade["status"] for grade in grades)
        told = read_json(folder / f"results/scores/{policy}/heldout.json")["validation"]
        assert told["null_kept"] == told["null_tasks"] == COUNT and told["gold_tasks"] == 0
    assert resolved["expert"] == {"resolved": COUNT}
    assert resolved["weak"]["resolved"] + resolved["weak"]["empty_patch"] == COUNT
    page = (folder / "results/report.html").read_text()
    assert f"No repair is known of {COUNT:,} tasks." in page
    with capsys.disabled():
        print(f"\n{COUNT} rows without repairs: {len(lock.kept)} kept by null runs only; {dict(resolved)}")


def changed(number, code=None, tests=None):
    """Returns a row that we made, with other text in its files."""
    row, _ = made(number)
    path, _ = code_of(row)
    for file in row["extra_info"]["files"]:
        text = tests if file["path"] == "test.py" else code
        if text is not None:
            file["content"] = text.format(module=path.removesuffix(".py"))
    return row


TESTS = "import {module} as m\n\n\ndef test_a():\n    assert m.one() == 1\n\n\ndef test_b():\n    m.two()\n"


@pytest.mark.full
def test_a_null_run_that_hangs_ends_when_its_time_is_over(tmp_path, backend):
    row = changed(4, "def one():\n    while True: pass\ndef two(): pass\n", TESTS)
    write_rows([row], tmp_path / "rows.parquet")
    recipe = KodcodeSubset(source="kodcode", path=str(tmp_path / "rows.parquet"), test_timeout=3)
    (task,), drops = make_tasks(recipe, lambda: backend, tmp_path / "journal.jsonl", 1)
    run = task.null_run
    assert (run.imports, run.collected, run.ended, drops) == (True, 2, "too long", {})
    assert (task.FAIL_TO_PASS, task.PASS_TO_PASS) == (["test.py::test_a", "test.py::test_b"], [])


def test_null_runs_of_odd_code(tmp_path, backend):
    """A stand-in counts the tests of a tree that cannot be imported. Other failures get their own reasons."""
    given = {
        "unparsed": changed(1, "def one(:\n", TESTS),
        "ends": changed(2, "import sys\nsys.exit(0)\n", TESTS),
        "no name": changed(3, "one = 1\n", "from {module} import two\n\n\ndef test_a():\n    two()\n"),
        "breaks off": changed(5, "import os\ndef one(): os._exit(0)\ndef two(): pass\n", TESTS),
        "sound": changed(6, "def one(): return 1\ndef two(): pass\n", TESTS),
        "skips": changed(7, "import pytest\ndef one(): return 2\ndef two(): pytest.skip('no')\n", TESTS),
        "none": changed(8, None, "x = 1\n"),
        "all skip": changed(9, None, "import pytest\npytestmark = pytest.mark.skip\ndef test_a(): pass\n"),
    }
    write_rows(given.values(), tmp_path / "rows.parquet")
    recipe = KodcodeSubset(source="kodcode", path=str(tmp_path / "rows.parquet"))
    rows, drops = make_tasks(recipe, lambda: backend, tmp_path / "journal.jsonl", 2)
    assert drops == {"all_skipped": 1, "no_tests": 1, "nothing_fails": 1}
    names = {row["task_id"]: name for name, row in given.items()}
    told = {names[task.instance_id]: task for task in rows}
    for name, imports, collected, ended, failing, passing in (
        ("unparsed", False, 2, "broken off", ["a", "b"], []),
        ("ends", False, 2, "broken off", ["a", "b"], []),
        ("no name", False, 1, "broken off", ["a"], []),
        ("breaks off", True, 2, "broken off", ["a", "b"], []),
        ("skips", True, 2, "ran", ["a"], []),
    ):
        run = told[name].null_run
        assert (run.imports, run.collected, run.ended) == (imports, collected, ended), name
        assert [f"test.py::test_{each}" for each in failing] == told[name].FAIL_TO_PASS, name
        assert [f"test.py::test_{each}" for each in passing] == told[name].PASS_TO_PASS, name
    assert told["skips"].null_run.skipped == ["test.py::test_b"]
