"""Builds the root file system of a bubblewrap sandbox: mounts, /etc, the toolbox."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from swelab.sandbox import python_view
from swelab.sandbox.protocol import WORKDIR, BackendMissing

HOME = "/home/agent"
TOOLBOX = "/opt/toolbox"
PROBE = (
    f"{TOOLBOX}/bin/python -c "
    '\'import importlib.util as u; exit(u.find_spec("pytest") is None and "it has no pytest")\''
)
"""A command that fails if the toolbox does not work in a sandbox."""
ENVIRONMENT = {
    "HOME": HOME,
    "LC_ALL": "C.UTF-8",
    "PATH": f"{TOOLBOX}/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}
ETC = {
    "gitconfig": "[user]\n\tname = agent\n\temail = agent@localhost\n[gc]\n\tauto = 0\n[init]\n"
    "\tdefaultBranch = main\n",
    "hostname": "sandbox\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_DEFAULT_TOOLBOX = Path(__file__).resolve().parents[2] / ".venv-sandbox"


def toolbox_path() -> Path:
    """Returns the venv that sandboxes see: $SWELAB_TOOLBOX, or .venv-sandbox in the repository's root."""
    return Path(os.environ.get("SWELAB_TOOLBOX") or _DEFAULT_TOOLBOX)


def gitconfig() -> str:
    """Returns git's settings for the whole sandbox.

    They contain a user name, because git refuses to commit without a user name.
    """
    return ETC["gitconfig"]


@dataclass(frozen=True)
class Toolbox:
    """A Python venv as sandboxes see it. bin: programs, which name the venv by its path in the sandbox."""

    path: Path
    prefixes: tuple[tuple[str, str], ...]  # (host folder, path in the sandbox) of each interpreter
    # maps a name to (symlink target or content, mode)
    bin: dict[str, tuple[str | bytes, int]] = field(repr=False)
    shown: tuple[str, ...] = field(repr=False)  # bwrap's arguments for the rest of the venv
    hidden: tuple[str, ...] = field(repr=False)  # package folders to hide by empty folders


def read_toolbox(path: Path) -> Toolbox:
    """Reads a venv. Raises BackendMissing if the folder is not a venv."""
    path = path.absolute()
    python = path / "bin" / "python"
    if not (os.access(path / "pyvenv.cfg", os.R_OK) and os.access(python, os.X_OK)):
        raise BackendMissing(f"no Python venv for sandboxes at {path}: make it, or set SWELAB_TOOLBOX")
    bin_files: dict[str, tuple[str | bytes, int]] = {}
    for entry in sorted((path / "bin").iterdir()):
        if python_view.is_one_of(entry.name, python_view.INSTALLERS_PROGRAMS):
            continue
        if entry.is_symlink():
            bin_files[entry.name] = (os.fsdecode(_relocate(os.fsencode(os.readlink(entry)), path)), 0)
        elif entry.is_file():
            bin_files[entry.name] = (_relocate(entry.read_bytes(), path), 0o755)
    prefixes = _prefixes(path, python)
    return Toolbox(
        path,
        prefixes,
        bin_files,
        tuple(_visible_paths(path, prefixes)),
        tuple(_hidden_paths(python, prefixes)),
    )


