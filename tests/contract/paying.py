"""Shards of one hosted policy as processes at once: `python -m tests.contract.paying FOLDER BUDGET SHARD...`

LiteLLM takes seconds to import, so it is done once; then each shard is a fork. Prints "<shard> <pid>" lines,
and at the end a line of JSON with the exit status of each. What a shard says of a fault is in <shard>.err.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.models.chat.litellm_calls import quiet_litellm
from swelab.records import Fault, read_json, write_jsonl
from swelab.records.task_records import Task
from swelab.rollouts.rollout_stage import roll_out
from tests.contract.hosted_service import PRICE

SHARED = {"kind": "hosted", "scaffold": "demo", "model": "openai/toy", "api_key_env": "TOY_KEY"}


def run(folder, budget, shard):
    told = read_json(folder / "settings.json")
    policy = SHARED | {"price": PRICE, "budget_dollars": budget}
    policy |= {"api_base": told["url"], "sampling": {"max_tokens": 64}}
    rows = roll_out(
        list(map(Task.of, told["tasks"])),
        policy_name="expert",
        policy=recipes.complete(POLICY, policy, "policy"),
        scaffold=loop_of(recipes.load_named(SCAFFOLD, "demo")),
        subset="train",
        shard=shard,
        repos_dir=folder / "repos",
        progress=folder / "progress" / f"{shard}.jsonl",
        workers=3,
    )
    write_jsonl(folder / f"{shard}.jsonl", rows)


def fork(folder, budget, shard):
    """Forks a process that runs a shard. Returns its pid."""
    if pid := os.fork():
        print(shard, pid, flush=True)
        return pid
    status = 0
    sys.stderr = open(folder / f"{shard}.err", "w", encoding="utf-8")
    try:
        run(folder, budget, shard)
    except Fault as fault:
        status = 2
        print(f"error: {fault}", file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main(folder, budget, *shards):
    quiet_litellm()
    running = {shard: fork(Path(folder), float(budget), shard) for shard in shards}
    ends = {shard: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for shard, pid in running.items()}
    print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
