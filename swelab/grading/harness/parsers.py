"""Loads swebench's registry of log parsers.

The swebench package imports clients of container engines and of a cloud, and pandas. The parsers do not need
these imports, which would cost each process that judges a log a second of CPU time.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

_PACKAGE = "swebench.harness"


Parsers = dict[str, Callable[..., dict[str, str]]]


def registry() -> Parsers:
    """Returns the parsers of swebench's registry (pinned in `envs/`) by name."""
    found: Parsers = module("log_parsers").PARSER_REGISTRY
    return found


def module(name: str) -> Any:
    """Returns a module of swebench's harness, loaded without the imports of the package around it."""
    if _PACKAGE in sys.modules:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    # The package is registered without being executed: its modules can be imported, and other code can still
    # load the whole package.
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    finally:
        del sys.modules[_PACKAGE]
