"""Parses names of tests: pytest's node ids, unittest's names and bare names."""

import re
from collections.abc import Mapping

_UNITTEST = re.compile(r"(\w+) \(([\w.]+)\)")


def base_of(test: str) -> str:
    """Returns a node id without its parameters."""
    path, separator, rest = test.partition("::")
    return path + separator + rest.split("[")[0]


def parameters_of(test: str) -> str:
    """Returns the parameters of a node id with their brackets, or ""."""
    rest = test.partition("::")[2]
    return rest[len(rest.split("[")[0]) :]


def case_of(test: str, base: str, cases: Mapping[tuple[str, str], int]) -> int:
    """Returns the number of a test's case in `cases`, which maps (base, parameters) to numbers.

    Test ids may be truncated at a space. Returns -1 if no case matches, or if several match a truncated id.
    """
    parameters = parameters_of(test)
    if parameters.endswith("]") or not parameters:
        return cases.get((base, parameters), -1)
    fits = [case for (own, each), case in cases.items() if own == base and each.startswith(parameters + " ")]
    return fits[0] if len(fits) == 1 else -1


def locate(test: str, sources: Mapping[str, str]) -> str | None:
    """Returns the node id of a test in one of the sources. Also accepts `test_x (module.Class)` and a bare
    name.

    Returns None if no source matches, or more than one.
    """
    path, separator, rest = test.partition("::")
    if separator:
        matches = [each for each in sources if each == path or each.endswith("/" + path)]
        return f"{matches[0]}::{rest}" if len(matches) == 1 or path in matches[:1] else None
    if match := _UNITTEST.fullmatch(test):
        module, _, owner = match[2].rpartition(".")
        matches = [each for each in sources if f"/{each}".endswith(f"/{module.replace('.', '/')}.py")]
        return f"{matches[0]}::{owner}::{match[1]}" if len(matches) == 1 else None
    if test.isidentifier():
        matches = [each for each, text in sources.items() if re.search(rf"^def {test}\(", text, re.MULTILINE)]
        return f"{matches[0]}::{test}" if len(matches) == 1 else None
    return None