def _visible_paths(path: Path, prefixes: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for host, inside in prefixes:
        yield from python_view.interpreter(Path(host), inside)
    yield from python_view.venv(path, TOOLBOX)


def _hidden_paths(python: Path, prefixes: tuple[tuple[str, str], ...]) -> Iterator[str]:
    real = python.resolve().parent.parent
    yield from python_view.packages_of_programs(real)
    seen = {str(real)} if real.is_relative_to("/usr") else set()
    own = [(name, name) for name in sorted(seen | {"/usr", "/usr/local"})]
    for host, inside in (*own, *prefixes):
        yield from python_view.hidden_packages(Path(host), inside)


def _relocate(content: bytes, venv: Path) -> bytes:
    """Replaces the venv's host path by its path in sandboxes.

    Scripts contain the path of their interpreter, and the host path does not exist in a sandbox.
    """
    if b"\0" in content:
        return content
    for name in (venv, venv.resolve()):
        content = content.replace(os.fsencode(name) + b"/", TOOLBOX.encode() + b"/")
    return content


def _prefixes(venv: Path, python: Path) -> tuple[tuple[str, str], ...]:
    """Returns pairs (host folder, path in the sandbox) for the venv's interpreter if it is outside /usr.

    The host folder is always the same. There is one pair for each path by which links refer to the folder.
    """
    real = python.resolve().parent.parent
    names = {real}
    link = python
    while link.is_symlink():
        link = link.parent / os.readlink(link)
        names.add(Path(os.path.normpath(link)).parent.parent)
    for line in (venv / "pyvenv.cfg").read_text().splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            names.add(Path(value.strip()).parent)
    outside = [name for name in names if not name.is_relative_to("/usr") and name not in (Path("/"), venv)]
    return tuple((str(real), str(name)) for name in sorted(outside) if not str(name).startswith(str(venv)))


def write_private_files(folder: Path, toolbox: Toolbox, uid: int, gid: int) -> None:
    """Fills `folder` with etc/ and bin/, and with the empty folders empty/, testbed/, tmp/ and home/.

    etc/ and bin/ are read-only in the sandbox.
    """
    write_etc(folder, uid, gid)
    for name, (content, mode) in toolbox.bin.items():
        if isinstance(content, str):
            (folder / "bin" / name).symlink_to(content)
        else:
            _write(folder / "bin" / name, content, mode)


def write_etc(folder: Path, uid: int, gid: int) -> None:
    """Fills `folder` with etc/, and with the empty folders bin/, empty/, testbed/, tmp/ and home/."""
    for name in ("etc", "etc/alternatives", "bin", "empty", "testbed", "tmp", "home"):
        (folder / name).mkdir()
        (folder / name).chmod(0o755)  # independent of the caller's umask
    accounts = {
        "passwd": f"root:x:0:0:root:/:/bin/bash\nagent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n",
        "group": f"root:x:0:\nagent:x:{gid}:\n",
    }
    for name, text in {**ETC, **accounts}.items():
        _write(folder / "etc" / name, text.encode(), 0o644)
    cache = Path("/etc/ld.so.cache")
    _write(folder / "etc/ld.so.cache", cache.read_bytes() if cache.exists() else b"", 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def mounts(folder: Path, toolbox: Toolbox, shm_bytes: int) -> list[str]:
    """Returns bwrap's arguments for the whole root file system.

    `folder` must contain the files of `write_private_files`.
    """
    arguments: list[str] = []
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64"):
        arguments += top_level(Path("/") / name, f"/{name}")
    arguments += ["--ro-bind", str(folder / "etc"), "/etc"]
    if Path("/etc/alternatives").is_dir():
        arguments += ["--ro-bind", "/etc/alternatives", "/etc/alternatives"]
    for parent in _parents([inside for _, inside in toolbox.prefixes] + [TOOLBOX, HOME]):
        # without --perms, bwrap makes folders that other users cannot enter
        arguments += ["--perms", "0755", "--dir", parent]
    arguments += [*toolbox.shown, "--ro-bind", str(folder / "bin"), f"{TOOLBOX}/bin"]
    for hidden in toolbox.hidden:
        arguments += ["--ro-bind", str(folder / "empty"), hidden]
    return [*arguments, *own_mounts(folder, shm_bytes), "--remount-ro", "/"]


def own_mounts(folder: Path, shm_bytes: int) -> list[str]:
    """Returns bwrap's arguments for /proc, /dev and the three folders that a sandbox may write to."""
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--perms", "1777", "--size", str(shm_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    for name, inside in (("testbed", WORKDIR), ("tmp", "/tmp"), ("home", HOME)):
        arguments += ["--bind", str(folder / name), inside]
    return arguments


def _parents(paths: list[str]) -> list[str]:
    found = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(found - {"/"})


def top_level(path: Path, inside: str) -> list[str]:
    """Returns bwrap's arguments that show the host's `path` at `inside`.

    A symlink becomes a symlink with the same target. Returns [] if `path` does not exist.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return []
    if stat.S_ISLNK(kind):
        return ["--symlink", os.readlink(path), inside]
    return ["--ro-bind", str(path), inside]
