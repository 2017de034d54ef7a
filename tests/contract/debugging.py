"""A policy that makes given calls of the debugger's tools, for tests of that agent."""

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.models.chat.text_model import TextModel
from swelab.rollouts.rollout_stage import attempt_task
from tests.conftest import ROOT

RECIPE = ROOT / "configs/scaffolds/debugger-bash.yaml"
FIX = {"path": "calc/core.py", "start": 2, "new_code": "    return a + b"}


class Played(TextModel):
    """A model that makes calls, given as (thought, tool, arguments).

    A plain text is a turn without a call.
    """

    timed = False

    def __init__(self, scaffold, calls):
        super().__init__(scaffold, "played")
        self.calls = iter(calls)

    def query(self, messages, **_):
        call = next(self.calls)
        if isinstance(call, str):
            return self.reply(call)
        thought, tool, arguments = call if len(call) == 3 else ("", *call)
        return self.reply(*self.form.format_call(thought, tool, arguments, len(messages)))


def recipe(**changes):
    told = recipes.read_yaml(RECIPE) | changes
    return loop_of(recipes.complete(SCAFFOLD, told, "test"))


def rollout(place, loop, model):
    """Runs a rollout in a `place_of_rollouts`. model: a function that makes the model."""
    task, store, backend, scratch = place
    return attempt_task(task, lambda task: model(), store, backend, loop, scratch)


def seen(record):
    """Returns the observations that followed the policy's turns."""
    return [message["content"] for message in record["messages"] if message["role"] in ("tool", "user")][1:]
