"""Replaces real rollouts by ones that cost nothing, or that sleep for a time with a long tail.

The embedded engine uses them after `pace_places`, and verl through the agent loop `rl_verl_loop.PacedLoop`.
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
    """Returns the seconds that a rollout takes."""
    if prompt < FREE:
        return 0.0
    return MEDIAN_SECONDS * random.Random(f"{prompt} {sample}").lognormvariate(0, TAIL)


def paced_rollout(request: RolloutRequest, version: str) -> RolledOut:
    """Sleeps for a rollout's seconds.

    Returns a rollout of one turn, which is resolved if its sample number is even.
    """
    took = seconds_of(request.prompt, request.sample)
    time.sleep(took)
    good = request.sample % 2 == 0
    sampled = tuple(range(3, 3 + TURN_TOKENS))
    turn = TokenTurn((3, 4, 5), sampled, (-4.0,) * TURN_TOKENS, "stop", ((0, version),))
    grade = {"status": "resolved" if good else "unresolved", "resolved": good}
    trajectory = {"outcome": "submitted", "messages": [], "model_patch": ""}
    return RolledOut(request, trajectory, grade, (turn,), {"run": took, "grade": 0.0})


def pace_places() -> None:
    """Replaces this process's rollouts by paced rollouts."""

    def roll_out(self: Place, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        done = journal.result(request) or paced_rollout(request, "0")
        journal.add_result(done)
        return done

    Place.roll_out = roll_out  # type: ignore[method-assign]


def run_in_journal(journal: Journal, request: RolloutRequest, version: str) -> RolledOut:
    """Makes a paced rollout, and stores it in a journal as a real rollout."""
    done = paced_rollout(request, version)
    StepJournal(journal).add_result(done)
    return done
