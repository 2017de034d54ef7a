"""Loaded by every Python of a graded run before anything of the repository: `sitecustomize` of the
guard's folder.

In the test runner's process it imports the runner's modules while the repository is not on the path, so
that no file of the repository can stand in for them, and starts the observer.
"""

import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OBSERVER = "@OBSERVER@"


def command_words():
    """This process's command line as text."""
    try:
        with open("/proc/self/cmdline", "rb") as stream:
            return [os.fsdecode(word) for word in stream.read().split(b"\0")]
    except OSError:
        return []


def own_customization():
    """Imports the sitecustomize that this environment would have had without the guard."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    guards = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = guards


def load_runner():
    """Imports the runner and the observer from their own places; the observer's folder leaves the path
    again."""
    for name in ("unittest", "unittest.case", "traceback", "pytest"):
        importlib.import_module(name)
    for name in importlib.import_module("_pytest.config").default_plugins:
        try:
            importlib.import_module("_pytest." + name)
        except Exception:  # a part that cannot be imported here is not used either
            continue
    sys.path.insert(0, HERE)
    try:
        importlib.import_module(OBSERVER)
    finally:
        sys.path.remove(HERE)


own_customization()
if any(os.path.basename(word) in ("pytest", "py.test") for word in command_words()):
    try:
        load_runner()
    except ImportError:
        sys.path.append(HERE)
else:
    sys.path.append(HERE)
