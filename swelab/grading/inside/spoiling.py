"""Loads test modules from text that differs from their files, for the second run. PYTEST_DONT_REWRITE"""

import sys


class Loader:
    """Loads a module from text that differs from the text of its file."""

    def __init__(self, code):
        self.code = code

    def create_module(self, spec):
        """Returns None, so that Python creates an ordinary module."""

    def exec_module(self, module):
        """Executes the text in the module."""
        exec(self.code, vars(module))


class Spoiler:
    """Finds modules as the other finders do, but loads the modules of some files from other text.

    So the files on disk keep the size, age and content of the ordinary run. This finder is installed only
    until a test module is found. So the imports of the test module do not see the finder.
    """

    def __init__(self, texts):
        self.codes = {path: compile(text, path, "exec") for path, text in texts.items()}

    def find_spec(self, name, path=None, target=None):
        """Returns the specification of a module, or None."""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                if spec.origin in self.codes:
                    spec.loader = Loader(self.codes[spec.origin])
                    self.end()
                return spec
        return None

    def begin(self):
        """Installs this finder before all other finders.

        A test module that another module has imported is loaded again.
        """
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            if (
                getattr(spec, "origin", None) in self.codes
                and type(getattr(spec, "loader", None)) is not Loader
            ):
                del sys.modules[name]
        sys.meta_path.insert(0, self)

    def end(self):
        """Removes this finder."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]


for kind in (Loader, Spoiler):  # code that looks at these classes takes them for pytest's own
    kind.__name__ = kind.__qualname__ = "AssertionRewritingHook"
    kind.__module__ = "_pytest.assertion.rewrite"
