"""The guard's `sitecustomize`, which every Python process of a graded run loads before any repository code.

In the test runner's process it imports the runner's modules while the repository is not on the path. So no
file of the repository can replace these modules. Then it starts the observer.
"""

import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OBSERVER = "@OBSERVER@"
CHANNEL = "@CHANNEL@"
RUNNERS = ("pytest", "py.test")


def own_customization():
    """Imports the sitecustomize that this environment would have had without the guard."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    guards = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = guards


def starts_runner(words):
    """Returns whether a Python command line starts pytest, as a script or with -m.

    False for `pip install pytest`.
    """
    for place in range(1, len(words)):
        if os.path.basename(words[place]) in RUNNERS:
            before = [n for n in range(1, place) if words[n - 1] not in ("-W", "-X")]
            return words[place - 1] == "-m" or all(words[n].startswith("-") for n in before)
    return False


def load_runner():
    """Imports the test runner while the repository is not on the path. Returns False if that fails."""
    try:
        for name in ("unittest", "unittest.case", "traceback", "pytest"):
            importlib.import_module(name)
        plugins = importlib.import_module("_pytest.config").default_plugins
    except Exception:  # the process that starts the tests will get the same error
        return False
    for name in plugins:
        try:
            importlib.import_module("_pytest." + name)
        except Exception:  # the run does not use a part that cannot be imported here
            continue
    return True


def load_observer(channel):
    """Imports the observer. If that fails, reports the error as the guard's own."""
    try:
        importlib.import_module(OBSERVER)
    except Exception as error:
        channel.note_at_start(error)
        raise


def start():
    """Starts the observer in a test runner's process.

    In other processes the guard's folder stays at the end of the path, since they may start pytest later.
    """
    own_customization()
    sys.path.insert(0, HERE)
    channel = importlib.import_module(CHANNEL)
    words = channel.command_words()
    early = starts_runner(words) and not channel.ASIDE.intersection(words)
    sys.path.remove(HERE)
    if early and load_runner():
        sys.path.insert(0, HERE)
        try:
            load_observer(channel)
        finally:
            sys.path.remove(HERE)
    else:
        sys.path.append(HERE)


start()
