"""Reads the user's own repository: a commit of a git repository, with the packages that its tests need.

These packages are in `.swelab/site-packages` of the checkout. The sandbox's Python searches this folder last,
see SITE_FILE.
"""

import fnmatch
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from swelab.configs.kinds.repo import GitRepo
from swelab.records import InputError, shorten
from swelab.sandbox.requirements import tool

SITE = ".swelab/site-packages"
SITE_FILE = "swelab_task.pth"
"""Name of a file in the toolbox's site-packages.
The file makes Python search `.swelab/site-packages` if that folder exists."""
INSTALL_SECONDS = 1800
LFS = b"version https://git-lfs.github.com/spec/"

Files = dict[str, tuple[bytes, bool]]
"""Maps a path to (bytes, executable)."""


def read_commit(recipe: GitRepo) -> Files:
    """Returns the files of a `git` repository recipe's commit.

    recipe: has the keys repository (folder or URL), commit and exclude. Raises InputError if the repository
    or commit does not exist. Raises InputError for submodules, symbolic links or Git LFS pointers that
    `exclude` does not name.
    """
    with tempfile.TemporaryDirectory(prefix="swelab-git-") as scratch:
        bare = _fetch(recipe, Path(scratch) / "bare.git")
        return _files(bare, recipe)


def _fetch(recipe: GitRepo, bare: Path) -> Path:
    """Returns a bare repository that contains the commit."""
    place, commit = recipe.repository, recipe.commit
    if "://" not in place and "@" not in place.partition("/")[0]:
        if not Path(place).expanduser().is_dir():
            raise InputError("no such folder", place, "a git repository: a folder or a URL")
        place = str(Path(place).expanduser().absolute())
    _git(bare.parent, "init", "-q", "--bare", str(bare))
    reason = ""
    for wanted in ([commit], ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]):
        done = _run(bare, "fetch", "-q", *(["--depth=1"] if wanted == [commit] else []), place, *wanted)
        reason = shorten(done.stderr.decode(errors="replace")) if done.returncode else ""
        if not _run(bare, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
            return bare
    if not reason:
        raise InputError(f"no commit {commit}", recipe.repository, "a full commit hash that a branch holds")
    raise InputError(f"git cannot fetch it: {reason}", recipe.repository, "a git repository")


def _files(bare: Path, recipe: GitRepo) -> Files:
    files: Files = {}
    refused: dict[str, list[str]] = {}
    listing = _git(bare, "ls-tree", "-r", "-z", "--full-tree", recipe.commit)
    with subprocess.Popen(
        ["git", "cat-file", "--batch"],
        cwd=bare,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdin and reader.stdout
        for entry in filter(None, listing.split(b"\0")):
            head, _, name = entry.partition(b"\t")
            mode, _, blob = head.split()
            path = os.fsdecode(name)
            if any(fnmatch.fnmatchcase(part, each) for part in path.split("/") for each in recipe.exclude):
                continue
            if mode in (b"160000", b"120000"):
                refused.setdefault("submodule" if mode == b"160000" else "symbolic link", []).append(path)
                continue
            reader.stdin.write(blob + b"\n")
            reader.stdin.flush()
            content = reader.stdout.read(int(reader.stdout.readline().split()[2]) + 1)[:-1]
            if content.startswith(LFS):
                refused.setdefault("Git LFS pointer", []).append(path)
            files[path] = (content, mode == b"100755")
        reader.stdin.close()
    for kind, paths in refused.items():
        what = f"{len(paths)} paths are a {kind}, such as {paths[0]}"
        raise InputError(what, recipe.repository, "plain files; name the others in `exclude`")
    return files


def install(recipe: GitRepo, files: Files, toolbox: Path) -> Files:
    """Runs the recipe's install command. Maps paths in the checkout to the installed files.

    Returns {} if the recipe has no command. The command runs in bash in a copy of the files. It can use the
    network, and cannot change other files on this machine. The sandbox's Python is first on PATH. Raises
    InputError if the command fails or takes longer than 30 minutes. Raises InputError if the toolbox lacks
    SITE_FILE, or if an installed file is a copy of a file that gets bugs.
    """
    if not recipe.install:
        return {}
    if not list(toolbox.glob(f"lib/python3*/site-packages/{SITE_FILE}")):
        expected = "one that this version made: remove it and run `make setup`"
        raise InputError(f"has no {SITE_FILE}", toolbox, expected)
    with tempfile.TemporaryDirectory(prefix="swelab-install-") as scratch:
        tree = Path(scratch) / "checkout"
        for path, (content, executable) in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
            (tree / path).chmod(0o755 if executable else 0o644)
        _run_install(recipe.install, tree, toolbox)
        installed = {
            path.relative_to(tree).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
            for path in sorted((tree / SITE).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
    _refuse_copies(recipe, files, installed)
    return installed


def _run_install(command: str, tree: Path, toolbox: Path) -> None:
    inside = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    inside += ["--bind", str(tree), str(tree), "--chdir", str(tree), "--unshare-pid", "--die-with-parent"]
    settings = {
        "PATH": f"{toolbox.absolute() / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "PIP_TARGET": str(tree / SITE),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_NO_COMPILE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(
        [tool("bwrap") or "bwrap", *inside, "bash", "-ec", command],
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise InputError(f"takes longer than {INSTALL_SECONDS} s", f"install: {command}") from None
    log = output.decode("utf-8", "replace")
    print(log, file=sys.stderr, end="")
    if process.returncode:
        last = shorten(" ".join(log.splitlines()[-3:]))
        raise InputError(f"exit code {process.returncode}: {last}", f"install: {command}")


def _refuse_copies(recipe: GitRepo, files: Files, installed: Files) -> None:
    """Raises InputError if an installed file is a copy of a file that gets bugs.
    An agent could read the fix in the copy."""
    ours = {
        content: path
        for path, (content, _) in files.items()
        if len(content) > 100 and any(fnmatch.fnmatchcase(path, each) for each in recipe.targets)
    }
    for path, (content, _) in installed.items():
        if content in ours:
            what = f"it installs a copy of {ours[content]} ({path}), in which an agent could read the fix"
            raise InputError(
                what, f"install: {recipe.install}", "what the tests need, not the package itself"
            )


def _environment() -> dict[str, str]:
    """Returns environment variables that make git ignore user settings and never prompt.
    User settings could run filters and hooks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, stdin=subprocess.DEVNULL
    )


def _git(folder: Path, *arguments: str) -> bytes:
    done = _run(folder, *arguments)
    if done.returncode:
        raise InputError(f"git {arguments[0]}: {shorten(done.stderr.decode(errors='replace'))}", folder)
    return done.stdout
