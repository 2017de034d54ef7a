"""Refuses tests of the gate that a clock decides: `python -m tests.luck`, a part of `make check`.

In a test that is not marked full no assertion holds what a clock says or how much was used, and nothing
sleeps: a test waits for an event. Prints a line for each fault; exit code 1 if there is one.
"""

import ast
import sys
from pathlib import Path

CLOCKS = {
    *("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns"),
    *("thread_time", "thread_time_ns", "time", "time_ns", "getrusage", "ru_maxrss", "ru_utime", "ru_stime"),
}


def attributes(node: ast.AST) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_full(test: ast.AST) -> bool:
    """Returns whether a function has the mark full. Assignments to pytestmark are read in the same way."""
    marks = [test.value] if isinstance(test, ast.Assign) else getattr(test, "decorator_list", [])
    return any("full" in attributes(mark) for mark in marks)


def faults(test: ast.AST):
    """(line, what is wrong) for each fault of a test."""
    nodes, timed = list(ast.walk(test)), set()
    for node in nodes:
        if isinstance(node, ast.Assign) and attributes(node.value) & CLOCKS:
            timed |= set().union(*map(names, node.targets))
    for node in nodes:
        if isinstance(node, ast.Call) and "sleep" in attributes(node.func) | names(node.func):
            yield node.lineno, "sleeps: wait for an event"
        if isinstance(node, ast.Assert) and (attributes(node.test) & CLOCKS or names(node.test) & timed):
            yield node.lineno, "asserts what a clock says: count work"


def main() -> None:
    """Reads all files in tests/."""
    found = 0
    for path in sorted(Path("tests").rglob("*.py")):
        body = ast.parse(path.read_text()).body
        if any(isinstance(node, ast.Assign) and is_full(node) for node in body):
            continue
        for test in body:
            if getattr(test, "name", "").startswith("test_") and not is_full(test):
                for line, fault in faults(test):
                    print(f"{path}:{line}: {test.name} {fault}, or mark it full")
                    found += 1
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
