"""Protects the files by which a patch is judged: each is restored to its content from before the patch.

`prepare_script` runs in the sandbox before any code of the prediction. It sets these files aside and applies
the patch. `RESTORE` then restores the files, and removes files that the patch added under protected names.
"""

import fnmatch
import os
import posixpath
import re
import shlex
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePosixPath

from swelab.sandbox import WORKDIR

RUNNER_FILES = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml"),
    *("tox.ini", "tox.toml", "setup.cfg", ".coveragerc", "sitecustomize.py", "usercustomize.py"),
    *"*.pth *.egg-link .env .envrc .python-version *.dist-info *.egg-info entry_points.txt".split(),
    *("package.json", "jest.config.*", "vitest.config.*", "karma.conf.*", ".mocharc*", ".babelrc*"),
    *"babel.config.* Cargo.toml build.rs go.mod pom.xml build.gradle* phpunit.xml* .rspec".split(),
    *("test_*.py", "*_test.py", "*_test.go", "testdata", "go.work", "runtests.py", "activate", "activate.*"),
)
"""Names of files that are protected in every folder."""

ROOT_FILES = (
    *("setup.py", "noxfile.py", "tasks.py", "dodo.py", "Makefile", "makefile", "GNUmakefile", "justfile"),
    *("manage.py", "Rakefile", "Gemfile", "requirements*.txt", "environment.y*ml", "meson.build"),
    *("CMakeLists.txt", ".bashrc", ".profile", ".bash_profile"),
)
"""Names that are protected only in the repository's root: in other folders they may be ordinary code."""

BINARIES = ("*.pyc", "*.pyo", "*.so", "*.pyd", "*.dll", "*.dylib", "*.egg", "*.whl")
"""Compiled code that Python could load in place of a source file.

A patch may not add or change such a file.
"""

RUNNERS = frozenset(
    "pytest _pytest py pluggy iniconfig packaging pygments exceptiongroup tomli attr attrs xdist execnet "
    "hypothesis mock nose nose2 coverage pytest_cov pytest_asyncio pytest_mock django_pytest tox nox six "
    "typing_extensions importlib_metadata zipp more_itertools colorama".split()
)
SHADOWABLE = RUNNERS | frozenset(sys.stdlib_module_names) - {"test", "this", "antigravity"}
"""Top-level modules that a patch may not add beside the code: Python would import them in place of the real
modules.
"""

TEST_FOLDERS = frozenset({"tests", "test", "testing", "t", "spec", "specs", "__tests__"})
INSTALLED = ".swelab"
"""Folder of the repository that contains files which the task's tests need."""
_RUNNER_FILE = re.compile("|".join(map(fnmatch.translate, RUNNER_FILES)))
METADATA = (".git/hooks", ".git/info", ".git/config.worktree", ".git/config")


def test_folders(test_files: Iterable[str]) -> list[str]:
    """Returns the folders of a task's test files that contain only tests. All files in them are restored."""
    folders = {str(PurePosixPath(name).parent) for name in test_files}
    return sorted(folder for folder in folders if TEST_FOLDERS & set(folder.lower().split("/")))


def is_protected(path: str, test_files: Iterable[str]) -> bool:
    """Returns whether the file at a path of the repository decides how a patch is judged."""
    pure = PurePosixPath(path)
    if any(map(_RUNNER_FILE.match, pure.parts)):
        return True
    if pure.parts[:1] == (INSTALLED,):
        return True
    if len(pure.parts) == 1 and any(pure.match(pattern) for pattern in ROOT_FILES):
        return True
    files, folders = _of_tests(tuple(test_files))
    return path in files or path.startswith(folders)


