"""Nodes and GPUs of a training script's options and variables, as a recipe names them."""

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
"""Variables of SWE-RL's scripts, in which each node trains with some of its GPUs and serves with others."""


def laid_out(made, env):
    """Nodes that train and nodes that serve, from the variables of SWE-RL's scripts. Raises InputError.

    There each node does both; here a node does one, so both numbers of GPUs must fill whole nodes. Recipes
    whose GPUs train and serve in turn have no such variables.
    """
    told = {name: number(name, env[name], least=1) for name in LAYOUT if env.get(name)}
    verl = made["verl"]
    if not told or verl.get("mode") != "separate_async":
        return
    gpus = told.get("NUM_GPUS_PER_NODE", verl["gpus"])
    judging = verl.get("judge", {}).get("nodes", 0)
    nodes = verl["trainer"]["nodes"] + verl["rollout"]["nodes"]
    nodes = told.get("TRAIN_NUM_NODES", told.get("NUM_NODES", nodes + judging) - judging)
    training = nodes * told.get("ACTOR_GPUS_PER_NODE", 4)
    serving = told.get("ROLLOUT_GPUS_TOTAL", nodes * told.get("ROLLOUT_GPUS_PER_NODE", 4))
    for what, count in (("train", training), ("serve", serving)):
        if count < gpus or count % gpus:
            said = " ".join(f"{name}={value}" for name, value in told.items())
            raise InputError(
                f"{said}: {count} GPUs {what}, with {gpus} a node", expected="whole nodes of them"
            )
    verl["gpus"] = made["job"]["gpus"] = gpus
    verl["trainer"]["nodes"], verl["rollout"]["nodes"] = training // gpus, serving // gpus


def colocated(made):
    """The GPUs that train serve too, in turn."""
    verl = made["verl"]
    verl["mode"] = "sync"
    verl.setdefault("trainer", {})["offload"] = "all"
    verl.setdefault("rollout", {})["nodes"] = 0
    made["rollouts"].pop("ahead", None)


def machines(made, serving):
    """Nodes that serve, from a number of GPUs or None, and how many nodes the job asks for."""
    verl = made["verl"]
    if serving is not None:
        if serving < 0 or serving % verl["gpus"]:
            what = f"--rollout-num-gpus {serving} with {verl['gpus']} GPUs a node"
            raise InputError(what, expected="whole nodes")
        put(made, "verl.rollout.nodes", serving // verl["gpus"], "rollout-num-gpus")
    parts = (verl.get("trainer", {}).get("nodes", 1), verl.get("rollout", {}).get("nodes", 0))
    nodes = sum(parts) + verl.get("judge", {}).get("nodes", 0)
    if nodes != made["job"].get("nodes", 1):
        made["job"]["nodes"] = nodes


def put(made, key, value, option):
    """Sets a key at any depth. Raises InputError where the recipe has no such part."""
    *parts, last = key.split(".")
    for part in parts:
        if part == "judge" and "judge" not in made:
            raise InputError(f"--{option} without a judge", expected="--prm-enable")
        made = made.setdefault(part, {})
    made[last] = value
