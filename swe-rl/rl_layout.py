"""Converts a training script's options and variables for nodes and GPUs to keys of a recipe."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from rl_names import number  # noqa: E402

from swelab.records import InputError  # noqa: E402

LAYOUT = (
    "NUM_NODES",
    "TRAIN_NUM_NODES",
    "NUM_GPUS_PER_NODE",
    "ACTOR_GPUS_PER_NODE",
    "ROLLOUT_GPUS_PER_NODE",
    "ROLLOUT_GPUS_TOTAL",
)
"""Variables of SWE-RL's scripts. There, each node trains with some of its GPUs and serves with others."""


def set_layout(recipe, env):
    """Sets the nodes that train and the nodes that serve. Raises InputError.

    A node of SWE-RL does both. Our nodes do one of the two, so both numbers of GPUs must fill whole nodes.
    The variables have no effect on recipes whose GPUs train and serve in turn.
    """
    sizes = {name: number(name, env[name], least=1) for name in LAYOUT if env.get(name)}
    verl = recipe["verl"]
    if not sizes or verl.get("mode") != "separate_async":
        return
    gpus = sizes.get("NUM_GPUS_PER_NODE", verl["gpus"])
    judging = verl.get("judge", {}).get("nodes", 0)
    nodes = verl["trainer"]["nodes"] + verl["rollout"]["nodes"]
    nodes = sizes.get("TRAIN_NUM_NODES", sizes.get("NUM_NODES", nodes + judging) - judging)
    training = nodes * sizes.get("ACTOR_GPUS_PER_NODE", 4)
    serving = sizes.get("ROLLOUT_GPUS_TOTAL", nodes * sizes.get("ROLLOUT_GPUS_PER_NODE", 4))
    for what, count in (("train", training), ("serve", serving)):
        if count < gpus or count % gpus:
            variables = " ".join(f"{name}={value}" for name, value in sizes.items())
            raise InputError(
                f"{variables}: {count} GPUs {what}, with {gpus} a node", expected="whole nodes of them"
            )
    verl["gpus"] = recipe["job"]["gpus"] = gpus
    verl["trainer"]["nodes"], verl["rollout"]["nodes"] = training // gpus, serving // gpus


def colocate(recipe):
    """Lets the same GPUs train and serve, in turn."""
    verl = recipe["verl"]
    verl["mode"] = "sync"
    verl.setdefault("trainer", {})["offload"] = "all"
    verl.setdefault("rollout", {})["nodes"] = 0
    recipe["rollouts"].pop("ahead", None)


def set_nodes(recipe, serving):
    """Sets the number of nodes that serve, and the job's number of nodes. serving: GPUs, or None."""
    verl = recipe["verl"]
    if serving is not None:
        if serving < 0 or serving % verl["gpus"]:
            what = f"--rollout-num-gpus {serving} with {verl['gpus']} GPUs a node"
            raise InputError(what, expected="whole nodes")
        set_key(recipe, "verl.rollout.nodes", serving // verl["gpus"], "rollout-num-gpus")
    parts = (verl.get("trainer", {}).get("nodes", 1), verl.get("rollout", {}).get("nodes", 0))
    nodes = sum(parts) + verl.get("judge", {}).get("nodes", 0)
    if nodes != recipe["job"].get("nodes", 1):
        recipe["job"]["nodes"] = nodes


def set_key(recipe, key, value, option):
    """Sets a key at any depth. Raises InputError if the recipe lacks the part with the key."""
    *parts, last = key.split(".")
    for part in parts:
        if part == "judge" and "judge" not in recipe:
            raise InputError(f"--{option} without a judge", expected="--prm-enable")
        recipe = recipe.setdefault(part, {})
    recipe[last] = value
