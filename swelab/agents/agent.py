"""The seam of agents: what lets a policy act on a task by a prompt, tools and a parser.

A further agent is a file with a class like `mini.Mini`, an entry in AGENTS, and its kind of recipe in
configs/kinds/scaffold.py. A program with a loop and sandboxes of its own (SWE-agent) is none: it is given
a whole shard (`swelab.rollouts.swe_agent_rollouts`).
"""

from importlib import import_module
from typing import Any, Protocol

from swelab.models.chat.turn_form import Form
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.sandbox import Sandbox

AGENTS = {
    "mini": "swelab.agents.mini:Mini",
    "mini-swebench": "swelab.agents.mini_benchmark:MiniBenchmark",
}
"""Agents by the `agent:` of a scaffold."""


class Agent(Protocol):
    """A loop in which a policy works on a task."""

    def complete(self, scaffold: Record) -> Record:
        """The scaffold that a recipe stands for: all that `form` and `attempt` read. Raises InputError."""
        ...

    def form(self, scaffold: Record) -> Form:
        """The tools that a model is offered, and how its answers are understood."""
        ...

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: Record) -> Record:
        """One policy's attempt at one task, as a trajectory record without policy and subset.

        `model` follows mini-swe-agent's Model protocol; `sandbox` holds the checkout whose only commit is
        `base`. What is lost or paused becomes an outcome; nothing that a model does raises.
        """
        ...


def open_agent(scaffold: Record) -> Agent:
    """The agent of a scaffold. Raises InputError."""
    name = scaffold.get("agent", "mini")
    if name not in AGENTS:
        raise InputError(f"no agent is called {name!r}", expected=" or ".join(AGENTS))
    module, _, made = AGENTS[name].partition(":")
    agent: Agent = getattr(import_module(module), made)()
    return agent
