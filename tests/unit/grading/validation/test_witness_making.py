"""Gold runs of a witness question on a machine that is too slow for them."""

import pytest

from swelab.grading.harness.question_run import Answer
from swelab.grading.harness.spec import RunSpec
from swelab.grading.validation.witness_making import TaskQuestion
from swelab.records.task_records import Task
from swelab.witness.forming import form

SOURCE = "from pkg import f\n\n\ndef test_f():\n    assert f() == 5\n"


class Busy:
    """Ends the first runs as the test says, and the others well."""

    def __init__(self, *ends):
        self.ends, self.runs = list(ends), 0

    def ask(self, *asked):
        self.runs += 1
        return Answer(b"values", self.ends.pop(0) if self.ends else "")


@pytest.mark.parametrize(
    "ends, runs, ended",
    [((), 1, ""), (("wall",), 2, ""), (("wall", "wall"), 2, "wall"), (("cpu",), 1, "cpu")],
)
def test_a_run_that_meets_its_time_limit_is_made_once_more(ends, runs, ended):
    test = "tests/test_f.py::test_f"
    question = form({"tests/test_f.py": SOURCE}, [test], roots=["pkg"])
    asked = TaskQuestion(Task.of({}), RunSpec("i", (test,), (), test_cmd="pytest"), "", question, [], [])
    busy = Busy(*ends)
    assert asked.ask(busy).ended == ended and busy.runs == runs
