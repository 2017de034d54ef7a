"""Stand-ins for real rollouts: each costs nothing, or sleeps for a time with a long tail.

Both engines make them: the embedded one by `pace_places`, verl by the agent loop `rl_verl_loop.PacedLoop`.
Rollouts of the first FREE prompts cost nothing.
"""

import random
import time

from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.rl.rollouts import Place, RolledOut, RolloutRequest, StepJournal

FREE = 32
MEDIAN_SECONDS, TAIL = 1.0, 1.0
"""Of the log-normal of a rollout's seconds."""
TURN_TOKENS = 20


def seconds_of(prompt: int, sample: int) -> float:
    """How long a rollout takes."""
    if prompt < FREE:
        return 0.0
    return MEDIAN_SECONDS * random.Random(f"{prompt} {sample}").lognormvariate(0, TAIL)


def paced(request: RolloutRequest, version: str) -> RolledOut:
    """A rollout of one turn, every other one of a group resolved, after its seconds."""
    took = seconds_of(request.prompt, request.sample)
    time.sleep(took)
    good = request.sample % 2 == 0
    sampled = tuple(range(3, 3 + TURN_TOKENS))
    turn = TokenTurn((3, 4, 5), sampled, (-4.0,) * TURN_TOKENS, "stop", ((0, version),))
    grade = {"status": "resolved" if good else "unresolved", "resolved": good}
    trajectory = {"outcome": "submitted", "messages": [], "model_patch": ""}
    return RolledOut(request, trajectory, grade, (turn,), {"run": took, "grade": 0.0})


def pace_places() -> None:
    """Makes the rollouts of this process paced ones."""

    def roll_out(self: Place, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        done = journal.result(request) or paced(request, "0")
        journal.add_result(done)
        return done

    Place.roll_out = roll_out  # type: ignore[method-assign]


def kept_in(journal: Journal, request: RolloutRequest, version: str) -> RolledOut:
    """A paced rollout, kept in a journal as real ones are."""
    done = paced(request, version)
    StepJournal(journal).add_result(done)
    return done
