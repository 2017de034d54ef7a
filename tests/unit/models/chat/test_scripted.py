"""The script on published rows, which name neither function nor test command."""

import json
import subprocess

from unidiff import PatchSet

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.files.dataset_files import read_rows
from swelab.models.chat.scripted import ScriptedModel, gold_command, read_repairs, with_repair
from swelab.records.task_records import Task
from swelab.tasks.patch_text import reversed_patch
from swelab.tasks.published_rows import read_row
from tests.at_hand import DATA, needs_rows
from tests.conftest import BUG


def test_a_published_row_is_played(task):
    row = Task.of({name: task[name] for name in task if name not in ("function", "test_cmd", "source")})
    scaffold = loop_of(recipes.load_named(SCAFFOLD, "demo"))
    model = ScriptedModel(row, recipes.load_named(POLICY, "scripted"), scaffold)
    model.gives_up = model.errs = False
    messages = [{"role": "user", "content": "    return a - b"}]
    commands = []
    for _ in range(4):
        turn = model.query(messages)
        commands.append(turn["extra"]["actions"][0]["command"])
        messages += [turn, messages[0]]
    assert commands == [
        "sed -n '1,8p' calc/core.py",
        "sed -i '2s/-/+/' calc/core.py",
        "python -m pytest -qq --tb=no -p no:cacheprovider tests/test_core.py",
        f"echo {scaffold.submit_marker}",
    ]


def edits(row, tree):
    """Returns the effect of the script's second turn on `tree`."""
    subprocess.run(["bash", "-ec", gold_command(row)], cwd=tree, check=True)


def published():
    """Returns real rows of SWE-bench and SWE-Gym, whose `patch` is the fix."""
    for name in ("swebench_dev_easy5.json", "swebench_lite5.json", "swe_gym_subset20.jsonl"):
        for row in read_rows(DATA / name, 64):
            yield read_row(row, name)


def before_and_after(patch, tree):
    """Writes the known parts of the files that a patch changes. Returns their text after the patch."""
    after = {}
    for file in PatchSet(patch):
        old, new = [], []
        for hunk in file:
            old += [""] * (hunk.source_start - 1 - len(old))
            new += [""] * (hunk.target_start - 1 - len(new))
            old += [line.value for line in hunk if not line.is_added]
            new += [line.value for line in hunk if not line.is_removed]
        path = tree / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_added_file:
            path.write_text("".join(line or "\n" for line in old))
        after[path] = "".join(line or "\n" for line in new)
    return after


@needs_rows
def test_the_gold_is_submitted_of_rows_whose_patch_is_the_fix(tmp_path):
    rows = list(published())
    assert len(rows) == 30 and not any(row.is_bug for row in rows)
    assert len({len(PatchSet(row["patch"])) for row in rows}) > 1, "rows that change several files too"
    for row in rows:
        tree = tmp_path / row["instance_id"]
        after = before_and_after(row["patch"], tree)
        edits(row, tree)
        assert {path: path.read_text() for path in after} == after, row["instance_id"]


def test_the_gold_is_submitted_of_rows_whose_patch_is_the_bug(task, tmp_path):
    two = BUG + BUG.replace("core.py", "more.py")
    for patch in (BUG, two):
        row = Task.of({"instance_id": "x", "patch": patch})
        tree = tmp_path / f"t{len(patch)}"
        after = before_and_after(patch, tree)
        clean = {path: path.read_text() for path in after}
        for path, text in after.items():
            path.write_text(text)
        edits(row, tree)
        assert row.is_bug and {path: path.read_text() for path in clean} == clean


def test_repairs_of_rows_without_one(task, tmp_path):
    """The policy's recipe names a file of predictions. A task that is not in it is given up."""
    path = tmp_path / "repairs.jsonl"
    line = {"instance_id": task["instance_id"], "model_name_or_path": "x", "model_patch": reversed_patch(BUG)}
    path.write_text(json.dumps(line) + "\n")
    policy = recipes.load_named(POLICY, "scripted").model_copy(update={"repairs": str(path)})
    bare = Task.of({**task, "patch": "", "answers": "none"})
    repairs = read_repairs(policy)
    known = with_repair(bare, repairs)
    assert not known.is_bug and gold_command(known) == "sed -i '2s/-/+/' calc/core.py"
    assert with_repair(task, repairs) == task and with_repair(bare, {}) == bare
    scaffold = loop_of(recipes.load_named(SCAFFOLD, "demo"))
    turn = ScriptedModel(bare, policy, scaffold).query([{"role": "user", "content": ""}])
    assert turn["extra"]["actions"][0]["command"] == f"echo {scaffold.submit_marker}"
