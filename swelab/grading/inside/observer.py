"""A pytest plugin that observes a graded run from inside. PYTEST_DONT_REWRITE

Only the first pytest process of a run is observed. It removes the plan, with its key, from the disk before it
imports any code of the repository. The plugin stores no results, but writes them to the one-way record at
once. The record has the outcome of each test, and the exception that the test function itself raised. It also
has changes of the runner's own code, and reserved powers that patched files used (see `powers`).
"""

import importlib.machinery
import os
import sys
import types
import unittest

import pytest

import swelab.grading.inside.channel as channel
import swelab.grading.inside.powers as powers
import swelab.grading.inside.spoiling as spoiling
import swelab.grading.inside.watch as watch

PARTS = {
    "observer": sys.modules[__name__],
    "watch": watch,
    "powers": powers,
    "channel": channel,
    "spoiling": spoiling,
}


SKIPS = (pytest.skip.Exception, unittest.SkipTest)
RESTLESS = frozenset(["own", "well", "count", "number", "stream", "file"])
"""Attribute names of the guard's own objects whose values change while tests run."""


def belongings(*things):
    """Returns [(object, name, value)] for the attributes of the guard's own objects that never change once
    tests run.
    """
    return [
        (thing, name, getattr(thing, name))
        for thing in things
        for name in sorted(getattr(thing, "__dict__", None) or thing.__slots__)
        if name not in RESTLESS
    ]


def restore(before):
    """Restores attributes whose value has changed, and returns their names."""
    found = []
    for thing, name, value in before:
        if getattr(thing, name, None) is not value:
            setattr(thing, name, value)
            found.append("observer." + name)
    return found


class Observer:
    """The pytest plugin of the observed process."""

    def __init__(self, plan, faults):
        self.plan, self.faults, self.tell = plan, faults, faults.channel.tell
        self.integrity = watch.Integrity()
        for label, module in PARTS.items():
            self.integrity.add(label, vars(module), own=module.__name__)
        self.powers = powers.Powers(plan["root"], plan["tests"], plan["data"], faults)
        self.integrity.hold("powers", vars(self.powers), "hook", self.powers.hook, self.powers.hook)
        self.listed, self.watched = set(plan["listed"]), set(plan["watched"])
        self.codes, self.changed, self.own, self.spoiler = {}, set(), [], None
        self.hooks = self.config = self.well = None
        self.early = {}  # type: dict[str, list[object]]
        installed = os.path.join(plan["root"], ".swelab", "")
        elsewhere = [
            entry
            for entry in map(os.path.abspath, sys.path)
            if not entry.startswith(plan["root"]) or entry.startswith(installed)
        ]
        for name in plan["new"]:
            if importlib.machinery.PathFinder.find_spec(name, elsewhere) is not None:
                self.different("an installed module has the name of a new one, " + name)
        self.tell("start")

    def different(self, what):
        """Reports that a part of the runner's code has changed. Each part is reported once."""
        if what not in self.changed:
            self.changed.add(what)
            self.tell("changed", what)

    def configure(self, config):
        """Stores pytest's configuration. In a spoiled run, makes pytest collect only the plan's files, with
        the plan's text."""
        self.config, self.early = config, hook_functions(config)
        for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
            os.environ.pop(name, None)  # pytest runs inside tests are not observed
        with self.faults:
            if self.plan["only"]:
                files = {
                    os.path.join(self.plan["root"], name): text for name, text in self.plan["files"].items()
                }
                self.spoiler = spoiling.Spoiler(files)
                config.args[:] = files

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        """Loads test modules from the plan's text in a spoiled run."""
        spoiler = self.spoiler if isinstance(collector, pytest.Module) else None
        if spoiler is not None:
            spoiler.begin()
        yield
        if spoiler is not None:
            spoiler.end()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        """Records the tests, after every other plugin has selected among them."""
        yield
        with self.faults:
            if self.plan["only"]:
                items[:] = [item for item in items if item.nodeid in self.listed]
                with_module = [item for item in items if hasattr(item, "module")]
                plain = [
                    each.nodeid
                    for each in with_module
                    if type(each.module.__spec__.loader) is not spoiling.Loader
                ]
                if plain:
                    raise ImportError("not loaded from the plan's text: " + plain[0])
            self.remember(items)

    def remember(self, items):
        """Stores the code, marks and modules of the tests, before the first test runs."""
        self.codes = {item.nodeid: code_of(item) for item in items}
        for item in items:
            code, wraps = self.codes[item.nodeid], getattr(getattr(item, "obj", None), "__wrapped__", None)
            if code is not None and code.co_filename in self.powers.files and wraps is None:
                self.different("the function of " + item.nodeid)
        self.tell("marked", [item.nodeid for item in items if item.get_closest_marker("xfail")])
        modules = [getattr(item, "module", None) for item in items if item.nodeid in self.listed]
        for module in {id(each): each for each in modules if each is not None}.values():
            self.integrity.add(module.__name__, vars(module), own=module.__name__)
        self.hooks = hook_functions(self.config)
        self.own = belongings(self, self.faults, self.powers, self.faults.channel)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        """Reports the exception that the test raised, before other plugins see it. This is the innermost
        wrapper of the test. A test may replace attributes of the guard's own objects. They are restored
        before a line is written, from references that only this frame has."""
        faults, tell, own, back = self.faults, self.tell, self.own, restore
        with faults:
            if item.nodeid in self.watched:
                self.look(False)
                if "runtest" in vars(item) or self.codes.get(item.nodeid) is not code_of(item):
                    self.different("the function of " + item.nodeid)
        outcome = yield
        changed = back(own)
        with faults:
            for name in changed:
                tell("changed", name)
            kinds = [
                each.type for each in getattr(item, "_excinfo", None) or ()
            ]  # unittest stores its exceptions for later
            kinds += [outcome.excinfo[0]] if outcome.excinfo else []
            tell("call", item.nodeid, channel.name_of(kinds[0]) if kinds else "")
            self.well = None if kinds else item.nodeid
            if item.nodeid in self.watched:
                self.look(False, tests=False)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Reports which file skipped a test, unless a mark of the test did."""
        with self.faults:
            infos = [*(getattr(item, "_excinfo", None) or ()), call.excinfo]
            file = next((skipper(each.value) for each in infos if each and issubclass(each.type, SKIPS)), "")
            if file:
                self.tell("skip", item.nodeid, os.path.relpath(file, self.plan["root"]))
        yield

    def look(self, everything, tests=True):
        """Reports changes of the runner's code.

        tests: whether changes of test modules count. They do not count after a test, since a test may change
        its own module.
        """
        with self.powers.paused():  # reading code raises an audit event
            found = self.integrity.changed(everything)
        found += ["stdlib." + name for name in self.integrity.replaced(self.powers.files, everything)]
        found += restore(self.own)
        found += ["pytest.hook." + name for name in self.strange_hooks()]
        known = (*watch.WATCHED, "builtins", *PARTS)
        for name in found:
            if tests or name.split(".")[0] in known:
                self.different(name)

    def plugins(self):
        """Returns all registered plugins."""
        return self.config.pluginmanager.get_plugins()  # type: ignore[union-attr]

    def strange_hooks(self):
        """Returns the names of pytest's hooks whose functions are suspicious.

        A hook is suspicious if it has lost a function since the collection, or if a function is from a
        patched file, has no file, or belongs to no plugin. A function that was added later must also be a
        Python function.
        """
        strange, plugins = [], set(map(id, self.plugins()))
        for name, parts in hook_parts(self.config).items():
            functions = list(map(function_of, parts))
            files = {file for each in functions for file in watch.files_behind(each) if type(file) is str}
            gone = self.hooks is not None and any(each not in functions for each in self.hooks.get(name, []))
            known = set(map(id, self.early.get(name, [])))
            added = [each for each in functions if id(each) not in known]
            if (
                gone
                or any(file in self.powers.files or file.startswith("<") for file in files)
                or any(type(each) is not types.FunctionType for each in added)
                or not plugins.issuperset(id(each.plugin) for each in parts)
            ):
                strange.append(name)
        return strange

    def pytest_runtest_logreport(self, report):
        """Reports pytest's outcome of one of a test's three phases.

        A passed set-up or teardown is not reported. A pass is not reported if the report of the call already
        implies it.
        """
        with self.faults:
            if report.failed:
                word = "failed" if report.when == "call" else "error"
            elif report.skipped:
                word = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            elif report.when != "call" or (report.outcome == "passed" and report.nodeid == self.well):
                return
            elif report.outcome != "passed":
                word = str(report.outcome)
            else:
                word = "xpassed" if hasattr(report, "wasxfail") else "passed"
            self.tell("report", report.nodeid, word)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        """Ends the record after every other plugin has finished."""
        yield
        with self.faults:
            self.look(True)
            self.tell("end", int(session.exitstatus))


def hook_functions(config):
    """Returns the functions behind each hook of pytest."""
    return {name: list(map(function_of, parts)) for name, parts in hook_parts(config).items()}


def hook_parts(config):
    """Returns pluggy's implementations of each hook of pytest."""
    callers = vars(config.hook).items()
    return {name: caller.get_hookimpls() for name, caller in callers if hasattr(caller, "get_hookimpls")}


