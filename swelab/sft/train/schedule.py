"""The learning-rate schedule of all training: linear warm-up, then cosine decay to 0.

The schedule is changed only here. torchtune and TRL get the schedule by name, and the demo's base model uses
`warmup_cosine`.
"""

import math

from swelab.configs.kinds.sft import Train
from swelab.records import Record


def torchtune_schedule(train: Train) -> Record:
    """Returns the section `lr_scheduler` of a torchtune configuration."""
    component = "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"
    return {"_component_": component, "num_warmup_steps": train.warmup_steps}


def trl_schedule(train: Train) -> Record:
    """Returns the arguments of TRL's configuration that set the schedule."""
    return {"lr_scheduler_type": "cosine", "warmup_steps": train.warmup_steps}


def warmup_cosine(step: int, warmup: int, steps: int) -> float:
    """Returns the learning rate at `step` (1, 2, ...), as a share of the maximum rate."""
    decay = 0.5 * (1 + math.cos(math.pi * max(0, step - 1 - warmup) / max(1, steps - warmup)))
    return min(1.0, step / max(1, warmup)) * decay
