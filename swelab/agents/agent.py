"""The interface of agents. An agent lets a policy work on a task with a prompt, tools and a parser.

To add an agent, write a class like `mini.Mini`, an entry in AGENTS, and its recipe class in
configs/kinds/scaffold.py. A program with its own loop and sandboxes, such as SWE-agent, is not an agent. Such
a program gets a whole shard (`swelab.rollouts.swe_agent_rollouts`).
"""

from importlib import import_module
from typing import Any, Protocol

from swelab.configs.kinds.scaffold import MiniLoop, Scaffold
from swelab.models.chat.turn_form import Form
from swelab.records import InputError
from swelab.records.attempt_records import Rollout
from swelab.records.task_records import Task
from swelab.sandbox import Sandbox

AGENTS = {
    "mini": "swelab.agents.mini:Mini",
    "mini-swebench": "swelab.agents.mini_benchmark:MiniBenchmark",
    "debugger": "swelab.agents.debugger.debugger:Debugger",
}
"""Maps the value of `agent:` in a scaffold's recipe to the agent's class."""


class Agent(Protocol):
    """A loop in which a policy works on a task."""

    def complete(self, scaffold: Any) -> MiniLoop:
        """Returns the settings for `form` and `attempt`, from a recipe of the agent's kind. Raises
        InputError."""
        ...

    def form(self, scaffold: MiniLoop) -> Form:
        """Returns the tools that the agent offers to a model, with the parser of the model's answers."""
        ...

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: MiniLoop) -> Rollout:
        """Lets a policy attempt a task, and returns the rollout.

        model: follows mini-swe-agent's Model protocol. sandbox: contains the checkout, whose only commit is
        `base`. A lost sandbox or model, or a spent budget, is returned as an outcome. Model output never
        raises an error.
        """
        ...


def loop_of(scaffold: Scaffold) -> MiniLoop:
    """Returns the loop settings that a recipe describes. Raises InputError."""
    return open_agent(scaffold.agent).complete(scaffold)


def step_limit_of(scaffold: Scaffold) -> int:
    """Returns the maximum number of model calls of a rollout, or 0 for no limit. Raises InputError."""
    return scaffold.call_limit if scaffold.agent == "swe-agent" else loop_of(scaffold).step_limit


def open_agent(name: str) -> Agent:
    """Returns the agent called `name`. Raises InputError."""
    if name not in AGENTS:
        raise InputError(f"no agent is called {name!r}", expected=" or ".join(AGENTS))
    module, _, made = AGENTS[name].partition(":")
    agent: Agent = getattr(import_module(module), made)()
    return agent