def function_of(part):
    """Returns the function of a hook implementation."""
    return getattr(part.function, "__func__", part.function)


def skipper(error):
    """Returns the file of the code that raised a skip, or "" if only the runner's code did.

    unittest raises anew what a test raised: then the first error is the context of the second.
    """
    while isinstance(error, SKIPS):
        file, step = "", error.__traceback__
        while step is not None:
            module = powers.module_of(step.tb_frame)
            if module.partition(".")[0] not in watch.WATCHED:
                file = step.tb_frame.f_code.co_filename
            step = step.tb_next
        if file:
            return file
        error = error.__context__
    return ""


def code_of(item):
    """Returns the code that a test item will run, or None if the item is not a Python function."""
    function = getattr(item, "obj", None)
    return getattr(getattr(function, "__func__", function), "__code__", None)


def start():
    """Returns the observer if this process gets the run's plan, otherwise None."""
    plan = channel.claim()
    if plan is None:
        return None
    with channel.Faults(plan) as faults:
        return Observer(plan, faults)


OBSERVER = start()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config):
    """Makes pytest-xdist, if installed, run the tests in the observed process.

    In xdist's workers, tests would not be observed, spoiled text would not be loaded, and log lines would
    differ.
    """
    if OBSERVER is not None and hasattr(config.option, "numprocesses"):
        config.option.numprocesses, config.option.distload = 0, False
        config.option.dist, config.option.tx = "no", []
    yield


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Registers the observer in the observed process.

    The observer itself has no such hook: pluggy 1.2 skips other hooks if a plugin is added during the calls.
    """
    if OBSERVER is not None and OBSERVER.config is None:
        config.pluginmanager.register(OBSERVER)
        OBSERVER.configure(config)
        for module in PARTS.values():  # hides the modules from code that searches for them
            sys.modules.pop(module.__name__, None)
