"""swebench's registry of log parsers.

The package around them imports container engines, a cloud's client and pandas, which takes a second of CPU
time in every process that judges a log; the parsers need none of it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable

_PACKAGE = "swebench.harness"


def registry() -> dict[str, Callable[..., dict[str, str]]]:
    """Parser by name, as swebench's registry holds them (pinned in `envs/`)."""
    if _PACKAGE in sys.modules:
        return importlib.import_module(f"{_PACKAGE}.log_parsers").PARSER_REGISTRY
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    # A package that was never executed: its modules are found, and who needs the whole of it still gets it.
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{_PACKAGE}.log_parsers").PARSER_REGISTRY
    finally:
        del sys.modules[_PACKAGE]