@lru_cache(maxsize=16)
def _of_tests(test_files: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Returns (a task's test files, its test folders as path prefixes)."""
    return frozenset(test_files), tuple(f"{folder}/" for folder in test_folders(test_files))


def prepare_script(
    folder: str,
    test_files: list[str],
    setup: Iterable[str],
    gold: str,
    listed: bool = True,
    imported: Iterable[str] = (),
) -> str:
    """Returns Bash that sets protected files aside in {folder}/protected.tar and applies {folder}/patch.diff.

    setup: shell lines that run first. gold: how git applies {folder}/gold.diff, the gold patch's part in
    protected files: "apply", "apply -R", or "" for not at all. imported: folders that the tests' command puts
    on PYTHONPATH. If `listed`, the script writes a tar to standard output:

    fresh: files that are new or changed after the patch, each as
        `<type> <inode> <ctime> <size> ./path\\t<link target>` and a NUL
    protected, tops: paths, each ended by a NUL
    imported: the folders on PYTHONPATH, each ended by a NUL
    way: how the patch was applied
    before.tar: the files that {folder}/touched names, as they were before the patch
    after.tar: the new or changed Python files

    The exit code is 0, or 90 if the set-up fails, 91 if the patch does not apply, 92 if files cannot be set
    aside, 93 if the gold part does not apply, 94 if the disk is full.
    """
    ungold = {"": "", "apply": "apply -R", "apply -R": "apply"}[gold]
    lists = dict(zip(("found", "before", "tops", "told"), _LISTS if listed else [""] * 4, strict=True))
    return _PREPARE.format(
        folder=folder,
        setup="\n".join(f"{{ {line}\n}} >&2 || exit 90" for line in setup),
        protected=_expression(test_files),
        metadata=" ".join(METADATA),
        gold=f"git {gold} --whitespace=nowarn $G/gold.diff >&2 || exit 93" if gold else "",
        ungold=f"git {ungold} --whitespace=nowarn $G/gold.diff >&2 || exit 93" if gold else "",
        imported=" ".join(shlex.quote(each) for each in imported),
        **lists,
    )


def to_remove(
    fresh: bytes, protected: bytes, tops: bytes, test_files: list[str], imported: bytes = b""
) -> list[str]:
    """Returns the paths to remove before protected files are restored, among paths that the patch added or
    changed.

    These are links, compiled code, new files with a protected name, and new top-level modules (not in
    `tops`). Python would import such a module in place of an existing module. imported: see `prepare_script`.
    """
    unchanged, top_names = set(protected.split(b"\0")), _normal_paths(tops)
    folders = _folders(imported)
    removed = []
    for entry in filter(None, fresh.split(b"\0")):
        kind, _, _, _, rest = entry.split(b" ", 4)
        path = rest.partition(b"\t")[0]
        name = os.fsdecode(path[2:])
        if path not in unchanged and (
            kind == b"l"
            or _is_compiled(name)
            or not SHADOWABLE.isdisjoint(_new_tops(name, top_names, folders))
            or is_protected(name, test_files)
        ):
            removed.append(name)
    return removed


def fresh_python(fresh: bytes) -> list[str]:
    """Returns the paths of the Python files that are new or changed after a patch."""
    paths = [entry.split(b" ", 4)[4].partition(b"\t")[0] for entry in fresh.split(b"\0") if entry]
    return [os.fsdecode(path[2:]) for path in paths if path.endswith(b".py")]


def _is_compiled(path: str) -> bool:
    return path.endswith(tuple(pattern.removeprefix("*") for pattern in BINARIES))


def new_modules(paths: list[str], tops: bytes, imported: bytes = b"") -> list[str]:
    """Returns the names of the top-level modules that belong to Python files and are not in `tops`.

    imported: see `prepare_script`.
    """
    before, folders = _normal_paths(tops), _folders(imported)
    return sorted({name for path in paths for name in _new_tops(path, before, folders)})


def _normal_paths(tops: bytes) -> set[str]:
    """Returns the normal forms of the paths in `tops`."""
    return {_relative(os.fsdecode(each)) for each in tops.split(b"\0") if each}


def _folders(imported: bytes) -> list[str]:
    """Returns the folders of the repository on PYTHONPATH, but not its root."""
    paths = {_relative(os.fsdecode(each)) for each in imported.split(b"\0") if each}
    return sorted(path for path in paths if path != "." and path.partition("/")[0] != "..")


def _relative(path: str) -> str:
    return posixpath.relpath(posixpath.join(WORKDIR, path), WORKDIR)


def _new_tops(path: str, before: set[str], folders: list[str]) -> set[str]:
    """Returns the names of the new top-level modules to which a path belongs.

    before: paths before the patch. Modules are imported from the root, from src and lib, and from `folders`.
    """
    first = path.partition("/")[0]
    starts = ["" if first == path or first not in ("src", "lib") else f"{first}/"]
    starts += [f"{folder}/" for folder in folders if path.startswith(f"{folder}/")]
    names = set()
    for start in starts:
        top, inner, _ = path[len(start) :].partition("/")
        if (inner or path.endswith(".py")) and start + top not in before:
            names.add(top.partition(".")[0])
    return names


def _expression(test_files: list[str]) -> str:
    parts = [f"-name {shlex.quote(name)}" for name in RUNNER_FILES]
    parts += [f"-path {shlex.quote(f'*/{name}/*')}" for name in RUNNER_FILES if name.endswith("-info")]
    parts += [f"-path './{name}' ! -path './*/*'" for name in ROOT_FILES]
    parts += [
        f"-path {shlex.quote(f'./{literal(name)}/*')}" for name in (INSTALLED, *test_folders(test_files))
    ]
    parts += [f"-path {shlex.quote(f'./{literal(name)}')}" for name in test_files]
    return " -o ".join(parts)


def literal(name: str) -> str:
    """Returns a path as a pattern of `find` that matches this path only."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in name)


_LISTS = (
    r"""
found() { find . -path ./.git -prune -o ! -type d -printf '%y %i %C@ %s %p\t%l\0' | sort -z; }
tar -c --null --no-recursion -T $G/touched -f $G/before.tar 2>/dev/null
""",
    "found >$G/before",
    r"""
shopt -s nullglob dotglob
IFS=: read -ra each <<<"${PYTHONPATH-}"
imported+=("${each[@]}")
printf '%s\0' "${imported[@]}" >$G/imported
printf '%s\0' ./* src/* lib/* >$G/tops
for each in "${imported[@]}"; do printf '%s\0' "$each"/*; done >>$G/tops
shopt -u nullglob dotglob
""",
    r"""
found | comm -z -13 $G/before - >$G/fresh
while IFS= read -r -d '' entry; do
  entry=${entry#* * * * }
  entry=${entry%%$'\t'*}
  [[ $entry != *.py || ! -f $entry || -L $entry ]] || printf '%s\0' "$entry"
done <$G/fresh >$G/python
tar -c --null --no-recursion -T $G/python -f $G/after.tar
tar -c -C $G way fresh protected tops imported before.tar after.tar
""",
)
"""The parts of the script that list what the patch changed."""

_PREPARE = r"""
G={folder}
export LC_ALL=C
imported=({imported})
{setup}
named() {{
  find . {metadata} -path ./.git -prune -o ! -type d \( {protected} -o -path '.git/*' \) -print0 2>/dev/null
}}
{found}
{gold}
named >$G/protected
tar -c --null -T $G/protected -f $G/protected.tar || {{ printf %65536s >$G/room || exit 94; exit 92; }}
{ungold}
{before}
{tops}
{{
if [ ! -s $G/patch.diff ]; then echo none >$G/way
elif git apply --whitespace=nowarn $G/patch.diff; then echo git >$G/way
elif git apply --whitespace=nowarn --3way $G/patch.diff; then echo 3way >$G/way; git reset -q
else
  git reset -q --hard; git clean -qfd
  {before}
  patch --batch --forward --dry-run --fuzz=5 -p1 -i $G/patch.diff &&
    patch --batch --forward --fuzz=5 -p1 --no-backup-if-mismatch -i $G/patch.diff && echo patch >$G/way
fi
}} >&2
[ -s $G/way ] || exit 91
{told}
"""

NOT_PUT_BACK = "{ printf %65536s >$G/room || exit 94; exit 92; }"
"""Bash for the case that files cannot be written: exit code 94 if the disk is full, else 92."""

RESTORE = f"""\
[ ! -s $R ] || xargs -0 rm -rf -- <$R
rm -rf {" ".join(METADATA)}
tar -x --unlink-first -f $G/protected.tar || {NOT_PUT_BACK}
"""
"""Bash that removes the paths listed in $R and restores protected files.

On failure exits as NOT_PUT_BACK does.
"""
