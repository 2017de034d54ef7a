"""Makes packages that can be imported but not used: every name exists, and raises when called."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType


class Absent:
    """A name in a missing package. A call raises NotImplementedError."""

    def __init__(self, name: str):
        self._name = name

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"{self._name} is a stand-in: the real package needs a GPU build")

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return f"<absent {self._name}>"


def names_of(module: str) -> Callable[[str], Absent]:
    """Returns a `__getattr__` for a module, which returns an `Absent` for every name except dunder names."""

    def get(name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{module}.{name}")

    return get


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads every submodule of one package as an empty stand-in."""

    def __init__(self, root: str):
        self.prefix = root + "."

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a submodule of the root as a package, or None for other modules. See
        importlib."""
        if fullname.startswith(self.prefix):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns an empty module that has an `Absent` under every name."""
        module = ModuleType(spec.name)
        module.__dict__["__getattr__"] = names_of(spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing, because there is nothing to run."""


def stand_in(root: str) -> Callable[[str], Absent]:
    """Makes `root` a package of absent names. Returns the `__getattr__` for the package's `__init__`."""
    sys.meta_path.append(Submodules(root))
    return names_of(root)
