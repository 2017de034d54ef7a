"""Recorded trajectories, graded by the real grader and turned into training rows."""

import tempfile

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.grading.grading_stage import grade_shard
from swelab.records import check, write_jsonl
from swelab.records.attempt_records import Prediction
from swelab.records.training_records import SftRow
from swelab.rollouts.rollout_stage import recorded_trajectories
from swelab.sft.rows.dataset import build_dataset, load_verdicts
from swelab.sft.rows.lengths import ChatTokenizer
from swelab.sft.rows.styles import Style
from swelab.tasks.checkout import RepoStore, gold_patch
from tests.toy_checkpoint import make_checkpoint
from tests.unit.recorded_runs import mini, trajectory, write_mini, write_run

pytestmark = pytest.mark.real


def test_recordings_are_graded_anew_and_become_rows(task, repos_dir, tmp_path):
    gold, runs = gold_patch(RepoStore(repos_dir, tmp_path / "trees"), task), tmp_path / "runs"
    tasks = [task | {"instance_id": name} for name in ("solved", "mixed", "idle", "by_mini", "unrecorded")]
    write_run(runs, "solved", trajectory(patch=gold), patch=gold)
    write_run(
        runs, "mixed", trajectory(patch=gold), gold, {"instance_id": "mixed", "model_patch": "no patch"}
    )
    write_run(runs, "idle", trajectory(patch=None), patch=None)
    write_mini(runs, "by_mini", mini() | {"info": mini()["info"] | {"submission": gold}})
    names = [each["instance_id"] for each in tasks]
    settings = {"subset": "s", "shard": "000of001"}
    rows = list(recorded_trajectories(names, policy_name="bought", folder=str(runs), **settings))
    predictions = {row["instance_id"]: Prediction.of(row | {"model_name_or_path": "bought"}) for row in rows}
    grades = list(
        grade_shard(
            tasks,
            predictions,
            policy="bought",
            repos_dir=repos_dir,
            progress=tmp_path / "progress.jsonl",
            workers=2,
            **settings,
        )
    )
    assert {grade["instance_id"]: grade["status"] for grade in grades} == {
        "solved": "resolved",
        "mixed": "apply_failed",
        "idle": "empty_patch",
        "by_mini": "resolved",
        "unrecorded": "infra_error",
    }
    write_jsonl(tmp_path / "grades.jsonl", grades)
    selection = recipes.complete(SFT, {"base": "x"}, "r").selection
    tokenizer = ChatTokenizer(make_checkpoint(tmp_path / "toy"))
    with tempfile.TemporaryFile() as spool:
        verdicts = load_verdicts([tmp_path / "grades.jsonl"])
        built = build_dataset(rows, verdicts, selection, tokenizer, spool, Style("xml"))
        found = list(built.rows())
    assert [row["instance_id"] for row in found] == ["by_mini", "solved"]
    for row in found:
        check(row, SftRow, "row")
    gates = {gate["gate"]: gate["dropped"] for gate in built.facts(1)["gates"]}
    assert gates["rollout"] == {"not_recorded": 1} and gates["grade"] == {"apply_failed": 1, "empty_patch": 1}
