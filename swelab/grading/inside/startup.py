"""The guard's `sitecustomize`, which every Python process of a graded run loads before any repository code.

In the test runner's process it imports the runner's modules while no folder of PYTHONPATH in the repository
is on the path. So no file of the repository can replace these modules. Then it starts the observer.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OBSERVER = "@OBSERVER@"
CHANNEL = "@CHANNEL@"
ROOT = "@ROOT@"
RUNNERS = ("pytest", "py.test")


def load(name):
    """Imports a module and returns it. (`importlib` itself may not be loaded yet.)"""
    __import__(name)
    return sys.modules[name]


def take_repository_aside():
    """Removes the guard's folder from the path, and the entries of PYTHONPATH that lie in the repository.

    Returns these entries as [(index, entry)]. Installed packages in the repository stay on the path.
    """
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    aside = []
    for number, entry in enumerate(path):
        place = os.path.join(os.path.realpath(entry), "")
        installed = place.startswith(os.path.join(ROOT, ".swelab", ""))
        if os.path.realpath(entry) in named and place.startswith(os.path.join(ROOT, "")) and not installed:
            aside.append((number, entry))
    sys.path[:] = path
    for number, _ in reversed(aside):
        del sys.path[number]
    return aside


def own_customization():
    """Imports the sitecustomize that this environment would have had without the guard."""
    guards = sys.modules.pop("sitecustomize")
    at_end = HERE in sys.path
    if at_end:
        sys.path.remove(HERE)
    try:
        load("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = guards
    if at_end:
        sys.path.append(HERE)


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
            load(name)
        plugins = load("_pytest.config").default_plugins
    except Exception:  # the process that starts the tests will get the same error
        return False
    for name in plugins:
        try:
            load("_pytest." + name)
        except Exception:  # the run does not use a part that cannot be imported here
            continue
    return True


def load_observer(channel):
    """Imports the observer. If that fails, reports the error as the guard's own."""
    try:
        load(OBSERVER)
    except Exception as error:
        channel.note_at_start(error)
        raise


def start_observer():
    """Starts the observer in a test runner's process.

    In other processes the guard's folder stays at the end of the path, since they may start pytest later.
    """
    sys.path.insert(0, HERE)
    channel = load(CHANNEL)
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


def start():
    """Loads the guard, and then gives the path and the module `sitecustomize` their usual contents."""
    aside = take_repository_aside()
    own_customization()
    try:
        start_observer()
    finally:
        for number, entry in aside:
            sys.path.insert(number, entry)
    if aside and vars(sys.modules["sitecustomize"]) is globals():
        own_customization()


start()
