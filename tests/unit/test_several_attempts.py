"""Several attempts of a policy at each task: names, seeds, files, and the effect of one more attempt."""

import hashlib
from pathlib import Path

import pytest

from swelab.configs import recipes
from swelab.configs.kinds.policy import CheckpointPolicy, ScriptedPolicy
from swelab.configs.kinds.sampling import Sampling
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.files.json_streams import Spool
from swelab.grading.grading_stage import grade_shard
from swelab.grading.swebench_report import build_report
from swelab.jobs.shards import attempt_name, parse_shard, sample_of, shard_names, with_sample
from swelab.lineage import Wildcards
from swelab.models.chat.scripted import ScriptedModel
from swelab.models.policy_models import of_sample, same_again
from swelab.records import InputError, check, write_jsonl
from swelab.records.attempt_records import Grade, Trajectory, Usage
from swelab.records.report_records import Report
from swelab.records.task_records import Task
from swelab.rollouts.predictions import collect, shard_predictions
from swelab.rollouts.rollout_stage import recorded_trajectories, rollout_key
from swelab.rollouts.token_usage import usage_of
from swelab.sft.rows.dataset import load_verdicts, why_unresolved
from tests.unit.recorded_runs import PATCH, trajectory, write_run

SCRIPTED = ScriptedPolicy(kind="scripted", scaffold="x", seed=7, wrong_edit=0.4, give_up=0.2)
SERVED = CheckpointPolicy(
    kind="checkpoint", scaffold="x", weights="w", sampling={"temperature": 0.7, "seed": 3}
)


def test_shards_of_samples_have_names_of_their_own():
    assert shard_names(2) == ["000of002", "001of002"]
    assert shard_names(2, range(2)) == ["000of002", "001of002", "000of002s1", "001of002s1"]
    assert parse_shard("001of002s12") == (1, 2, 12) and sample_of("001of002") == 0
    for name in ("000of002s0", "000of002s", "000of002s01", "s1"):
        with pytest.raises(InputError, match="is not a shard"):
            parse_shard(name)


def test_the_first_sample_is_what_a_policy_without_samples_makes():
    row = {"instance_id": "a"}
    assert list(with_sample([row], "000of001")) == [row] and attempt_name(row) == "a"
    (second,) = with_sample([row], "000of001s2")
    assert second == {"instance_id": "a", "sample": 2} and attempt_name(second) == "a#2"
    for policy in (SCRIPTED, SERVED):
        several = policy.model_copy(update={"samples": 5})
        keys = [rollout_key(row, of_sample(each, 0), {}, "w", "r") for each in (policy, several)]
        assert keys[0] == keys[1]
        assert len({rollout_key(row, of_sample(several, k), {}, "w", "r") for k in range(5)}) == 5
        later = rollout_key(row, of_sample(policy.model_copy(update={"samples": 9}), 4), {}, "w", "r")
        assert later == rollout_key(row, of_sample(several, 4), {}, "w", "r")


LOOP = MiniLoop(system_template="", instance_template="", observation_template="", action_regex="(.*)")


def test_a_sample_has_the_next_seed():
    assert of_sample(SCRIPTED, 2).seed == 9 and of_sample(SERVED, 2).sampling.seed == 5
    assert SERVED.sampling.seed == 3
    tasks = [Task.of({"instance_id": f"t{number}"}) for number in range(200)]
    draws = [[ScriptedModel(task, of_sample(SCRIPTED, k), LOOP).errs for task in tasks] for k in range(3)]
    assert all(50 < sum(drawn) < 110 for drawn in draws) and draws[0] != draws[1] != draws[2] != draws[0]


def test_samples_at_temperature_0_deserve_a_line():
    greedy, thrice = SERVED.model_copy(update={"sampling": Sampling()}), {"samples": 3}
    assert same_again(greedy.model_copy(update=thrice)).startswith("3 samples at temperature 0 differ by")
    assert same_again(greedy) == same_again(SERVED.model_copy(update=thrice)) == same_again(SCRIPTED) == ""


def test_paths_of_samples(tmp_path):
    (tmp_path / "policies").mkdir()
    recipe = tmp_path / "policies/p.yaml"
    recipe.write_text("{kind: scripted, scaffold: demo, shards: 2, samples: 2}")
    assert recipes.load_named("policy", "p", tmp_path)["samples"] == 2
    at = Wildcards({"policy": "p", "subset": "s"}, tmp_path)

    def shards(**names):
        return [Path(path).stem for path in at.shards("grades", **names)]

    assert shards() == ["000of002", "001of002", "000of002s1", "001of002s1"]
    assert shards(sample=".s1") == ["000of002s1", "001of002s1"]
    assert shards(sample="") == ["000of002", "001of002"]
    folder = "results/grades/p/s"
    assert at.samples("report") == [f"{folder}/report.json", f"{folder}/report.s1.json"]
    elsewhere = Wildcards(at.names, tmp_path, Path("/else/where"))
    assert elsewhere.samples("report")[0] == "/else/where/grades/p/s/report.json"
    recipe.write_text("{kind: scripted, scaffold: demo}")
    assert "samples" not in recipes.load_named("policy", "p", tmp_path)
    recipe.write_text("{kind: scripted, scaffold: demo, samples: 0}")
    with pytest.raises(InputError, match="samples"):
        recipes.load_named("policy", "p", tmp_path)


def rolled(name, sample=0, **changes):
    row = {
        "instance_id": name,
        "policy": "p",
        "subset": "s",
        "outcome": "submitted",
        "model_patch": f"patch {sample}",
        "messages": [],
        "info": {},
        "trajectory_format": "mini-swe-agent-1.1",
        **changes,
    }
    return Trajectory.of(row | ({"sample": sample} if sample else {}))


