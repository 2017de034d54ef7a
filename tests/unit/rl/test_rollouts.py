"""The parts of a rollout that survive a kill."""

from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records.task_records import Task
from swelab.rl.rewards import zero_or_one
from swelab.rl.rollouts import RolledOut, RolloutRequest, StepJournal, read_turn, write_turn

ASKED = RolloutRequest(4, 2, Task.of(Task.of({"instance_id": "x"})))
TURNS = tuple(
    TokenTurn((1, 2, n), (3, n), (-0.1234567890123456, -2e-9), "stop", ((0, "5"),)) for n in range(3)
)


def done(outcome="submitted", status="resolved", resolved=True):
    trajectory = {"outcome": outcome, "messages": [{"role": "user", "content": "\udcff"}]}
    return RolledOut(
        ASKED, trajectory, {"status": status, "resolved": resolved}, TURNS, {"run": 1, "grade": 2}
    )


def test_turns_and_results_are_read_back_as_they_were(tmp_path):
    assert read_turn(write_turn(TURNS[0])) == TURNS[0]
    with Journal(tmp_path / "step.jsonl") as journal:
        kept = StepJournal(journal)
        for number, turn in enumerate(TURNS[:2]):
            kept.add_turn(ASKED, number, turn)
        assert kept.result(ASKED) is None
    with Journal(tmp_path / "step.jsonl") as journal:
        kept = StepJournal(journal)
        assert kept.turns(ASKED) == list(TURNS[:2]) and kept.turns(RolloutRequest(4, 3, ASKED.task)) == []
        kept.add_result(done())
    with Journal(tmp_path / "step.jsonl") as journal:
        assert StepJournal(journal).result(ASKED) == done()


def test_what_a_group_is_told():
    attempt = done().attempt(zero_or_one)
    assert (attempt.end, attempt.grade, attempt.reward) == (RolloutEnd.SUBMITTED, GradeEnd.RESOLVED, 1.0)
    assert attempt.trained_tokens == 6 and not attempt.lost
    for lost in (done("sandbox_lost", "infra_error", False), done("submitted", "infra_error", False)):
        assert lost.attempt(zero_or_one).lost and lost.attempt(zero_or_one).reward is None
