"""Writes files of a training run for people to read: a folder per rollout, and the validation attempts.

A rollout's folder contains `traj.json` (with `messages`, `step_debug` and `info`), `patch.diff` and
`meta.json`, named as in the SWE-RL scripts. No file contains a gold patch.
"""

from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.rl import Rl
from swelab.records import Record, write_bytes, write_json
from swelab.rl.failures import Attempt
from swelab.rl.method import Group
from swelab.rl.rewards import zero_or_one
from swelab.rl.rollouts import RolledOut
from swelab.rollouts.command_steps import steps


@dataclass(frozen=True)
class Artifacts:
    """Writes below `folder` the rollouts that the recipe's setting `rollouts.keep` selects."""

    folder: Path
    recipe: Rl

    def write(self, step: int, group: Group) -> None:
        """Writes a folder <instance>__g<group>__i<index> for each selected rollout of `group`."""
        for place, (done, attempt) in enumerate(zip(group.rollouts, group.attempts, strict=True)):
            request = done.request
            if (
                request.sample
                >= {"all": request.sample + 1, "first": 1, "none": 0}[self.recipe.rollouts.keep]
            ):
                continue
            folder = self.folder / request.name
            named = {
                "instance_id": request.task.instance_id,
                "group_index": request.prompt,
                "index": request.sample,
            }
            patch = done.trajectory["model_patch"] or ""
            masked = {"trained": group.treated.trained[place], "untrained": group.treated.reason(place)}
            write_json(
                folder / "traj.json", trajectory_of(done) | {"info": info(done, attempt) | masked | named}
            )
            write_bytes(folder / "patch.diff", patch.encode("utf-8", "surrogateescape"))
            said = {
                "step": step,
                "model": self.recipe.start,
                "sampling_params": self.recipe.rollouts.sampling,
            }
            write_json(folder / "meta.json", named | said)


def info(done: RolledOut, attempt: Attempt) -> Record:
    """Returns how a rollout ended, and its reward. The reward is None if the rollout was lost to
    infrastructure."""
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


def trajectory_of(done: RolledOut) -> Record:
    """Returns the conversation, and the result of each command."""
    messages = done.trajectory["messages"]
    return {
        "trajectory_format": done.trajectory.get("trajectory_format", ""),
        "messages": [{"role": each["role"], "content": each["content"]} for each in messages],
        "step_debug": list(steps(messages)),
    }


def validation_row(step: int, done: RolledOut, whole: bool) -> Record:
    """Returns a line of validation.jsonl: one attempt at a task with the weights after `step` steps.

    whole: whether to include the conversation. The reward is 1 for a resolved task, and None if the attempt
    was lost to infrastructure.
    """
    row = {
        "step": step,
        "instance_id": done.request.task.instance_id,
        "outcome": done.trajectory["outcome"],
        "status": done.grade["status"],
        "resolved": done.grade["resolved"],
        "reward": done.attempt(zero_or_one).reward,
        "model_patch": done.trajectory["model_patch"],
    }
    if not whole:
        return row
    told = [{"role": each["role"], "content": each["content"]} for each in done.trajectory["messages"]]
    return row | {"messages": told}
