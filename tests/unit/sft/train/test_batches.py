"""Plans of forward passes: the steps stay the same for any division, and packs stay within their size."""

import random

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import InputError
from swelab.sft.train.batches import pack, plan_batches, read_plan, write_plan
from swelab.sft.train.ranks import Ranks

ONE, TWO = Ranks(1, 1, 0, 1), Ranks(1, 2, 0, 1)
LENGTHS = [random.Random(number).randint(20, 400) for number in range(101)]


def train(**settings):
    return recipes.complete(SFT, {"base": "toy", "train": {"epochs": 3, **settings}}, "recipe").train


def rows_of(plan):
    return [sorted(row for batch in step for row in batch) for step in plan.steps()]


@pytest.mark.parametrize("ranks", [ONE, TWO])
def test_plain_batches_are_those_of_torchtunes_loader(ranks):
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    plan = plan_batches(LENGTHS, train(batch_size=4, gradient_accumulation_steps=2), ranks)
    assert (plan.how, plan.steps_per_epoch, plan.left_out()) == ("plain", 12, 5)
    for rank in range(ranks.total):
        sampler = StatefulDistributedSampler(LENGTHS, ranks.total, rank, shuffle=True, seed=0)
        loader = DataLoader(range(len(LENGTHS)), 4, sampler=sampler, drop_last=True)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            mine = plan.epochs[epoch][rank :: ranks.total]
            assert mine == [batch.tolist() for batch in loader][: len(mine)]


@pytest.mark.parametrize("ranks", [ONE, TWO])
@pytest.mark.parametrize("bound", [50, 900, 4000])
def test_grouping_keeps_the_rows_of_each_step_and_pads_less(ranks, bound):
    settings = {"batch_size": 8, "gradient_accumulation_steps": 2}
    plain = plan_batches(LENGTHS, train(**settings), ranks)
    plan = plan_batches(LENGTHS, train(**settings, group_by_length=True, max_batch_tokens=bound), ranks)
    assert rows_of(plan) == rows_of(plain) and plan.left_out() == plain.left_out()
    batches = [batch for epoch in plan.epochs for batch in epoch]
    padded = {plan.positions(batch, LENGTHS, False) for batch in batches if len(batch) > 1}
    assert all(batches) and max(padded, default=0) <= bound
    assert all(len(step) == plan.passes * ranks.total for step in plan.steps())
    waste = [
        sum(p.positions(batch, LENGTHS, False) for epoch in p.epochs for batch in epoch)
        for p in (plan, plain)
    ]
    assert waste[0] < 0.95 * waste[1]


def test_packs_are_full_and_hold_every_row_once():
    packs = pack(LENGTHS, 1000)
    assert sorted(row for one in packs for row in one) == list(range(101))
    sizes = [sum(LENGTHS[row] for row in one) for one in packs]
    assert max(sizes) <= 1000 and len(packs) == -(-sum(LENGTHS) // 1000)
    plan = plan_batches(LENGTHS, train(packed=True, max_seq_len=1000, gradient_accumulation_steps=2), TWO)
    assert plan.how == "packed" and plan.passes == 1 and plan.steps_per_epoch == len(packs) // 2
    first, second = (sorted(map(sorted, epoch)) for epoch in plan.epochs[:2])
    assert plan.epochs[0] != plan.epochs[1] and all(one in map(sorted, packs) for one in first + second)
    assert plan.positions(plan.epochs[0][0], LENGTHS, True) == 1000
    assert plan.left_out() == max(101 - sum(map(len, epoch)) for epoch in plan.epochs)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"packed": True, "max_seq_len": 300},
            r"row \d+ has \d+ tokens; expected at most train.max_seq_len 300",
        ),
        ({"batch_size": 102}, "101 rows; expected at least the 102"),
        ({"packed": True, "max_seq_len": 30000, "batch_size": 2}, "1 packs; expected at least the 2"),
    ],
)
def test_what_cannot_be_planned_is_refused(settings, told):
    with pytest.raises(InputError, match=told):
        plan_batches(LENGTHS, train(**settings), ONE)


def test_a_plan_survives_its_file(tmp_path):
    plan = plan_batches(LENGTHS, train(group_by_length=True, batch_size=4), ONE)
    write_plan(tmp_path / "plan.json", plan)
    assert read_plan(tmp_path / "plan.json") == plan
