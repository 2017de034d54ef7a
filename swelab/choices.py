"""The values among which recipes and commands choose: one table for each kind.

An entry holds all that belongs to a value: its meaning, its other usual names, and the place of its code.
Recipes, help texts, documentation and tests take their lists from here, so a new value is one entry and its
code. The code is imported at its first use. So every room may import this module. `python -m
scripts.write_schemas` writes the table in `docs/rl.md`.
"""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """A value. meaning: words for the description of the key. code: "module:name", below swelab. aliases:
    other names under which a recipe may give the value."""

    meaning: str
    code: str = ""
    aliases: tuple[str, ...] = ()

    def load(self) -> Any:
        """Returns the object that `code` names."""
        return load(self.code)


@dataclass(frozen=True)
class Estimator(Choice):
    """An estimator of advantages. per_step: whether the code takes the judge's scores of steps, and not only
    one reward for each rollout."""

    per_step: bool = False


@dataclass(frozen=True)
class SandboxBackend(Choice):
    """A kind of sandbox. code: the class of its backend. puller: the class that obtains images. keeps_files:
    whether pulled images are files in a folder of this machine. needs_image: whether tasks without an image
    of their own need the sandbox image. may_have_scripts: whether its sandboxes may have the folders of
    scripts that judge. advice: what to do if it does not work."""

    puller: str = ""
    keeps_files: bool = True
    needs_image: bool = False
    may_have_scripts: bool = False
    advice: tuple[str, ...] = ()


def load(code: str) -> Any:
    """Returns the object that `code` ("module:name", below swelab) names."""
    module, _, name = code.partition(":")
    return getattr(importlib.import_module(f"swelab.{module}"), name)


ADVANTAGES: dict[str, Estimator] = {
    "grpo": Estimator(
        "GRPO: the reward minus the group's mean, divided by the group's deviation", "rl.advantages:grpo"
    ),
    "grpo-unscaled": Estimator(
        "Dr. GRPO: the reward minus the group's mean", "rl.advantages:grpo_unscaled", ("dr-grpo",)
    ),
    "leave-one-out": Estimator(
        "RLOO: the reward minus the mean of the other rollouts", "rl.advantages:leave_one_out", ("rloo",)
    ),
    "length-weighted": Estimator(
        "the reward minus the group's mean reward per token", "rl.advantages:length_weighted"
    ),
    "step-wise": Estimator(
        "for each step, from the outcome and the judge's score of the step",
        "rl.advantages:step_wise",
        ("step_wise",),
        per_step=True,
    ),
}
ROW_STYLES: dict[str, Choice] = {
    "text": Choice("what the policy wrote"),
    "xml": Choice("each action as an XML function of SWE-agent", "sft.rows.styles:XML"),
    "ticks": Choice("each action as a fenced command", "sft.rows.styles:TICKS"),
    "tool": Choice("each action as a tool call", "sft.rows.styles:TOOL"),
}
"""The code of a style is its `RowStyle`. The style without code keeps the text."""
CALL_FORMS: dict[str, Choice] = {
    "qwen": Choice("the last <tool_call> with JSON in the text, or the call that the server parsed"),
    "api": Choice("the tool calls of the API"),
    "xml": Choice("<function=NAME> in the text"),
}
BACKENDS: dict[str, SandboxBackend] = {
    "bubblewrap": SandboxBackend(
        "namespaces on this machine, without a daemon",
        "sandbox.bubblewrap:BubblewrapBackend",
        puller="images.image_store:ImageStore",
        may_have_scripts=True,
        advice=("make setup says what is missing; or set backend: docker in configs/config.yaml",),
    ),
    "docker": SandboxBackend(
        "containers of the engine at DOCKER_HOST",
        "sandbox.docker_backend:DockerBackend",
        puller="images.engine_images:EnginePuller",
        keeps_files=False,
        needs_image=True,
        may_have_scripts=True,
        advice=("start the engine, or set DOCKER_HOST; or set backend: bubblewrap",),
    ),
    "apptainer": SandboxBackend(
        "containers of the program apptainer",
        "sandbox.apptainer:ApptainerBackend",
        puller="images.pull:ApptainerPuller",
        needs_image=True,
    ),
    "remote": SandboxBackend(
        "containers on the hosts of a pool (docs/pool.md)",
        "sandbox.remote:RemoteBackend",
        puller="images.pull:RemotePuller",
        keeps_files=False,
    ),
}
TABLES: dict[str, Mapping[str, Choice]] = {
    "ADVANTAGES": ADVANTAGES,
    "BACKENDS": BACKENDS,
    "CALL_FORMS": CALL_FORMS,
    "ROW_STYLES": ROW_STYLES,
}
_TABLE = re.compile(r"<!-- swelab\.choices (?P<name>\w+) -->\n(?:\|.*\n)*")


def meanings(table: Mapping[str, Choice]) -> str:
    """Returns the values of a table with their meanings and other names, as one sentence."""
    return "; ".join(
        f"{name}: {each.meaning}" + (f" (also {', '.join(each.aliases)})" if each.aliases else "")
        for name, each in table.items()
    )


def values_with_code(table: Mapping[str, Choice]) -> list[str]:
    """Returns the values of a table that have code."""
    return [name for name, each in table.items() if each.code]


def canonical(table: Mapping[str, Choice], name: Any) -> Any:
    """Returns the value that an alias names, or `name` unchanged if it is no alias."""
    return next((value for value, each in table.items() if name in each.aliases), name)


def with_tables(text: str) -> str:
    """Returns a documentation page with its tables of values updated from this module."""
    return _TABLE.sub(_table, text)


def _table(match: re.Match[str]) -> str:
    rows = ["| value | meaning | other names |", "|---|---|---|"]
    for name, each in TABLES[match["name"]].items():
        rows.append(f"| `{name}` | {each.meaning} | {', '.join(f'`{alias}`' for alias in each.aliases)} |")
    return "\n".join([f"<!-- swelab.choices {match['name']} -->", *rows, ""])
