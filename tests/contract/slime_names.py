"""Lists slime's options and SWE-RL's variables in the training scripts, and those that a page lacks."""

import importlib.util
import re
import sys

from tests.conftest import ROOT


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"swe-rl/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_names, _layout = _loaded("rl_names"), _loaded("rl_layout")
NONE, add_options = _names.NONE, _names.add_options
VARIABLES = [*_names.VARIABLES, *_layout.LAYOUT]


def missing(names, page):
    """Returns the names that do not occur as whole words in a page."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)]
