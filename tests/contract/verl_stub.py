"""Our agent loop under verl's own AgentLoopWorker, without Ray, servers or weights; in verl's environment.

Prints a JSON object. A stand-in for verl's server client answers with one of three scripts, a rollout each:
one repairs the bug, one does not, one is lost. All else is real: loop, sandboxes, grader, journal. Then
another agent repairs it, by calls of tools, with the tokens of a Qwen3.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.rl.engines import verl_samples, verl_workplace
from swelab.rl.engines.verl_order import AGENT, Order, rows, validation_rows, write_order
from swelab.rl.rollout_inputs import Reads
from swelab.tasks.task_rows import read_tasks


def call(tool: str, **arguments: str) -> str:
    """Returns a turn that calls a tool, as Qwen3 writes it."""
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


DONE = "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"
SCRIPTS = {
    "repairs": ["```bash\nsed -i 's/a - b/a + b/' calc/core.py\n```", DONE],
    "leaves": ["```bash\ntrue\n```", DONE],
    "lost": [],
    "calls": [call("bash", command="sed -i 's/a - b/a + b/' calc/core.py"), call("submit")],
}
VERSION = 7
TOOLS = "tools.yaml"
"""The recipe of the other agent."""


class Client:
    """Replaces verl's server client: each request id gets the next script."""

    def __init__(self, tokenizer, fates):
        self.tokenizer, self.fates, self.turns, self.calls = tokenizer, list(fates), {}, 0

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.calls += 1
        assert sampling_params["max_tokens"] <= 200 and sampling_params["logprobs"]
        if request_id not in self.turns:
            self.turns[request_id] = list(SCRIPTS[self.fates.pop(0)])
        if not self.turns[request_id]:
            raise RuntimeError("the server is gone")
        text = self.turns[request_id].pop(0)
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        told = {"global_steps": VERSION}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="stop", extra_fields=told)


def order_in(folder: Path, name: str, start: str) -> Path:
    """Returns the order of a training from a recipe. It tells verl the name of our loop."""
    recipe = recipes.load(RL, folder / name)
    tasks, held_out = (list(read_tasks(folder / f"{name}.json")) for name in ("some", "held"))
    scaffold = recipes.load_named(SCAFFOLD, recipe.scaffold).model_dump(exclude_none=True)
    reads = Reads(tasks, folder / "repos", held_out)
    path = folder / f"{start}.json"
    write_order(path, Order(recipe, scaffold, folder / start, reads, folder / f"run-{start}"))
    loop = {"name": AGENT, "_target_": "swelab.rl.engines.verl_loop.SwelabLoop"}
    OmegaConf.save(OmegaConf.create([loop | {"order": str(path)}]), folder / "loops.yaml")
    return path


def worker_of(folder: Path, start: str, client) -> AgentLoopWorker:
    """Returns verl's worker, as the trainer would start it."""
    base = os.path.join(os.path.dirname(verl.trainer.__file__), "config")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_dir(base, version_base=None):
        config = compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={folder}/{start}",
                f"{rollout}.name=sglang",
                f"{rollout}.n=3",
                f"{rollout}.agent.agent_loop_config_path={folder}/loops.yaml",
                "data.max_prompt_length=256",
                "data.max_response_length=512",
            ],
        )
    return AgentLoopWorker(config, client)


def batch_of(row: dict, sessions: int, validate: bool) -> DataProto:
    """Returns a batch with one prompt, repeated once for each rollout."""
    columns = {
        "agent_name": [AGENT] * sessions,
        "raw_prompt": [row["prompt"]] * sessions,
        "extra_info": [row["extra_info"]] * sessions,
        "index": [row["extra_info"]["index"]] * sessions,
        "uid": ["u"] * sessions,
        "session_id": list(range(sessions)),
        "global_steps": [VERSION + 1 - validate] * sessions,
    }
    made = {name: np.empty(sessions, dtype=object) for name in columns}
    for name, values in columns.items():
        made[name][:] = values
    return DataProto(non_tensor_batch=made, meta_info={"validate": validate, "global_steps": VERSION + 1})


def main() -> None:
    folder = Path(sys.argv[1])
    where = order_in(folder, "small.yaml", "toy")
    work = verl_workplace.workplace(str(where))
    client = Client(work._template._tokenizer, ["repairs", "leaves", "lost", "repairs"])
    worker = worker_of(folder, "toy", client)
    row, held_out = next(rows(work.order, 1)), next(validation_rows(work.order))

    first = asyncio.run(rollouts(worker, row, 3))
    asked = client.calls
    again = asyncio.run(rollouts(worker, row, 3))
    resumed = client.calls - asked
    validated = asyncio.run(worker.generate_sequences(batch_of(held_out, 1, True)))
    tools = by_tools(folder)
    packages = {name.partition(".")[0] for name in sys.modules}
    print(json.dumps({
        "rows": [[told(each) for each in made] for made in first],
        "again": [[told(each) for each in made] for made in again],
        "asked": asked,
        "asked_again": resumed,
        "validated": {
            "reward": float(validated.batch["rm_scores"].sum()),
            "trained": int(validated.batch["response_mask"].sum()),
            "oldest": int(validated.non_tensor_batch["min_global_steps"][0]),
        },
        "tools": [told(each) for each in tools],
        "heavy": sorted({"torchtune", "snakemake", "trl", "sglang"} & packages),
    }))  # fmt: skip


async def rollouts(worker: AgentLoopWorker, given: dict, count: int) -> list[list[verl_samples.Row]]:
    """Returns the rows of each rollout of the prompt, before verl pads them."""
    found: dict[int, list] = {}

    async def keep(output, validate, **told):
        found[told["session_id"]] = output if isinstance(output, list) else [output]

    worker._agent_loop_postprocess, after = keep, worker._agent_loop_postprocess
    worker._postprocess, pad = (lambda *_, **__: None), worker._postprocess
    await worker.generate_sequences(batch_of(given, count, False))
    worker._agent_loop_postprocess, worker._postprocess = after, pad
    return [found[number] for number in range(count)]


def by_tools(folder: Path) -> list[verl_samples.Row]:
    """Returns the rows of two rollouts of an agent with tools: one repairs the bug, one is lost."""
    work = verl_workplace.workplace(str(order_in(folder, TOOLS, "qwen3")))
    client = Client(work._template._tokenizer, ["calls", "lost", "calls"])
    made = asyncio.run(rollouts(worker_of(folder, "qwen3", client), next(rows(work.order, 1)), 2))
    return [row for rows_of_one in made for row in rows_of_one]


def told(row) -> dict:
    """Returns the parts of a row that matter to training."""
    fields = row.as_dict()
    return {
        "prompt": len(row.prompt_ids),
        "response": len(row.response_ids),
        "mask": row.response_mask,
        "logprobs": row.response_logprobs,
        "scores": fields["rm_scores"].tolist(),
        "extra": row.extra_fields,
        "reward": row.reward_score,
    }


if __name__ == "__main__":
    main()
