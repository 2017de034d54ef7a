"""One learning-rate schedule for both trainers; one choice of device and precision, before and in a job."""

import pytest
import torch
from omegaconf import OmegaConf
from torchtune.config import instantiate
from transformers import get_scheduler

from swelab.configs.kinds.sft import Train
from swelab.sft.train.device import device_of, dtype_of
from swelab.sft.train.schedule import torchtune_schedule, trl_schedule, warmup_cosine


def rates(schedule, optimizer, steps):
    """Returns the learning rate of each step."""
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def optimizer():
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def test_both_trainers_have_the_same_learning_rate_at_each_step():
    train, one, other = Train(warmup_steps=3), optimizer(), optimizer()
    settings = trl_schedule(train)
    kind = settings.pop("lr_scheduler_type")
    ours = instantiate(OmegaConf.create(torchtune_schedule(train)), one, num_training_steps=12)
    theirs = get_scheduler(kind, other, settings.pop("warmup_steps"), num_training_steps=12)
    assert not settings
    curve = rates(ours, one, 12)
    assert curve == pytest.approx(rates(theirs, other, 12))
    assert curve[3] == 1 and curve[:4] == sorted(curve[:4]) and curve[3:] == sorted(curve[3:], reverse=True)


def test_the_base_models_schedule_warms_up_and_falls():
    curve = [warmup_cosine(step, 4, 20) for step in range(1, 21)]
    assert curve[:4] == [0.25, 0.5, 0.75, 1.0] and curve[4] == 1
    assert curve[4:] == sorted(curve[4:], reverse=True) and 0 < curve[-1] < 0.02


@pytest.mark.parametrize(
    ("device", "dtype", "gpus", "chosen"),
    [
        ("auto", "auto", True, ("cuda", "bf16")),
        ("auto", "auto", False, ("cpu", "fp32")),
        ("cpu", "auto", True, ("cpu", "fp32")),
        ("auto", "fp32", True, ("cuda", "fp32")),
        ("cpu", "bf16", None, ("cpu", "bf16")),
    ],
)
def test_what_auto_means(device, dtype, gpus, chosen):
    train = Train(device=device, dtype=dtype)
    assert (device_of(train, gpus), dtype_of(train, gpus)) == chosen
