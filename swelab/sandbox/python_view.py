"""The Python installations visible in a sandbox: interpreters, standard libraries, and the toolbox.

The toolbox is a venv with the test runner. Packages installed on the machine may contain a task's code
without the bug. So a sandbox sees the machine's package folders as empty. It sees the toolbox without
installers. Each mount costs a command about 0.2 ms. So each package folder gets one mount, even if links lead
to it by other paths.
"""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

INSTALLERS = (
    *("pip", "pip-*", "setuptools", "setuptools-*", "pkg_resources", "_distutils_hack"),
    *("distutils-precedence.pth", "easy_install.py", "wheel", "wheel-*", "__pycache__"),
)
"""Packages of a venv that tests do not need, and that could install other packages."""
INSTALLERS_PROGRAMS = ("pip", "pip[0-9.]*", "easy_install*", "wheel", "*[Aa]ctivate*")
_PACKAGES = (
    "python*/site-packages",
    "python*/dist-packages",
    "python*/ensurepip/_bundled",
    "pypy*/site-packages",
)
_INTERPRETERS = ("python*", "pypy*", "libpypy*")
_NO_INTERPRETERS = ("*-config", "*.py")
_LIBRARIES = ("lib", "lib64", "lib-python", "lib_pypy")
_PLACES_OF_PROGRAMS = (
    *("/usr/lib", "/usr/libexec", "/usr/share", "/usr/src"),
    *("/usr/local", "/usr/local/lib", "/usr/local/libexec", "/usr/local/share", "/usr/local/src"),
)
_TOOLS = ("python*", "pypy*", "gcc", "gdb", "lib", "lib64", "libexec", "share", "src")
"""Names of folders that do not belong to one program, so that `packages_of_programs` skips them.
They have standard libraries, files of compilers and debuggers, or other programs."""


def hidden_packages(prefix: Path, inside: str) -> Iterator[str]:
    """Yields the package folders of a Python prefix, to be hidden by empty folders.

    prefix: path on the host. inside: path of the prefix in the sandbox. Yields paths in the sandbox.
    """
    for name in _LIBRARIES:
        library = prefix / name
        found = [path for pattern in _PACKAGES for path in library.glob(pattern)]
        for folder in [] if library.is_symlink() else found:
            if folder.is_dir() and not folder.is_symlink() and any(folder.iterdir()):
                yield f"{inside}/{folder.relative_to(prefix)}"
    if (prefix / "share/python-wheels").is_dir():
        yield f"{inside}/share/python-wheels"


def packages_of_programs(interpreter: Path) -> Iterator[str]:
    """Yields folders in /usr that contain the private Python packages of a program, one for each program.

    interpreter: prefix of the toolbox's interpreter. Its folders are not yielded.
    """
    for place in _PLACES_OF_PROGRAMS:
        yield from _of_programs(Path(place), interpreter)


def _of_programs(place: Path, interpreter: Path) -> Iterator[str]:
    if not place.is_dir() or place.is_symlink():
        return
    for program in sorted(place.iterdir()):
        if not program.is_dir() or program.is_symlink() or is_one_of(program.name, _TOOLS):
            continue
        if not interpreter.is_relative_to(program):
            yield from _common_folder(program)
        elif program != interpreter:
            yield from _of_programs(program, interpreter)


def _common_folder(program: Path) -> list[str]:
    """Returns [the deepest folder that contains all packages of a program], or [] without packages.

    program: the folder of the program.
    """
    common = ""
    for package in _packages(str(program)):
        parent = package if package == str(program) else os.path.dirname(package)
        common = os.path.commonpath([common, parent]) if common else parent
        if common == str(program):
            break
    return [common] if common else []


def _packages(top: str) -> Iterator[str]:
    pending = [top]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                below = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        if "__init__.py" in below:
            yield folder
        else:
            pending += [f"{folder}/{name}" for name, is_folder in below.items() if is_folder]


def interpreter(prefix: Path, inside: str) -> Iterator[str]:
    """Yields bwrap's arguments that show a prefix's interpreters and libraries at `inside`."""
    for name in ("", "/bin"):
        yield from ("--perms", "0755", "--dir", f"{inside}{name}")
    for path in sorted((prefix / "bin").iterdir()):
        if is_one_of(path.name, _INTERPRETERS) and not is_one_of(path.name, _NO_INTERPRETERS):
            yield from _program(path, f"{inside}/bin/{path.name}")
    for name in _LIBRARIES:
        library = prefix / name
        if library.is_symlink():
            yield from ("--symlink", str(library.readlink()), f"{inside}/{name}")
        elif library.is_dir():
            yield from ("--ro-bind", str(library), f"{inside}/{name}")


def _program(path: Path, inside: str) -> Iterator[str]:
    if path.is_symlink() and path.readlink().parent == Path():
        yield from ("--symlink", str(path.readlink()), inside)
    elif path.is_file():
        yield from ("--ro-bind", str(path), inside)


def venv(path: Path, inside: str) -> Iterator[str]:
    """Yields bwrap's arguments that show a venv at `inside`, without packages that install other packages."""
    yield from ("--ro-bind", str(path), inside)
    for library in sorted(path.glob("lib*")):
        for packages in () if library.is_symlink() else sorted(library.glob("*/site-packages")):
            found = {each: is_one_of(each.name, INSTALLERS) for each in packages.iterdir()}
            if any(hidden and each.name != "__pycache__" for each, hidden in found.items()):
                shown = (each for each, hidden in found.items() if not hidden)
                yield from _folder(f"{inside}/{packages.relative_to(path)}", shown)


def _folder(inside: str, content: Iterable[Path]) -> Iterator[str]:
    yield from ("--perms", "0755", "--tmpfs", inside)
    for path in filter(Path.exists, sorted(content)):
        yield from ("--ro-bind", str(path), f"{inside}/{path.name}")
    yield from ("--remount-ro", inside)


def is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether a file name matches one of the patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)
