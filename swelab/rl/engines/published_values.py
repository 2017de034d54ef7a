"""Settings of the published scripts of SWE-RL, Miles and SWE-PDB, under the keys of our recipes.

None means that the scripts have no such bound or setting. Keys with the prefix `scaffold.` belong to the
scaffold's recipe. Where a recipe under `configs/rl/` has a different value, a comment beside the value gives
the reason. `differences` lists these values.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.outcomes import RolloutEnd
from swelab.records import Record, read_text

GRPO: Record = {
    "rollouts.top_p": 1.0,
    "method.loss": "clipped",
    "method.clip_low": 0.2,
    "method.clip_high": 0.28,
    "method.dual_clip": None,
    "method.kl": 0.0,
    "method.entropy": 0.0,
    "method.advantage": "grpo",
    "method.mismatch.truncate": None,
    "train.lr": 1e-6,
    "train.minibatches": 1,
    "train.max_grad_norm": 1.0,
}
ADAM: Record = {"train.betas": [0.9, 0.98], "train.weight_decay": 0.1}
"""Optimizer settings of slime and Miles."""

SWE_RL: Record = (
    GRPO
    | ADAM
    | {
        "rollouts.temperature": 1.0,
        "rollouts.max_tokens": 4096,
        "rollouts.ahead": 1,
        "rollouts.update": "between_turns",
        "method.reward": "signed",
        "method.aggregation": "seq-mean-token-mean",
        "method.sequences": "whole",
        "train.keep_checkpoints": None,
        "scaffold.step_limit": 20,
        "scaffold.limits.wall_seconds": 180,
        "scaffold.wall_seconds": 1800,
        "verl.mode": "separate_async",
        "verl.gpus": 8,
        "verl.trainer.context_parallel": 1,
        "verl.trainer.offload": "optimizer",
        "validation": None,
    }
)
STEPS: Record = {"rollouts.history": "managed", "method.sequences": "step", "method.weigh": "sequence"}
"""Settings that correspond to --dynamic_history: each step is a training sequence, and all sequences have the
same weight."""
WHOLE: Record = {"rollouts.history": "whole"}
"""Settings without --dynamic_history: the whole conversation is trained, even turns that the policy was not
shown."""


def _swe_rl(model: str, subset: str, group: tuple[int, int], steps: int, **more: Any) -> Record:
    prompts, samples = group
    said = {"start": f"models/{model}", "subset": subset, "train.steps": steps}
    said |= {"rollouts.prompts": prompts, "rollouts.samples": samples}
    return SWE_RL | said | {key.replace("__", "."): value for key, value in more.items()}


def _nodes(training: int, serving: int, sharing: int, engine: int, memory: float, save: int) -> Record:
    """Returns the settings of nodes and of tensor parallelism. training, serving: numbers of nodes. sharing,
    engine: numbers of GPUs that share a model, in the trainer and in an inference engine."""
    return {
        "verl.trainer.nodes": training,
        "verl.rollout.nodes": serving,
        "verl.trainer.tensor_parallel": sharing,
        "verl.rollout.tensor_parallel": engine,
        "verl.rollout.memory": memory,
        "verl.save": save,
    }


VERIFIED, GYM = "verified_360", "swe_gym_subset"
LARGE = _swe_rl("Qwen3-32B", VERIFIED, (8, 8), 2000, rollouts__context_length=16384, rollouts__at_once=128)
LARGE |= {"train.batch_tokens": 8192, **STEPS, **_nodes(4, 4, 8, 4, 0.55, 2)}
LONG = {"rollouts.context_length": 32768}
SMALL = _swe_rl("Qwen3-8B", GYM, (8, 4), 500, train__batch_tokens=16384) | LONG

MILES: Record = (
    GRPO
    | ADAM
    | {
        "start": "models/Qwen3-4B-Instruct-2507",
        "subset": "swe-gym",
        "rollouts.prompts": 8,
        "rollouts.samples": 8,
        "rollouts.at_once": None,
        "rollouts.temperature": 0.8,
        "rollouts.max_tokens": 8192,
        "rollouts.context_length": None,
        "rollouts.history": "whole",
        "method.reward": "solved",
        "method.kl": 0.01,
        "method.aggregation": "seq-mean-token-mean",
        "train.steps": 3000,
        "train.batch_tokens": 2048,
        "train.keep_checkpoints": None,
        "scaffold.step_limit": 250,
        "scaffold.limits.wall_seconds": 600,
        "verl.mode": "sync",
        "verl.gpus": 4,
        "verl.trainer.context_parallel": 1,
        "validation": None,
        **_nodes(1, 0, 2, 1, 0.7, 100),
    }
)

PDB: Record = GRPO | {
    "subset": "all 14,470 tasks of KodCode",
    "rollouts.prompts": 32,
    "rollouts.samples": 8,
    "rollouts.temperature": 1.0,
    "rollouts.max_tokens": None,
    "rollouts.context_length": 4096 + 24000,
    "method.reward": "solved",
    "method.dual_clip": 3.0,
    "method.failures.mask": [RolloutEnd.CONTEXT_LIMIT, RolloutEnd.TIME_LIMIT],
    "train.steps": 2260,
    "train.betas": [0.9, 0.999],
    "train.weight_decay": 0.01,
    "train.batch_tokens": 20000,
    "scaffold.agent": "debugger",
    "scaffold.limits.wall_seconds": 30,
    "scaffold.step_limit": 80,
    "rollouts.thinking": False,
    "scaffold.wall_seconds": 5400,
    "verl.mode": "sync",
    "verl.trainer.backend": "fsdp2",
    "verl.trainer.sequence_parallel": 2,
    "verl.trainer.offload": "all",
    "verl.rollout.memory": 0.7,
    "verl.prompt_tokens": 4096,
    "validation.every": 5,
    "validation.temperature": 1.0,
    "validation.subset": "syn-debug",
    "validation.limit": 100,
}


def _pdb(start: str, gpus: int, engine: int, save: int, keep: int, **more: Any) -> Record:
    at_once = 32 if gpus == 4 else 64
    said = {"start": start, "verl.gpus": gpus, "rollouts.at_once": at_once}
    said |= {"verl.rollout.tensor_parallel": engine, "verl.save": save, "train.keep_checkpoints": keep}
    sums = {"method.aggregation": "seq-mean-token-sum"}
    return PDB | said | sums | {key.replace("__", "."): value for key, value in more.items()}


NORM, HORIZON = "seq-mean-token-sum-norm", 24000
PUBLISHED: dict[str, Record] = {
    "swerl-32b-8nodes": LARGE,
    "swerl-32b-8nodes-resume": LARGE,
    "swerl-32b-4nodes": _swe_rl("Qwen3-32B", VERIFIED, (4, 4), 250, rollouts__at_once=2)
    | {"train.batch_tokens": 8192, **LONG, **WHOLE, **_nodes(2, 2, 4, 4, 0.55, 5)},
    "swerl-8b-2nodes": SMALL | WHOLE | _nodes(1, 1, 4, 2, 0.6, 5) | {"rollouts.at_once": 2},
    "swerl-8b-prm-5nodes": SMALL
    | STEPS
    | _nodes(2, 2, 4, 2, 0.6, 5)
    | {"rollouts.at_once": 4, "method.advantage": "step-wise", "judge.votes": 3, "judge.coefficient": 1.0}
    | {"verl.judge.nodes": 1, "verl.judge.tensor_parallel": 8},
    "miles-4b": MILES,
    "swepdb-4b": _pdb("sft:swepdb-4b", 4, 4, 20, 1),
    "swepdb-8b": _pdb("sft:swepdb-8b", 4, 2, 20, 1),
    "swepdb-14b": _pdb("sft:swepdb-14b", 8, 4, 5, 2, method__aggregation=NORM, method__horizon=HORIZON),
    "swepdb-14b-rewrite": _pdb("sft:swepdb-14b", 8, 4, 5, 10),
}
"""Maps the name of each of our recipes to its published settings."""


@dataclass(frozen=True)
class Difference:
    """A recipe's value that differs from the published value. reason: the recipe's comment on the
    difference."""

    key: str
    ours: Any
    published: Any
    reason: str

    def __str__(self) -> str:
        ours, there = _format(self.ours), _format(self.published)
        return f"{self.key} {ours}, published {there}: {self.reason or 'no reason given'}"


def differences(name: str, configs: Path = recipes.CONFIGS) -> list[Difference]:
    """Returns the values of a recipe that differ from the published values. Raises InputError if the recipe
    is unusable, and KeyError if there is no published script for `name`."""
    recipe = recipes.load_named(RL, name, configs)
    said = recipe.plain() | {"verl": recipe.cluster.plain()}
    said["scaffold"] = recipes.load_named(SCAFFOLD, recipe.scaffold, configs).plain()
    beside = reasons(read_text(recipes.path_of("rl", name, configs)))
    result = list[Difference]()
    for key, published in PUBLISHED[name].items():
        ours: Any = said
        for part in key.split("."):
            ours = ours.get(part) if isinstance(ours, dict) else None
        if ours != published:
            told = next((beside[part] for part in _upwards(key) if beside.get(part)), "")
            result.append(Difference(key, ours, published, told))
    return result


def reasons(text: str) -> dict[str, str]:
    """Returns a map from the path of each key in a recipe to the comment on the key's line. The comment is ""
    if there is none."""
    lines, comments = text.splitlines(), dict[str, str]()

    def walk(node: yaml.Node | None, path: str) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            inner = f"{path}{key.value}"
            comments[inner] = lines[key.start_mark.line].partition("  # ")[2]
            walk(value, f"{inner}.")

    walk(yaml.compose(text, Loader=yaml.SafeLoader), "")
    return comments


def _format(value: Any) -> str:
    """Formats a value as a recipe would show it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_format, value))}]"
    return "none" if value is None else str(value)


def _upwards(key: str) -> list[str]:
    """Returns a key and all its parent keys, the longest first."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
