"""Runs scripts with other programs' names. Lists slime's options and SWE-RL's variables in them."""

import importlib.util
import os
import re
import sys

from tests.conftest import ROOT, run_program


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"swe-rl/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_names, _layout = _loaded("rl_names"), _loaded("rl_layout")
NONE, add_options = _names.NONE, _names.add_options
VARIABLES = [*_names.VARIABLES, *_layout.LAYOUT]
OURS = ("SWE", "HF_", "EXPORT_", "SAVE_", "PROMPT_", "CUDA_", "SBATCH_", "SLURM_")
"""How variables begin that would change a script."""


def missing(names, page):
    """Returns the names that do not occur as whole words in a page."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)]


def run_script(path, *words, cwd=None, **variables):
    """Runs a script of this repository as its user does. path: from the root of the repository."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    told |= {"PYTHON_BIN": sys.executable, "ENV_SWE": "/dev/null"}
    told |= {name: str(value) for name, value in variables.items()}
    return run_program([ROOT / path, *map(str, words)], cwd=cwd, env=told)


def train(trainer, path, *words, **variables):
    """Runs a training script with the recipes beside `trainer`, which stands in for Python."""
    given = {"PYTHON_BIN": trainer, "EXPORT_ROOT": trainer.parent / "out"} | variables
    return run_script(path, "--configs", trainer.parent / "configs", *words, **given)
