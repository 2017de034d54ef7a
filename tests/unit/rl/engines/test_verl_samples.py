"""Rows for verl against the batch of the embedded engine: what the switches mask, and what they leave out.

verl itself is not needed: two of its classes that hold values are stood for, where it is not installed.
"""

import importlib
import itertools
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from swelab.choices import ADVANTAGES
from swelab.models.token_turn import TokenTurn
from swelab.records.task_records import Task
from swelab.rl.engines.verl_advantages import row_factors, sequence_of
from swelab.rl.loop import batch_of
from swelab.rl.method import group_of
from swelab.rl.rollouts import RolledOut, RolloutRequest
from tests.rl_recipe import rl_recipe


def recipe(judged=False, **method):
    judge = {"judge": {"policy": "rater", "coefficient": 0.5}} if judged else {}
    return rl_recipe(rollouts={"prompts": 1, "samples": 3}, method=method, **judge)


RECIPE = recipe()
TASK = Task.of({"instance_id": "x"})
LATE, LOST, EMPTY = (
    ("time_limit", "empty_patch"),
    ("sandbox_lost", "infra_error"),
    ("submitted", "empty_patch"),
)
SOLVED, FAILED, UNGRADED = (
    ("submitted", "resolved"),
    ("submitted", "unresolved"),
    ("submitted", "infra_error"),
)


class AgentLoopMetrics(BaseModel):
    """Stands for verl's."""

    generate_sequences: float = 0.0
    compute_score: float = 0.0


class AgentLoopOutput(BaseModel):
    """Stands for verl's."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    reward_score: float
    num_turns: int
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any]

    def as_dict(self):
        """Returns the values that verl puts into tensors."""
        return dict(self)


@pytest.fixture(scope="module")
def rows_of():
    """Imports `verl_samples`, with the classes above where verl is not installed."""
    names = ["verl", "verl.experimental", "verl.experimental.agent_loop"]
    names.append(f"{names[-1]}.agent_loop")
    module = "swelab.rl.engines.verl_samples"
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("verl") is None:
            for name in names:
                patch.setitem(sys.modules, name, ModuleType(name))
            found = sys.modules[names[-1]]
            found.AgentLoopMetrics, found.AgentLoopOutput = AgentLoopMetrics, AgentLoopOutput
        patch.delitem(sys.modules, module, raising=False)
        yield importlib.import_module(module).trained_rows
        sys.modules.pop(module, None)


def rollout(sample, end, turns=2):
    """Returns a rollout with this end, its own or its grade's. With three turns it has two sequences."""
    made, prompt = [], [1, 2]
    for turn in range(turns):
        prompt = [7, turn] if turn == 2 else prompt
        sampled = tuple(range(10, 11 + (turn + sample) % 3))
        logprobs = (-0.1 * (turn + 1),) * len(sampled)
        made.append(TokenTurn(tuple(prompt), sampled, logprobs, "stop", ((0, "4"),)))
        prompt = [*prompt, *sampled, 3]
    grade = {"status": end[1], "resolved": end[1] == "resolved"}
    votes = tuple((1 if (turn + sample) % 2 else -1, 1) for turn in range(turns))
    return RolledOut(
        RolloutRequest(0, sample, TASK), {"outcome": end[0], "messages": []}, grade, tuple(made),
        {"run": 1.0, "grade": 1.0}, votes,
    )  # fmt: skip


def made(rows_of, ends, **switches):
    """Returns for each rollout the advantages of its rows' trained tokens; None if there are none."""
    group = {number: rollout(number, end) for number, end in enumerate(ends)}
    rows = rows_of(group, recipe(failures=switches), 4)
    told = []
    for number in range(len(ends)):
        pairs = [pair for row in rows[number] for pair in zip(row.advantages, row.response_mask, strict=True)]
        told.append(sorted({round(value, 4) for value, trained in pairs if trained}) or None)
    return told


@pytest.mark.parametrize(
    ("ends", "switches", "advantages"),
    [
        ([SOLVED, FAILED, LATE], {}, [[0.6667], [-0.3333], [-0.3333]]),
        ([SOLVED, FAILED, LATE], {"mask": ["time_limit"]}, [[0.6667], [-0.3333], None]),
        ([SOLVED, FAILED, LATE], {"leave_baseline": ["time_limit"]}, [[0.5], [-0.5], None]),
        (
            [SOLVED, FAILED, LATE],
            {"mask": ["time_limit"], "leave_baseline": ["time_limit"]},
            [[0.5], [-0.5], None],
        ),
        ([SOLVED, FAILED, LATE], {"drop_group": ["time_limit"]}, [None, None, None]),
        # A switch may name the end of a grade. Then both the late and the empty rollout are masked.
        ([SOLVED, FAILED, EMPTY, LATE], {"mask": ["empty_patch"]}, [[0.75], [-0.25], None, None]),
        ([SOLVED, FAILED, EMPTY, LATE], {"leave_baseline": ["empty_patch"]}, [[0.5], [-0.5], None, None]),
        ([SOLVED, FAILED, EMPTY], {"drop_group": ["empty_patch"]}, [None, None, None]),
        # A rollout lost to infrastructure needs no switch: it is masked, and its group has one rollout less.
        ([SOLVED, FAILED, LOST], {}, [[0.5], [-0.5], None]),
        ([SOLVED, FAILED, UNGRADED], {}, [[0.5], [-0.5], None]),
        ([SOLVED, FAILED, LOST], {"drop_group": ["sandbox_lost"]}, [None, None, None]),
        ([SOLVED, FAILED, UNGRADED], {"drop_group": ["infra_error"]}, [None, None, None]),
        # A single remaining rollout has no baseline. verl itself would train it with its reward.
        ([SOLVED, LATE, LATE], {"leave_baseline": ["time_limit"]}, [None, None, None]),
        ([SOLVED, LOST], {}, [None, None]),
        ([LOST, LOST], {}, [None, None]),
        ([SOLVED, SOLVED, LATE], {"mask": ["time_limit"]}, [[0.3333], [0.3333], None]),
        ([SOLVED, SOLVED, LATE], {"leave_baseline": ["time_limit"]}, [None, None, None]),
    ],
)
def test_each_switch_by_hand(rows_of, ends, switches, advantages):
    assert made(rows_of, ends, **switches) == advantages


