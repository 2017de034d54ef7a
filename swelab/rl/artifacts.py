"""Writes the readable files of a training: a folder for each rollout, and the attempts of its validations.

The file names in a rollout's folder are those of the SWE-RL scripts (`traj.json` with `messages`,
`step_debug` and `info`, `patch.diff`, `meta.json`). No file contains a gold patch.
"""

from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.rl import Rl
from swelab.records import Record, write_bytes, write_json
from swelab.rl.failures import Attempt
from swelab.rl.method import Group
from swelab.rl.rewards import solved
from swelab.rl.rollouts import RolledOut
from swelab.rollouts.command_steps import steps


@dataclass(frozen=True)
class Artifacts:
    """Writes the rollouts of a run that its recipe's `rollouts.keep` selects, below `folder`."""

    folder: Path
    recipe: Rl

    def write(self, step: int, group: Group) -> None:
        """Writes a folder, <instance>__g<group>__i<index>, for each selected rollout of a step's group."""
        for place, (done, attempt) in enumerate(zip(group.rollouts, group.attempts, strict=True)):
            asked = done.request
            if asked.sample >= {"all": asked.sample + 1, "first": 1, "none": 0}[self.recipe.rollouts.keep]:
                continue
            folder = self.folder / asked.name
            named = {
                "instance_id": asked.task.instance_id,
                "group_index": asked.prompt,
                "index": asked.sample,
            }
            patch = done.trajectory["model_patch"] or ""
            masked = {"trained": group.treated.trained[place], "untrained": group.treated.reason(place)}
            write_json(
                folder / "traj.json",
                trajectory_of(done) | {"info": info(done, attempt) | masked | named},
            )
            write_bytes(folder / "patch.diff", patch.encode("utf-8", "surrogateescape"))
            said = {
                "step": step,
                "model": self.recipe.start,
                "sampling_params": self.recipe.rollouts.sampling,
            }
            write_json(folder / "meta.json", named | said)


def info(done: RolledOut, attempt: Attempt) -> Record:
    """How a rollout ended, and its reward, which is null if infrastructure lost the rollout."""
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
    """The conversation, and the result of each command."""
    messages = done.trajectory["messages"]
    return {
        "trajectory_format": done.trajectory.get("trajectory_format", ""),
        "messages": [{"role": each["role"], "content": each["content"]} for each in messages],
        "step_debug": list(steps(messages)),
    }


def validation_row(step: int, done: RolledOut, whole: bool) -> Record:
    """A line of validation.jsonl: an attempt of one task by the weights after `step` steps.

    whole: includes the conversation. `reward` is 1 for a resolved task, null if infrastructure lost it.
    """
    found = {
        "step": step,
        "instance_id": done.request.task.instance_id,
        "outcome": done.trajectory["outcome"],
        "status": done.grade["status"],
        "resolved": done.grade["resolved"],
        "reward": done.attempted(solved).reward,
        "model_patch": done.trajectory["model_patch"],
    }
    if not whole:
        return found
    told = [{"role": each["role"], "content": each["content"]} for each in done.trajectory["messages"]]
    return found | {"messages": told}
