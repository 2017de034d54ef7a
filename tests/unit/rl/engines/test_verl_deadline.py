"""A checkpoint before the job ends: when it is requested, and that verl's trainer then writes it once."""

import asyncio

import pytest

from swelab.cluster import slurm
from swelab.cluster.slurm import SlurmError, seconds_of
from swelab.rl.engines import verl_deadline
from swelab.rl.engines.verl_deadline import Deadline, SavesInTime
from swelab.rl.engines.verl_workplace import Gathering
from tests.loop_turns import one_turn


class Clock:
    """A clock, and a job that ends at `end`."""

    now, end = 0.0, 1000

    def __call__(self):
        return self.now

    def left(self):
        return self.end - self.now


@pytest.fixture
def clock():
    return Clock()


def step(deadline, clock, seconds):
    deadline.begin()
    clock.now += seconds
    return deadline.is_near()


def test_it_is_near_when_a_further_step_and_its_checkpoint_may_not_fit(clock):
    deadline = Deadline(clock.left, clock)
    assert not step(deadline, clock, 100)
    deadline.record_save(20)
    # 1.5 x (100 + 20) = 180 s are needed
    assert not step(deadline, clock, 100)
    clock.now = 719
    assert not step(deadline, clock, 100)  # 181 s left
    assert step(deadline, clock, 1)


def test_old_steps_are_forgotten_and_a_checkpoint_counts_as_two_minutes_before_one_was_written(clock):
    clock.end = 850
    deadline = Deadline(clock.left, clock)
    assert not step(deadline, clock, 200)
    told = [step(deadline, clock, 50) for _ in range(5)]
    # after four of them 450 s are left and 1.5 x (200 + 120) needed; then 400 s, and 1.5 x (50 + 120)
    assert told == [False, False, False, True, False]


def test_without_a_limit_nothing_is_near(monkeypatch):
    assert not step(Deadline(lambda: None), Clock(), 0)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert verl_deadline.seconds_left() is None
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert verl_deadline.seconds_left() is None


def test_the_end_is_what_squeue_says_in_seconds(monkeypatch, tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$SLURM_TIME_FORMAT" = %s ] && echo 1795752376\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert slurm.job_end("1") == 1795752376
    squeue.write_text("#!/bin/sh\necho N/A\n")
    with pytest.raises(SlurmError, match="'N/A' of the end of job 1"):
        slurm.job_end("1")


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        ("0:07", 7),
        ("30", 1800),
        ("1-12", 129_600),
        ("59:00", 3540),
        ("2:05:09", 7509),
        ("1-00:00:01", 86401),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_time_left_as_squeue_writes_it(left, seconds):
    assert seconds_of(left) == seconds


class Trainer:
    """The part of verl's trainer that ours calls. It saves every third step, as verl's does."""

    def __init__(self):
        self.global_steps, self.did = 0, []

    def on_step_begin(self):
        self.did.append("begin")

    def on_step_end(self):
        self.did.append("end")

    def _save_checkpoint(self):
        self.did.append(f"save {self.global_steps}")

    def train(self, steps, clock):
        for self.global_steps in range(1, steps + 1):
            self.on_step_begin()
            clock.now += 100
            if self.global_steps % 3 == 0:
                self._save_checkpoint()
            self.on_step_end()


class Saving(SavesInTime, Trainer):
    pass


def test_the_trainer_saves_each_step_near_the_end_and_none_twice(clock, capsys):
    clock.end = 950
    trainer = Saving()
    trainer._deadline = Deadline(clock.left, clock)
    trainer.train(10, clock)
    saves = [told for told in trainer.did if "save" in told]
    assert saves == ["save 3", "save 6", "save 8", "save 9", "save 10"]
    assert trainer.did.count("begin") == trainer.did.count("end") == 10
    assert trainer.did[trainer.did.index("save 10") + 1] == "end"
    assert "step 10: saved" in capsys.readouterr().out


def test_a_group_is_whole_when_all_are_over_and_has_those_that_were_made():
    async def gathered():
        group = Gathering(3)
        waiting = asyncio.create_task(group.whole())
        group.close(0, "first")
        group.close(2, None)
        await one_turn()
        early = waiting.done()
        group.close(1, "second")
        return early, await waiting

    assert asyncio.run(gathered()) == (False, {0: "first", 1: "second"})
