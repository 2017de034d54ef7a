"""Runs mini-swe-agent with its benchmark settings: the prompts and limits of the installed package.

The settings are read from the package's `config/benchmarks/`, so they are exactly those of the pinned
version. They become a scaffold of kind `mini`. docs/mini.md lists the differences and their reasons.
"""

from importlib.util import find_spec
from pathlib import Path

from swelab.agents.mini import Mini
from swelab.configs import recipes
from swelab.configs.kinds import RecipeKind
from swelab.configs.kinds.scaffold import MiniLoop, MiniSwebenchScaffold
from swelab.records import InputError

LOOP = RecipeKind[MiniLoop]("scaffold", "scaffolds", MiniLoop, str(MiniLoop.__doc__))
FILES = {"text": "swebench_backticks.yaml", "tool": "swebench.yaml"}
ACTION = r"```mswea_bash_command\s*\n(.*?)\n```"
"""The default pattern of the package's own text model."""
WHOLE = 1 << 30
"""Limit of characters that no observation reaches. The package's template already shortens observations."""
TESTBED = "/opt/miniconda3/envs/testbed"
PRELUDE = (
    f"[ ! -d {TESTBED}/bin ] || "
    f"export PATH={TESTBED}/bin:$PATH CONDA_PREFIX={TESTBED} CONDA_DEFAULT_ENV=testbed"
)


class MiniBenchmark(Mini):
    """See `agent.Agent`."""

    def complete(self, scaffold: MiniSwebenchScaffold) -> MiniLoop:
        """See `benchmark_loop`."""
        return benchmark_loop(scaffold)


def benchmark_loop(scaffold: MiniSwebenchScaffold) -> MiniLoop:
    """Returns the loop settings that a recipe of kind `mini-swebench` describes.

    Raises InputError if the package is not installed, or if its file lacks a setting of version 2.4. Also
    raises InputError if the recipe sets a fence although the form has no fences.
    """
    if scaffold.form == "tool" and scaffold.other_fence:
        raise InputError("other_fence with form: tool", "scaffold recipe", "form: text, which has fences")
    path = package_file(scaffold.form)
    found = recipes.read_yaml(path)
    try:
        agent, model, environment = found["agent"], found["model"], found["environment"]
        variables = {name: str(value) for name, value in environment["env"].items() if name != "BASH_ENV"}
        settings = {
            "agent": "mini",
            **{name: agent[name] for name in ("system_template", "instance_template")},
            **{name: model[name] for name in ("observation_template", "format_error_template")},
            **{name: agent[name] for name in ("step_limit", "cost_limit")},
            "limits": {"wall_seconds": environment["timeout"], **scaffold.limits.plain()},
        }
    except (KeyError, TypeError, AttributeError) as error:
        expected = "the benchmark configuration of mini-swe-agent 2.4"
        raise InputError(f"has no {error}", path, expected) from None
    names = ("step_limit", "cost_limit", "wall_seconds", "other_fence")
    own = {name: getattr(scaffold, name) for name in names}
    settings |= {name: value for name, value in own.items() if value is not None}
    settings |= {"action_regex": ACTION, "max_observation_chars": WHOLE, "prelude": PRELUDE}
    settings |= {"environment": variables, "submission": "printed"}
    settings |= {"calls": "bash"} if scaffold.form == "tool" else {}
    return recipes.complete(LOOP, settings, path)


def package_file(form: str) -> Path:
    """Returns the path of the package's benchmark configuration for a form. Raises InputError."""
    spec = find_spec("minisweagent")
    places = list(spec.submodule_search_locations or []) if spec else []
    path = Path(places[0], "config", "benchmarks", FILES[form]) if places else Path("minisweagent")
    if not path.is_file():
        raise InputError("no such file", path, "mini-swe-agent as envs/cpu.txt pins it")
    return path
