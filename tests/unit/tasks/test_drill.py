"""The drill source: the package, its bugs, and the rows that real test runs make of them."""

import io
import random
import subprocess
import tarfile
from collections import Counter

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import REPO, SUBSET
from swelab.configs.kinds.repo import DrillRepo
from swelab.configs.kinds.subset import DrillSubset
from swelab.models.chat.sed_edit import substitution
from swelab.records import InputError, check
from swelab.records.task_records import Task
from swelab.tasks import drill
from swelab.tasks.checkout import RepoStore, gold_patch, unpack
from swelab.tasks.drill_text import NOUNS, SHAPES, VERBS, issue, make_function
from swelab.tasks.split import side_of

SMALL = DrillRepo(source="drill", seed=3, modules=6, functions_per_module=4)
RECIPE = DrillSubset(source="drill", repos=["small"], side="train", heldout_share=0.3, limit=9)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small drill repository: (configs folder, archives by name)."""
    return written(tmp_path_factory.mktemp("drill"), SMALL)


def written(root, settings):
    (root / "repos").mkdir()
    text = "\n".join(f"{key}: {value}" for key, value in settings.plain().items())
    (root / "repos" / "small.yaml").write_text(text + "\n")
    (root / "small.tar").write_bytes(drill.build_repo(settings))
    return root, {"small": root / "small.tar"}


def make(small, backend, journal, **changes):
    root, tars = small
    return drill.make_tasks(
        RECIPE.model_copy(update=changes), tars, backend, journal, workers=2, configs=root
    )


def test_archive_depends_on_the_recipe_alone():
    assert drill.build_repo(SMALL) == drill.build_repo(SMALL.model_copy())
    assert drill.build_repo(SMALL) != drill.build_repo(SMALL.model_copy(update={"seed": 4}))
    with tarfile.open(fileobj=io.BytesIO(drill.build_repo(SMALL))) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "")}


def test_shipped_package_has_every_name_once():
    modules = drill.catalogue(recipes.load_named(REPO, "drill"))
    names = [f.name for functions in modules.values() for f in functions]
    assert len(names) == len(set(names)) == len(VERBS) * len(NOUNS)


def test_shipped_subsets_split_alike_and_share_no_name():
    names = {}
    for side in ("train", "heldout"):
        recipe = recipes.load_named(SUBSET, f"drill-{side}")
        queue = drill._queue(recipe, "drill", drill.catalogue(recipes.load_named(REPO, "drill")))
        assert len(queue) >= recipe.limit
        taken = queue[: recipe.limit]
        assert {side_of("drill", b.function.identity, recipe.heldout_share) for b in taken} == {side}
        assert len(Counter(bug.mutation.op for bug in taken)) == 7
        names[side] = {bug.function.name for bug in taken}
    assert not names["train"] & names["heldout"]


def test_every_bug_has_a_one_line_edit_and_an_issue_without_it():
    rng = random.Random(0)
    for _ in range(300):
        function = make_function(rng, "fit_anchor", "depot/batch.py", rng.choice(SHAPES))
        for mutation in function.mutations:
            before, after = function.lines(mutation)[1 + mutation.line], function.lines()[1 + mutation.line]
            assert substitution(before, after)
            text = issue(rng, function, mutation)
            assert after.strip() not in text
            assert function.test in text


def test_rows_are_real_bugs(small, backend, tmp_path):
    rows, drops = make(small, backend, tmp_path / "journal.jsonl")
    assert len(rows) == RECIPE.limit
    assert len({row["instance_id"] for row in rows}) == len({row["function"] for row in rows}) == len(rows)
    for row in rows:
        check(row, Task, row["instance_id"])
        name = row["hint"]["name"]
        assert row["FAIL_TO_PASS"] == [f"{row['test_files'][0]}::test_{name}"]
        assert len(row["PASS_TO_PASS"]) == 4 - 1
    assert set(drops) <= {"flaky", "survived"}


def test_the_patch_makes_the_named_test_fail_and_no_other(small, backend, tmp_path):
    row = make(small, backend, tmp_path / "journal.jsonl", limit=1)[0][0]
    tree = tmp_path / "tree"
    with tarfile.open(small[1]["small"]) as tar:
        unpack(tar, tree)
    with backend.start(tree) as sandbox:
        clean = drill.STATUS.findall(sandbox.exec(row["test_cmd"], limits=drill.RUN_LIMITS).output)
    subprocess.run(["git", "apply", "-"], input=row["patch"], text=True, cwd=tree, check=True)
    with backend.start(tree) as sandbox:
        buggy = drill.STATUS.findall(sandbox.exec(row["test_cmd"], limits=drill.RUN_LIMITS).output)
    assert {status for status, _ in clean} == {b"PASSED"}
    assert [test.decode() for status, test in buggy if status == b"FAILED"] == row["FAIL_TO_PASS"]
    assert sorted(test.decode() for status, test in buggy if status == b"PASSED") == sorted(
        row["PASS_TO_PASS"]
    )


def test_a_larger_limit_keeps_the_first_rows(small, backend, tmp_path):
    few, _ = make(small, backend, tmp_path / "a.jsonl", limit=3)
    more, _ = make(small, backend, tmp_path / "b.jsonl", limit=7)
    assert more[:3] == few


def test_only_the_operators_asked_for_make_bugs(small, backend, tmp_path):
    rows, _ = make(small, backend, tmp_path / "a.jsonl", operators=["op_change", "slice_change"])
    assert {row.op for row in rows} == {"op_change", "slice_change"}
    with pytest.raises(InputError, match=r"'op_chnge' \(did you mean 'op_change'\?\)"):
        make(small, backend, tmp_path / "b.jsonl", operators=["op_chnge"])


def test_a_finished_journal_needs_no_sandbox(small, backend, tmp_path):
    journal = tmp_path / "journal.jsonl"
    first = make(small, backend, journal)
    assert make(small, None, journal) == first


def test_an_archive_of_another_recipe_is_refused(small, backend, tmp_path):
    other = tmp_path / "small.tar"
    other.write_bytes(drill.build_repo(SMALL.model_copy(update={"seed": 9})))
    with pytest.raises(InputError, match="not the archive of its recipe"):
        drill.make_tasks(RECIPE, {"small": other}, backend, tmp_path / "j", workers=1, configs=small[0])


def test_a_two_file_task_is_a_module_and_its_test_and_nothing_else(backend, tmp_path):
    repo = recipes.load_named(REPO, "drill-files").model_copy(update={"modules": 5})
    where, journal = written(tmp_path, repo), tmp_path / "journal.jsonl"
    rows, drops = make(where, backend, journal, operators=["offset_change"], limit=3)
    assert len(rows) == 3 and not drops
    store = RepoStore(where[0], tmp_path / "cache")
    for number, row in enumerate(rows):
        check(row, Task, row.instance_id)
        tree = tmp_path / f"tree{number}"
        store.checkout(row, tree)
        module = row.hint["path"]
        assert {p.name for p in tree.iterdir()} == {".git", module, f"test_{module}"}
        assert 30 <= len((tree / module).read_text().splitlines()) <= 100
        assert [f"test_{module}::test_{row.hint['name']}"] == row.FAIL_TO_PASS
        with backend.start(tree) as sandbox:
            buggy = drill.STATUS.findall(sandbox.exec(row.test_cmd).output)
            assert [t.decode() for status, t in buggy if status == b"FAILED"] == row.FAIL_TO_PASS
            sandbox.put("gold.diff", gold_patch(store, row).encode())
            fixed = drill.STATUS.findall(sandbox.exec(f"patch -p1 <gold.diff >&2; {row.test_cmd}").output)
        assert {status for status, _ in fixed} == {b"PASSED"} and len(fixed) == len(buggy) == 8
        # Tasks of other parts share neither sandboxes nor recorded runs.
        assert store.digest(row) != store.digest(row | {"part": f"{row.part}_"})
        # The right number is neither in the issue nor in the module.
        assert not any(letter.isdigit() for letter in row.problem_statement)


def test_a_part_that_the_archive_lacks_is_refused(small, tmp_path):
    store = RepoStore(small[0], tmp_path)
    for part in ("none", "..", "depot/.."):
        with pytest.raises(InputError, match="expected the part that the task names"):
            store.clean_tree(Task.of({"instance_id": "a", "repo_recipe": "small", "part": part}))
