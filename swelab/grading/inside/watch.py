"""Stores the runner's code as it was loaded, and finds later changes of the code. PYTEST_DONT_REWRITE"""

import builtins
import gc
import operator
import sys
import types

WATCHED = ("_pytest", "pytest", "pluggy", "unittest", "xdist")
OFTEN_PATCHED = frozenset("open input print __import__ breakpoint exit quit help _ copyright".split())
OPEN_TYPE = 1 << 9
"""Flag of a class that Python code made (Py_TPFLAGS_HEAPTYPE)."""
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type, staticmethod, classmethod, property)
differ, code_of, each, some = operator.is_not, operator.attrgetter("__code__"), map, any
parts_of = gc.get_referents


def files_behind(value):
    """Yields the source files of the code that runs when `value` is called.

    The value may be a function, a method, a property, a partial function, or an object of a callable class.
    """
    parts = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "func"))]
    for part in [*parts, getattr(type(value), "__call__", None)]:  # noqa: B004
        yield getattr(getattr(part, "__code__", None), "co_filename", None)


class OriginalValues:
    """The original values of a module's or class's names.

    A comparison with the present values runs no foreign code.
    """

    def __init__(self, scope):
        self.get = scope.get
        self.names, self.values, self.labels = [], [], []

    def add(self, label, name, value):
        """Stores one more name."""
        self.names.append(name)
        self.values.append(value)
        self.labels.append(label)

    def changed(self):
        """Returns (label, present value) for each name whose value has changed."""
        if not some(each(differ, each(self.get, self.names), self.values)):
            return []
        now = each(self.get, self.names)
        return [(label, new) for label, new, old in zip(self.labels, now, self.values) if new is not old]


class Integrity:
    """Stores the runner's code as it was loaded, name by name, to find names whose values have changed."""

    def __init__(self):
        self.originals, self.scope_ids = {}, set()  # type: dict[int, OriginalValues], set[int]
        self.functions, self.codes, self.labels, self.parts = [], [], [], []
        self.scopes = []  # type: list[tuple[str, dict[str, object]]]
        self.builtins = [
            ("builtins." + name, name, value)
            for name, value in vars(builtins).items()
            if isinstance(value, FUNCTIONS) and name not in OFTEN_PATCHED
        ]
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in WATCHED and isinstance(module, types.ModuleType):
                self.add(name, vars(module))
        self.stdlib = self.entries_of_the_stdlib()
        self.legacy = dict(vars(sys.modules.get("_pytest.legacypath", types)))
        known = frozenset(vars(builtins))
        self.shadows = [(name, scope, known - set(scope)) for name, scope in self.scopes]

    def add(self, label, scope, own=None):
        """Stores the functions and classes of a module or class.

        With `own`, stores only those that module `own` defines.
        """
        if id(scope) in self.scope_ids:
            return
        self.scope_ids.add(id(scope))
        if own is None:
            self.scopes.append((label, scope))
        for name, value in list(scope.items()):
            if not isinstance(value, FUNCTIONS) or name == "__warningregistry__":
                continue
            home = getattr(value, "__module__", "") or ""
            if own is not None and home != own:
                continue
            self.hold(label, scope, name, value, getattr(value, "__func__", value))
            if isinstance(value, type) and (home == own or home.split(".")[0] in WATCHED):
                self.add_class(label + "." + name, value, own)

    def add_class(self, label, cls, own):
        """Stores what a class itself defines."""
        scope = vars(cls)
        if id(cls) in self.scope_ids:
            return
        self.scope_ids.add(id(cls))
        for name, value in list(scope.items()):
            if isinstance(value, FUNCTIONS) and not isinstance(value, type):
                plain = getattr(value, "__func__", getattr(value, "fget", None) or value)
                self.hold(label, scope, name, value, plain)

    def hold(self, label, scope, name, value, plain):
        """Stores one name, and the code of the function `plain` behind it."""
        self.originals.setdefault(id(scope), OriginalValues(scope)).add(label + "." + name, name, value)
        if isinstance(plain, types.FunctionType):
            self.functions.append(plain)
            self.codes.append(plain.__code__)
            self.labels.append(label + "." + name)

    def entries_of_the_stdlib(self):
        """Returns the functions, classes and methods of the loaded standard library modules."""
        names, entries = getattr(sys, "stdlib_module_names", ()), []
        todo = [
            (label, vars(module))
            for label, module in list(sys.modules.items())
            if label.split(".")[0] in set(names) - set(WATCHED) and isinstance(module, types.ModuleType)
        ]
        for label, scope in todo:
            originals = OriginalValues(scope)
            for name, value in list(scope.items()):
                if isinstance(value, FUNCTIONS):
                    originals.add(label + "." + name, name, value)
                if type(value) is type and value.__flags__ & OPEN_TYPE and value.__module__ == label:
                    todo.append((label + "." + name, vars(value)))  # type: ignore[arg-type]
            entries.append(originals)
        return entries

    def replaced(self, files, everything):
        """Returns labels of standard library parts that were replaced by code of `files`.

        With `everything`, also of parts that were replaced by another built-in function.
        """
        found = []
        for held in self.stdlib:
            for label, now in held.changed():
                if not files.keys().isdisjoint(files_behind(now)) or (everything and type(now) is type(len)):
                    found.append(label)
        return found

    def by_the_runner(self, label, new):
        """Returns whether pytest itself has set `new`.

        pytest's legacypath plugin replaces a method by its own function {class}_{method}. That function was
        stored before any code of the repository ran. Its code is checked like all code of the runner.
        """
        name = "_".join(label.split(".")[-2:])
        return isinstance(new, types.FunctionType) and self.legacy.get(name) is new

    def other_code(self):
        """Returns labels of functions whose code has changed.

        Reading a function's code raises an audit event. So the code is read only if some part of a function
        was replaced.
        """
        parts = parts_of(*self.functions)
        if len(parts) == len(self.parts) and not some(each(differ, parts, self.parts)):
            return []
        now = each(code_of, self.functions)
        found = [label for label, new, old in zip(self.labels, now, self.codes) if new is not old]
        self.parts = [] if found else parts
        return found

    def changed(self, everything):
        """Returns labels of all parts that have changed.

        Changed builtins are included only with `everything`, since tests may patch builtins temporarily.
        """
        changes = [
            label
            for held in self.originals.values()
            for label, new in held.changed()
            if not self.by_the_runner(label, new)
        ]
        changes += self.other_code()
        for label, name, value in self.builtins if everything else []:
            if vars(builtins).get(name) is not value:
                changes.append(label)
        if vars(builtins)["AssertionError"] is not AssertionError:
            changes.append("builtins.AssertionError")
        for label, scope, absent in self.shadows:
            changes += [label + "." + name for name in absent.intersection(scope)]
        return changes