def graded(name, sample=0, status="resolved"):
    row = Grade.of({"instance_id": name, "policy": "p", "subset": "s", "status": status})
    row |= (
        {"resolved": status == "resolved", "sample": sample} if sample else {"resolved": status == "resolved"}
    )
    return row | {"patch_sha256": hashlib.sha256(f"patch {sample}".encode()).hexdigest()}


def test_predictions_and_reports_are_of_one_sample(tmp_path):
    rows = [("t", rolled(name, 1)) for name in "ba"]
    found = dict(collect(rows, "ab", Spool(tmp_path)))
    assert list(found) == ["a", "b"] and found["a"]["sample"] == 1
    assert "sample" not in dict(collect([("t", rolled("a"))], "a", Spool(tmp_path)))["a"]
    write_jsonl(tmp_path / "000of001s1.jsonl", [row for _, row in rows])
    assert shard_predictions(tmp_path / "000of001s1.jsonl", "ab") == found
    with pytest.raises(InputError, match=r"1 tasks without a trajectory \(c\), 1 of no task \(a\)"):
        shard_predictions(tmp_path / "000of001s1.jsonl", "bc")
    tasks = [Task.of({"instance_id": name, "image_name": "i"}) for name in "ab"]
    with pytest.raises(InputError, match="a is predicted in sample 1; expected sample 0"):
        next(grade_shard(tasks, found, policy="p", subset="s", shard="000of001", repos_dir=tmp_path,
                         progress=tmp_path / "j", workers=1))  # fmt: skip
    report = build_report(tasks, [graded(name, 1) for name in "ab"], "p", "s")
    check(report, Report, "test")
    assert report["sample"] == 1 and report["resolved_ids"] == ["a", "b"]
    assert "sample" not in build_report(tasks, [graded("a")], "p", "s")
    with pytest.raises(InputError, match=r"grades of samples \[0, 1\]"):
        build_report(tasks, [graded("a"), graded("b", 1)], "p", "s")


def test_training_rows_are_joined_to_the_grade_of_their_own_sample(tmp_path):
    rows = [graded("a", 0, "unresolved"), graded("a", 1), graded("a", 2, "timeout")]
    write_jsonl(tmp_path / "g.jsonl", rows)
    grades = load_verdicts([tmp_path / "g.jsonl"])
    assert [why_unresolved(rolled("a", k), grades) for k in range(4)] == [
        "unresolved",
        "",
        "timeout",
        "not_graded",
    ]
    assert why_unresolved(rolled("a", 1, model_patch="other"), grades) == "grade_of_another_patch"
    write_jsonl(tmp_path / "g.jsonl", [*rows, graded("a", 1)])
    with pytest.raises(InputError, match="a#1 is graded twice"):
        load_verdicts([tmp_path / "g.jsonl"])


def test_runs_in_a_folder_are_samples_of_a_recorded_policy(tmp_path):
    for run, patch in (("one", PATCH), ("two", PATCH.replace("a = 2", "a = 3"))):
        write_run(tmp_path / run, "x", trajectory(patch=patch), patch)
    write_run(tmp_path / "two", "y", trajectory())
    arguments = {"policy_name": "p", "folder": str(tmp_path), "subset": "s"}
    one = list(recorded_trajectories(["x", "y"], shard="000of001", runs=2, **arguments))
    two = list(recorded_trajectories(["x", "y"], shard="000of001s1", runs=2, **arguments))
    assert [row["outcome"] for row in (*one, *two)] == ["submitted", "not_recorded", "submitted", "submitted"]
    assert "a = 2" in one[0]["model_patch"] and "a = 3" in two[0]["model_patch"]
    with pytest.raises(InputError, match="holds 2 runs.*expected 3, as many as samples"):
        list(recorded_trajectories(["x"], shard="000of001", runs=3, **arguments))


def turn(prompt, completion, **extra):
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"role": "assistant", "content": "x", "extra": {"usage": usage, **extra}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"messages": [turn(10, 2), turn(15, 3)]}, (2, 25, 5, None)),
        ({"messages": [turn(10, 2, cost=0.5), turn(15, 3, cost=0.25)]}, (2, 25, 5, 0.75)),
        ({"messages": [turn(10, 2), turn(0, 0)]}, (2, None, None, None)),
        ({"messages": [{"role": "assistant", "content": "x"}]}, (1, None, None, None)),
        ({"info": {"model_stats": {"api_calls": 4, "tokens_sent": 90, "tokens_received": 7,
                                   "instance_cost": 0.1}}}, (4, 90, 7, 0.1)),
        ({"info": {"model_stats": {"api_calls": 4, "instance_cost": 0.0}}}, (4, None, None, None)),
        ({"messages": [{"role": "assistant", "content": "x", "extra": {"response": {"usage": {
            "prompt_tokens": 8, "completion_tokens": 1}}}}]}, (1, 8, 1, None)),
        ({"outcome": "sandbox_lost"}, (0, 0, 0, 0)),
        ({"outcome": "not_recorded"}, (0, None, None, None)),
        ({"info": {"model_stats": {"api_calls": "many", "tokens_sent": True}},
          "messages": [turn("a", None)]}, (1, None, None, None)),
    ],
)  # fmt: skip
def test_what_is_not_known_of_tokens_and_cost_is_null_and_never_0(changes, told):
    found = usage_of(rolled("a", **changes))
    check(found, Usage, "test")
    assert tuple(found.values()) == told
