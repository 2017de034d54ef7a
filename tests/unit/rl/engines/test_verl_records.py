"""The record of a verl training, made from its journals and verl's metrics."""

import json
from dataclasses import replace

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.records.task_records import Task
from swelab.rl.engines.verl_order import Order, read_order, rows, validation_rows, write_order
from swelab.rl.engines.verl_run import RunRecords
from swelab.rl.rollout_inputs import Reads
from swelab.rl.rollouts import RolledOut, RolloutRequest, StepJournal
from swelab.sandbox import Image

SETTINGS = {
    "start": "model:toy",
    "subset": "some",
    "scaffold": "demo",
    "engine": "verl",
    "rollouts": {"prompts": 2, "samples": 2, "at_once": 5, "shuffled": False, "ahead": 0},
    "train": {"steps": 3, "batch_tokens": 32768},
    "validation": {"subset": "held", "every": 2, "limit": 1},
    "verl": {"gpus": 1},
}


@pytest.fixture
def order(tmp_path):
    recipe = recipes.complete(RL, SETTINGS, "test")
    tasks = [Task.of({"instance_id": name}) for name in "abc"]
    images = {"a": Image("i", "sha256:0", tmp_path / "root", "/w"), "b": Image("j", "sha256:1")}
    held_out = [Task.of({"instance_id": name}) for name in "xy"]
    reads = Reads(tasks, tmp_path / "repos", held_out, images, [tmp_path / "w.json"])
    scaffold = recipes.load_named(SCAFFOLD, "demo").model_dump(exclude_none=True)
    return Order(recipe, scaffold, tmp_path / "start", reads, tmp_path / "run", 2)


def put(path, asked, resolved, turns=2):
    made = [
        TokenTurn((1,) * (n + 1), (2, 3), (-0.1, -0.1), "stop", ((0, str(asked.prompt // 2)),))
        for n in range(turns)
    ]
    grade = {"status": "resolved" if resolved else "unresolved", "resolved": resolved}
    trajectory = {"outcome": "submitted", "messages": [], "model_patch": ""}
    with Journal(path) as journal:
        kept = StepJournal(journal)
        kept.add_turn(asked, 0, made[0])
        if turns:
            kept.add_result(RolledOut(asked, trajectory, grade, tuple(made), {"run": 1.0, "grade": 0.5}))


def step_two(order, records):
    for prompt in (2, 3):
        for sample in (0, 1):
            request = RolloutRequest(prompt, sample, order.prompts.task(prompt))
            put(order.journal(request), request, resolved=prompt == 2 and sample == 0)
    return records.step(
        2,
        {
            "actor/entropy": 0.5,
            "actor/lr": None,
            "timing_s/adv": 1.0,
            "timing_s/update_actor": 2.0,
            "x": "no",
        },
    )


def test_an_order_is_read_as_it_was_written(order, tmp_path):
    write_order(tmp_path / "order.json", order)
    found = read_order(tmp_path / "order.json")
    assert found == replace(order, recipe=found.recipe) and found.recipe.plain() == order.recipe.plain()
    assert order.at_once == 2 and found.loop.step_limit == 8


def test_rows_are_the_prompts_in_our_order(order):
    made = list(rows(order, 5))
    assert [row["prompt"][0]["content"] for row in made] == ["a", "b", "c", "a", "b"]
    assert [row["reward_model"]["ground_truth"] for row in made] == ["0", "1", "2", "3", "4"]
    assert [row["extra_info"]["held_out"] for row in made] == [False] * 5
    assert [row["prompt"][0]["content"] for row in validation_rows(order)] == ["x"]


def test_a_step_is_measured_as_by_the_embedded_engine(order, tmp_path):
    records = RunRecords(order, tmp_path / "verl")
    line = step_two(order, records)
    assert (line["step"], line["rollouts"], line["groups"], line["groups_trained"]) == (2, 4, 2, 1)
    assert line["groups_dropped/constant"] == 1 and line["rate/resolved"] == 0.25
    assert line["train/tokens"] == 8.0, "the tokens of the group that is trained alone"
    assert line["staleness"] == 0.0 and line["train/entropy"] == 0.5 and line["time/train"] == 3.0
    assert line["verl/actor/entropy"] == 0.5 and "verl/x" not in line
    assert "train/lr" not in line, "verl writes what is no number as null"


def test_the_prompts_of_a_step_are_those_that_verl_trained_on(order, tmp_path):
    records = RunRecords(order, tmp_path / "verl")
    assert records.prompts(2) == [2, 3]
    dump = tmp_path / "verl/trained/2.jsonl"
    dump.parent.mkdir(parents=True)
    lines = [{"gts": "5", "uid": "u_0_0"}, {"gts": "2", "uid": "v_1_0"}, {"gts": "2", "uid": "pad0_0_0"}]
    dump.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"gts": "9", "ui')
    assert records.prompts(2) == [2, 5]


def test_figures_of_a_step_that_was_made_again_are_the_newest(order, tmp_path):
    folder = tmp_path / "verl/figures"
    folder.mkdir(parents=True)
    (folder / "00000.jsonl").write_text('{"step": 1, "data": {"a": 1}}\n{"step": 2, "data": {"a": 2}}\n')
    (folder / "00001.jsonl").write_text('{"step": 2, "data": {"a": 3}}\n{"step": 3, "da')
    assert RunRecords(order, tmp_path / "verl").figures() == {1: {"a": 1}, 2: {"a": 3}}


def test_a_validation_counts_when_it_is_over(order, tmp_path):
    records = RunRecords(order, tmp_path / "verl")
    request = RolloutRequest(0, 0, order.held_out[0])
    assert records.validated_steps() == []
    put(order.validation_journal(request, 2), request, True, turns=1)
    put(order.validation_journal(request, 0), request, False)
    assert records.validated_steps() == [0, 2]
    assert records.validation(2) == {
        "validation/tasks": 1, "validation/resolved": 1, "validation/lost": 0, "validation/resolve_rate": 1.0
    }  # fmt: skip
    lines = list(records.validation_lines())
    assert [(line["step"], line["resolved"], "messages" in line) for line in lines] == [
        (0, False, True),
        (2, True, True),
    ]


def test_what_verl_s_processes_hold_is_read(order, tmp_path):
    request = RolloutRequest(0, 0, order.prompts.task(0))
    path = order.journal(request)
    put(path, request, True)
    with Journal(path):
        assert [group.rollouts for group in RunRecords(order, tmp_path).groups(1)][0][0].grade["resolved"]
