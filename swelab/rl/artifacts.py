"""What a training leaves to be read: a folder for each rollout, and the attempts of its validations.

The names inside of a rollout's folder are those of the SWE-RL scripts (`traj.json` with `messages`,
`step_debug` and `info`, `patch.diff`, `meta.json`). Gold patches are in none of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.rl import Rl
from swelab.records import Record, write_bytes, write_json
from swelab.rl.failures import Attempt
from swelab.rl.rollouts import RolledOut

SHOWN = 2000
"""Characters that are kept of the head and of the tail of what a command printed."""


@dataclass(frozen=True)
class Artifacts:
    """Writes those rollouts of a recipe's run below `folder` that the recipe asks to keep."""

    folder: Path
    recipe: Rl

    def write(self, step: int, rollouts: Sequence[RolledOut], attempts: Sequence[Attempt]) -> None:
        """A folder, named <instance>__g<group>__i<index>, for each rollout of a step that is kept."""
        for done, attempt in zip(rollouts, attempts, strict=True):
            asked = done.asked
            if asked.sample >= {"all": asked.sample + 1, "first": 1, "none": 0}[self.recipe.rollouts.keep]:
                continue
            folder = self.folder / asked.name
            named = {
                "instance_id": asked.task.instance_id,
                "group_index": asked.prompt,
                "index": asked.sample,
            }
            patch = done.trajectory["model_patch"] or ""
            write_json(
                folder / "traj.json", trajectory_of(done, attempt) | {"info": info(done, attempt) | named}
            )
            write_bytes(folder / "patch.diff", patch.encode("utf-8", "surrogateescape"))
            said = {
                "step": step,
                "model": self.recipe.start,
                "sampling_params": self.recipe.rollouts.sampling,
            }
            write_json(folder / "meta.json", named | said)


def info(done: RolledOut, attempt: Attempt) -> Record:
    """How a rollout ended, and what it was worth; `reward` is null where infrastructure lost it."""
    trajectory = done.trajectory
    return {
        "exit_status": trajectory["outcome"],
        "error": trajectory.get("info", {}).get("error", ""),
        "steps": len(done.turns),
        "patch_source": "submission" if trajectory["model_patch"] else "",
        "reward": attempt.reward,
        "eval_result": {name: done.grade[name] for name in ("status", "resolved")},
        "seconds": done.seconds,
    }


def trajectory_of(done: RolledOut, attempt: Attempt) -> Record:
    """The conversation, and what each command did."""
    messages = done.trajectory["messages"]
    return {
        "trajectory_format": done.trajectory.get("trajectory_format", ""),
        "messages": [{"role": each["role"], "content": each["content"]} for each in messages],
        "step_debug": list(steps(messages)),
    }


def steps(messages: Sequence[Record]) -> Iterator[Record]:
    """Each command with its exit code (null where there is none) and the ends of what it printed."""
    number = 0
    for place, message in enumerate(messages):
        actions = message.get("extra", {}).get("actions", []) if message["role"] == "assistant" else []
        for action, answer in zip(actions, messages[place + 1 :], strict=False):
            extra, output = answer.get("extra", {}), str(answer["content"])
            code = extra.get("returncode")
            yield {
                "step_idx": number,
                "action": action["command"],
                "returncode": code,
                "output_len": len(output),
                "output_head": output[:SHOWN],
                "output_tail": output[SHOWN:][-SHOWN:],
                "seconds": extra.get("seconds"),
                "ok": code == 0,
            }
            number += 1


def validation_row(step: int, done: RolledOut, whole: bool) -> Record:
    """A line of validation.jsonl: an attempt of one task by the weights after `step` steps.

    whole: with the conversation.
    """
    found = {
        "step": step,
        "instance_id": done.asked.task.instance_id,
        "outcome": done.trajectory["outcome"],
        "status": done.grade["status"],
        "resolved": done.grade["resolved"],
        "model_patch": done.trajectory["model_patch"],
    }
    if not whole:
        return found
    told = [{"role": each["role"], "content": each["content"]} for each in done.trajectory["messages"]]
    return found | {"messages": told}