def test_a_group_that_teaches_nothing_is_one_row_of_a_token_that_is_not_trained(rows_of):
    group = {number: rollout(number, end) for number, end in enumerate([SOLVED, FAILED, LATE])}
    found = rows_of(group, recipe(failures={"drop_group": ["time_limit"]}), 4)
    ((row,), *others) = found.values()
    assert others == [[], []] and row.response_mask == [0] and row.advantages == [0.0]
    assert row.extra_fields["min_global_steps"] == row.extra_fields["max_global_steps"] == 4
    assert rows_of({}, RECIPE, 4) == {}


def test_what_sampled_nothing_has_no_row_and_stays_in_the_baseline(rows_of):
    found = rows_of({0: rollout(0, SOLVED), 1: rollout(1, FAILED, 0), 2: rollout(2, FAILED)}, RECIPE, 4)
    assert found[1] == [] and [round(max(found[0][0].advantages), 4)] == [0.6667]


def test_a_rollout_that_was_not_made_leaves_its_group(rows_of):
    """Its number is missing, because verl's coroutine was ended before the rollout was over."""
    found = rows_of({0: rollout(0, SOLVED), 2: rollout(2, FAILED)}, RECIPE, 4)
    assert sorted(found) == [0, 2] and {max(row.advantages) for row in found[0]} == {0.5}


NAMES = ("mask", "leave_baseline", "drop_group")
SETS = [{}] + [
    dict.fromkeys(names, words)
    for count in (1, 2, 3)
    for names in itertools.combinations(NAMES, count)
    for words in (["time_limit"], ["empty_patch"], ["sandbox_lost", "time_limit"])
]
GROUPS = [
    [SOLVED, FAILED, LATE, LOST, EMPTY],
    [SOLVED, FAILED, SOLVED, UNGRADED],
    [SOLVED, SOLVED],
    [LATE, FAILED],
    [SOLVED, LATE],
    [LOST, LOST],
]
METHODS = [
    {"advantage": advantage, "sequences": sequences, "keep_constant": constant}
    for advantage in ADVANTAGES
    for sequences in ("whole", "step")
    for constant in (False, True)
]


@pytest.mark.parametrize("settings", METHODS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_rows_are_the_sequences_of_the_embedded_engine_under_every_switch(rows_of, settings):
    """The same ids, log-probabilities, trained tokens and advantages, in the same order, and no others."""
    for switches, ends in itertools.product(SETS, GROUPS):
        used = recipe(settings["advantage"] == "step-wise", failures=switches, **settings)
        rollouts = [rollout(number, end, 1 + number % 4) for number, end in enumerate(ends)]
        ours = batch_of([group_of(rollouts, used)], used)
        made = rows_of(dict(enumerate(rollouts)), used, 4)
        rows = [row for found in made.values() for row in found if any(row.response_mask)]
        assert len(rows) == len(ours), (switches, ends)
        for row, trained in zip(rows, ours, strict=True):
            first = len(row.prompt_ids)
            assert row.prompt_ids + row.response_ids == trained.sample.ids
            assert row.response_mask == trained.sample.mask[first:] and not any(trained.sample.mask[:first])
            assert row.response_logprobs == trained.sample.logprobs[first:]
            assert row.advantages == trained.advantages[first:]


def divisor(mode, rows, tokens, row, horizon):
    """Returns verl's divisor for a token of a row. verl counts all rows, even those that fill the batch."""
    return {
        "token-mean": tokens,
        "seq-mean-token-sum": rows,
        "seq-mean-token-sum-norm": rows * horizon,
        "seq-mean-token-mean": rows * row,
    }[mode]


@pytest.mark.parametrize(
    "mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
)
@pytest.mark.parametrize("weigh", ["rollout", "sequence"])
def test_a_trained_token_counts_as_in_the_embedded_engine_under_every_switch(rows_of, mode, weigh):
    """A token has the same weight in verl (factor / divisor) as in the embedded engine."""
    for switches in SETS:
        used = recipe(aggregation=mode, weigh=weigh, horizon=7, failures=switches)
        groups = [[rollout(n, end, 1 + n % 4) for n, end in enumerate(ends)] for ends in GROUPS]
        named = [
            [replace(each, request=RolloutRequest(prompt, each.request.sample, TASK)) for each in rollouts]
            for prompt, rollouts in enumerate(groups)
        ]
        ours = batch_of([group_of(rollouts, used) for rollouts in named], used)
        rows = {
            f"p{prompt}_{session}_{number}": row
            for prompt, rollouts in enumerate(named)
            for session, found in rows_of(dict(enumerate(rollouts)), used, 4).items()
            for number, row in enumerate(found)
        }
        trained = [sum(row.response_mask) for row in rows.values()] + [0, 0]
        keys = [sequence_of(key, weigh) for key in [*rows, "pad_0_0", "pad_1_0"]]
        factors = row_factors(trained, trained, keys, mode, horizon=7)
        theirs = [
            factor / divisor(mode, len(trained), sum(trained), count, 7)
            for factor, count in zip(factors, trained, strict=True)
            if count
        ]
        weights = [max(each.weights) for each in ours]
        assert theirs == pytest.approx(weights) and (not weights or min(weights) > 0)
