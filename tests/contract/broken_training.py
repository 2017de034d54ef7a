"""Trains in forked processes that kill themselves on the way: each start costs a fork, not the imports.

    python -m tests.contract.broken_training < <trainings, JSON Lines>

A training is {"recipe", "config", "steps", "ranks", "kills"}: torchtune's name and configuration, the folder
of saved states, the number of processes. A kill is [3, "before"] the state of step 3 is saved, [3, "writing"]
it, or [3, "saved"]. After each the training is started anew, and once more at the end.
"""

import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from omegaconf import OmegaConf

from swelab.models.serving.server import free_port
from swelab.sft.train import step_states, torchtune_worker


class Dying(step_states.StepStates):
    """A checkpointer that kills its process at one step."""

    def __init__(self, folder, every, step, when):
        super().__init__(folder, every)
        self.step, self.when = step, when

    def _after_step(self):
        self._die("before")
        super()._after_step()

    def save(self, step):
        if self._now("writing"):
            step_states.torch.save = half_written
        super().save(step)
        self._die("saved")

    def _now(self, when):
        return self.rank == 0 and self.recipe.global_step == self.step and self.when == when

    def _die(self, when):
        if self._now(when):
            os.kill(os.getpid(), signal.SIGKILL)


def half_written(state, stream):
    stream.write(b"PK\x03\x04 half a file")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def start(training, step, when):
    """Trains in one process per rank.

    Returns whether all processes succeeded; if one fails, all are ended.
    """
    port, ranks, children = free_port(""), training["ranks"], []
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
            os.environ |= {**{name: str(value) for name, value in place.items()}, "MASTER_ADDR": "127.0.0.1"}
            try:
                states = Dying(Path(training["steps"]), 1, step, when)
                torchtune_worker.train(training["recipe"], OmegaConf.load(training["config"]), states)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    good = True
    while children:
        pid, status = os.wait()
        children.remove(pid)
        if status and good:
            good = False
            for other in children:
                os.kill(other, signal.SIGKILL)
    return good


def main():
    trainings = [json.loads(line) for line in sys.stdin]
    for training in trainings:
        torchtune_worker.recipe_class(training["recipe"])  # imports what the forks need
    gc.freeze()
    faults = []
    for training in trainings:
        for step, when in training["kills"]:
            if start(training, step, when):
                faults.append(f"{training['steps']}: not killed at step {step} {when}")
        if not start(training, 0, ""):
            faults.append(f"{training['steps']}: did not go through")
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
