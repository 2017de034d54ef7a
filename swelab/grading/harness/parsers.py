"""swebench's registry of log parsers.

Their package imports clients of container engines and of a cloud, and pandas. The parsers need none of these,
but the imports cost each process that judges a log a second of CPU time.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

_PACKAGE = "swebench.harness"


Parsers = dict[str, Callable[..., dict[str, str]]]


def registry() -> Parsers:
    """Parser by name, as swebench's registry holds them (pinned in `envs/`)."""
    found: Parsers = module("log_parsers").PARSER_REGISTRY
    return found


def module(name: str) -> Any:
    """A module of swebench's harness, loaded without the imports of the package around it."""
    if _PACKAGE in sys.modules:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    # We register the package without executing it: its modules can be imported, and other code can still load
    # all of it.
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    finally:
        del sys.modules[_PACKAGE]
