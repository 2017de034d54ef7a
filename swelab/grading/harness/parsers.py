"""swebench's registry of log parsers.

The package around them imports container engines, a cloud's client and pandas, which takes a second of CPU
time in every process that judges a log; the parsers need none of it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable

_PACKAGE = "swebench.harness"


Parsers = dict[str, Callable[..., dict[str, str]]]


def registry() -> Parsers:
    """Parser by name, as swebench's registry holds them (pinned in `envs/`)."""
    if _PACKAGE in sys.modules:
        return _registry()
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    # A package that was never executed: its modules are found, and who needs the whole of it still gets it.
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        return _registry()
    finally:
        del sys.modules[_PACKAGE]


def _registry() -> Parsers:
    found: Parsers = importlib.import_module(f"{_PACKAGE}.log_parsers").PARSER_REGISTRY
    return found
