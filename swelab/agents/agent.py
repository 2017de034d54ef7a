"""The interface of agents. An agent lets a policy work on a task with a prompt, tools and a parser.

To add an agent, write a class like `mini.Mini`, an entry in AGENTS, and its kind of recipe in
configs/kinds/scaffold.py. A program with its own loop and sandboxes (SWE-agent) is not an agent: it gets a
whole shard (`swelab.rollouts.swe_agent_rollouts`).
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
"""Agents by the value of `agent:` in a scaffold's recipe."""


class Agent(Protocol):
    """A loop in which a policy works on a task."""

    def complete(self, scaffold: Any) -> MiniLoop:
        """The settings for `form` and `attempt`, from a recipe of the agent's kind. Raises InputError."""
        ...

    def form(self, scaffold: MiniLoop) -> Form:
        """The tools that the agent offers to a model, and the parser of the model's answers."""
        ...

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: MiniLoop) -> Rollout:
        """One policy's attempt at one task.

        `model` follows mini-swe-agent's Model protocol; `sandbox` holds the checkout whose only commit is
        `base`. Losses and pauses become outcomes, and no act of a model raises an error.
        """
        ...


def loop_of(scaffold: Scaffold) -> MiniLoop:
    """The loop settings that a recipe describes. Raises InputError."""
    return open_agent(scaffold.agent).complete(scaffold)


def step_limit_of(scaffold: Scaffold) -> int:
    """Maximum number of model calls of a rollout; 0 for no limit. Raises InputError."""
    return scaffold.call_limit if scaffold.agent == "swe-agent" else loop_of(scaffold).step_limit


def open_agent(name: str) -> Agent:
    """The agent of this name. Raises InputError."""
    if name not in AGENTS:
        raise InputError(f"no agent is called {name!r}", expected=" or ".join(AGENTS))
    module, _, made = AGENTS[name].partition(":")
    agent: Agent = getattr(import_module(module), made)()
    return agent
