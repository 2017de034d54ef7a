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
"""Median and sigma of a rollout's log-normal seconds."""
TURN_TOKENS = 20


def seconds_of(prompt: int, sample: int) -> float:
    """Seconds that a rollout takes."""
    if prompt < FREE:
        return 0.0
    return MEDIAN_SECONDS * random.Random(f"{prompt} {sample}").lognormvariate(0, TAIL)


def paced(request: RolloutRequest, version: str) -> RolledOut:
    """Sleeps for a rollout's seconds, and returns a rollout of one turn; every second one of a group is
    resolved."""
    took = seconds_of(request.prompt, request.sample)
    time.sleep(took)
    good = request.sample % 2 == 0
    sampled = tuple(range(3, 3 + TURN_TOKENS))
    turn = TokenTurn((3, 4, 5), sampled, (-4.0,) * TURN_TOKENS, "stop", ((0, version),))
    grade = {"status": "resolved" if good else "unresolved", "resolved": good}
    trajectory = {"outcome": "submitted", "messages": [], "model_patch": ""}
    return RolledOut(request, trajectory, grade, (turn,), {"run": took, "grade": 0.0})


def pace_places() -> None:
    """Replaces the rollouts of this process by paced rollouts."""

    def roll_out(self: Place, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        done = journal.result(request) or paced(request, "0")
        journal.add_result(done)
        return done

    Place.roll_out = roll_out  # type: ignore[method-assign]


def kept_in(journal: Journal, request: RolloutRequest, version: str) -> RolledOut:
    """A paced rollout, stored in a journal as real rollouts are."""
    done = paced(request, version)
    StepJournal(journal).add_result(done)
    return done
