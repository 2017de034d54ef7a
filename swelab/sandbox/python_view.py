"""What sandboxes see of Pythons: interpreters, standard libraries, and the toolbox with its test runner.

What else is installed on the machine may hold a copy of a task's package without the bug, so every folder for
packages is empty inside, and what installs packages is left out of the toolbox.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

INSTALLERS = (
    *("pip", "pip-*", "setuptools", "setuptools-*", "pkg_resources", "_distutils_hack"),
    *("distutils-precedence.pth", "easy_install.py", "wheel", "wheel-*", "__pycache__"),
)
"""Of a venv's packages those that tests do not need: they bring other packages along."""
INSTALLERS_PROGRAMS = ("pip", "pip[0-9.]*", "easy_install*", "wheel", "[Aa]ctivate*")
_PACKAGES = (
    "python*/site-packages",
    "python*/dist-packages",
    "python*/ensurepip/_bundled",
    "pypy*/site-packages",
)
_PROGRAMS = ("python*", "pypy*", "libpypy*")
_LIBRARIES = ("lib", "lib64", "lib-python", "lib_pypy")


def hidden_packages(prefix: Path, inside: str) -> Iterator[str]:
    """bwrap's arguments that empty the folders for packages of a prefix that is seen at `inside`."""
    for name in _LIBRARIES:
        library = prefix / name
        found = [path for pattern in _PACKAGES for path in library.glob(pattern)]
        for folder in [] if library.is_symlink() else found:
            if folder.is_dir() and not folder.is_symlink() and any(folder.iterdir()):
                yield from _folder(f"{inside}/{folder.relative_to(prefix)}")
    if (prefix / "share/python-wheels").is_dir():
        yield from _folder(f"{inside}/share/python-wheels")


def interpreter(prefix: Path, inside: str) -> Iterator[str]:
    """bwrap's arguments that show the interpreters and the libraries of a prefix at `inside`."""
    for name in ("", "/bin"):
        yield from ("--perms", "0755", "--dir", f"{inside}{name}")
    for path in sorted((prefix / "bin").iterdir()):
        if is_one_of(path.name, _PROGRAMS) and path.is_file():
            yield from ("--ro-bind", str(path), f"{inside}/bin/{path.name}")
    for name in _LIBRARIES:
        library = prefix / name
        if library.is_symlink():
            yield from ("--symlink", str(library.readlink()), f"{inside}/{name}")
        elif library.is_dir():
            yield from ("--ro-bind", str(library), f"{inside}/{name}")
    yield from hidden_packages(prefix, inside)


def venv(path: Path, inside: str) -> Iterator[str]:
    """bwrap's arguments that show a venv at `inside`, without what installs packages."""
    yield from ("--ro-bind", str(path), inside)
    for library in sorted(path.glob("lib*")):
        for packages in () if library.is_symlink() else sorted(library.glob("*/site-packages")):
            shown = (each for each in packages.iterdir() if not is_one_of(each.name, INSTALLERS))
            yield from _folder(f"{inside}/{packages.relative_to(path)}", shown)


def _folder(inside: str, content: Iterable[Path] = ()) -> Iterator[str]:
    yield from ("--perms", "0755", "--tmpfs", inside)
    for path in filter(Path.exists, sorted(content)):
        yield from ("--ro-bind", str(path), f"{inside}/{path.name}")
    yield from ("--remount-ro", inside)


def is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file's name matches one of some patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)
