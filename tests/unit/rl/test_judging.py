"""Votes on the steps of a rollout: which are requested, when, and what happens if a judge fails."""

import threading

import pytest

from swelab.models import ModelLost
from swelab.models.billing.paid_turns import PaidRun
from swelab.records import Fault
from swelab.rl.judging import Judge, RolloutVotes, steps_of


def said(command, number):
    actions = [{"command": command}] if command else []
    return {"role": "assistant", "content": f"answer {number}", "extra": {"actions": actions}}


def heard(output, code=0):
    return {"role": "user", "content": output, "extra": {"returncode": code}}


FIRST = [{"role": "system", "content": "s"}, {"role": "user", "content": "mend it"}]
TWO = [*FIRST, said("ls", 0), heard("a.py"), said("", 1), {"role": "user", "content": "One command, please."}]
THREE = [*TWO, said("cat a.py", 2), {"role": "exit", "content": "Submitted"}]


class Model:
    """A model that answers a question with `answer`."""

    def __init__(self, answer):
        self.answer = answer

    def query(self, messages):
        told = self.answer(messages[1]["content"])
        return {"content": told, "extra": {"usage": {"prompt_tokens": 10}, "cost": 0.002}}

    def close(self):
        pass


@pytest.fixture
def judge_of(tmp_path):
    made = []

    def make(answer, votes=2):
        paid = PaidRun(tmp_path, lambda task: task.instance_id)
        made.append(Judge(lambda task: Model(answer), paid, votes, workers=4))
        return made[-1]

    yield make
    for judge in made:
        judge.pool.shutdown()


def test_steps_are_the_answers_of_the_policy():
    first, second, third = steps_of(THREE)
    assert (first.command, first.returncode, first.output) == ("ls", 0, "a.py")
    assert (second.command, second.returncode, second.output) == ("", None, "One command, please.")
    assert (third.answer, third.output) == ("answer 2", "Submitted")
    assert steps_of(THREE[:-1]) == [first, second], "a step without a result is none yet"


def test_an_empty_answer_is_a_step_of_its_own(judge_of):
    """Where actions are tool calls, it leaves no message of its own. Later scores keep their place."""
    reply = {"role": "user", "content": "Call a tool.", "extra": {"interrupt_type": "FormatError"}}
    empty_twice = [*FIRST, reply, reply, said("ls", 0), heard("a.py"), reply, said("pwd", 1), heard("/a")]
    steps = steps_of(empty_twice)
    assert [step.command for step in steps] == ["", "", "ls", "", "pwd"]
    assert (steps[0].answer, steps[0].returncode, steps[0].output) == ("", None, "Call a tool.")
    malformed = [*FIRST, said("", 0), reply, said("ls", 1), heard("a.py")]
    assert [step.command for step in steps_of(malformed)] == ["", "ls"]


def test_a_vote_is_on_the_step_that_it_is_asked_about(judge_of):
    def answer(question):
        wrong = "Step 2, the one to judge" in question
        return r"\boxed{-1}" if wrong else r"\boxed{+1}"

    judged = RolloutVotes(judge_of(answer), "a", "It fails.")
    assert judged.votes(THREE) == ((1, 1), (-1, -1), (1, 1))


def test_votes_are_asked_for_while_the_rollout_goes_on(judge_of):
    asked, lock = [], threading.Lock()

    def answer(question):
        with lock:
            asked.append(question)
        return r"\boxed{+1}"

    judged = RolloutVotes(judge_of(answer, votes=1), "a", "It fails.")
    for messages in (FIRST, TWO[:3], TWO[:4], TWO[:4], TWO):
        judged.ask_votes(messages)
    judged.judge.pool.submit(int).result()
    assert judged.votes(TWO) == ((1,), (1,)) and len(asked) == 2
    assert judged.votes(THREE) == ((1,), (1,), (1,)) and len(asked) == 3


def test_a_judge_that_fails_or_babbles_gives_no_vote_and_is_counted(judge_of):
    def answer(question):
        if "Step 1, the one" in question:
            raise ModelLost("no answer")
        return "nonsense" if "Step 2, the one" in question else r"\boxed{-1}"

    judge = judge_of(answer)
    assert RolloutVotes(judge, "a", "It fails.").votes(THREE) == ((None, None), (None, None), (-1, -1))
    spent = judge.take_usage()
    assert (spent["calls"], spent["lost"], spent["unreadable"]) == (6, 2, 2)
    assert spent["prompt_tokens"] == 40 and spent["dollars"] == pytest.approx(0.008)
    assert judge.take_usage() == {}


def test_a_fault_that_does_not_pass_is_raised(judge_of):
    def answer(question):
        raise Fault("the key is refused")

    with pytest.raises(Fault, match="refused"):
        RolloutVotes(judge_of(answer), "a", "It fails.").votes(TWO)


def test_a_rollout_that_begins_again_is_asked_about_anew(judge_of):
    judged = RolloutVotes(judge_of(lambda question: r"\boxed{+1}"), "a", "It fails.")
    judged.ask_votes(TWO)
    assert judged.begin().votes(TWO[:4]) == ((1, 1),)
