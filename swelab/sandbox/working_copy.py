"""Reads a sandbox's working copy: its changes as a patch, and files as they are."""

import os
import secrets
from contextlib import suppress

from swelab.records.patch_contents import Files
from swelab.sandbox.protocol import Limits, PathRefused, Sandbox

_DIFF = r"""
set -u
unset ${{!GIT_@}}
base={base} new=$(mktemp -d /tmp/swelab-diff.XXXXXXXX) || exit
trap 'rm -rf "$new"' EXIT
mkdir -p "$new/objects/info" "$new/refs" "$new/info" || exit
echo 'ref: refs/heads/main' >"$new/HEAD"
printf '[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n' >"$new/config"
[ ${{#base}} != 64 ] ||
    printf '\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n' >>"$new/config"
printf '%s\n' "$PWD/.git/objects" >"$new/objects/info/alternates"
cp .git/info/exclude "$new/info/exclude" 2>/dev/null
echo '* !diff' >"$new/info/attributes"
export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_DIR=$new GIT_WORK_TREE=$PWD GIT_ATTR_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1
git read-tree "$base" && git -c core.fsync=none add -A &&
    git --no-pager diff --cached --binary --no-color --no-renames --no-ext-diff --no-textconv "$base"
"""
"""Bash that compares the files with the commit `base` in a new repository.

The new repository has no configuration, index, hook or replacement of the old one. Of the old repository it
uses the objects, and the list of files to ignore. The attributes of files decide about line ends, as when the
base was committed, but not about diffs.
"""
_LIMITS = Limits(output_bytes=16 << 20, wall_seconds=120)
_EXECUTABLE = """while IFS= read -r -d '' each; do
    [ ! -x "$each" ] || printf '%s\\0' "$each"
done <{0}/names >{0}/executable"""


def diff(sandbox: Sandbox, base: str) -> str:
    """Returns the diff against the commit `base`, including new files. A renamed file is a removed and a new
    one.

    Returns "" if git fails, or if the diff has more than 16 MiB. Raises SandboxError.
    """
    result = sandbox.exec(_DIFF.format(base=base), limits=_LIMITS)
    if result.returncode or result.dropped_bytes:
        return ""
    return result.output.decode("utf-8", "surrogateescape")


def plain_files(sandbox: Sandbox, names: list[str], folder: str = ".") -> Files:
    """Returns those of the files that are plain files of the working copy. Follows no link.

    folder: where the names start, relative to the working copy or absolute. Raises SandboxError.
    """
    lists = f"/tmp/swelab-{secrets.token_hex(8)}"
    paths = {name: f"{folder}/{name}" for name in names}
    sandbox.put(f"{lists}/names", b"".join(os.fsencode(path) + b"\0" for path in paths.values()))
    sandbox.exec(_EXECUTABLE.format(lists), limits=_LIMITS).check()
    executable = {os.fsdecode(path) for path in sandbox.get(f"{lists}/executable").split(b"\0")}
    sandbox.exec(f"rm -rf {lists}")
    files: Files = {}
    for name, path in paths.items():
        with suppress(PathRefused, FileNotFoundError):
            files[name] = sandbox.get(path), path in executable
    return files
