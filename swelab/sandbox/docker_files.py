"""Implements `put` and `get` of a docker sandbox by small shell scripts.

The scripts run in the sandbox with the rights of its user, so they can reach only files that a command can
reach. They refuse symlinks, and check a file again after opening it. So a command that replaces the file in
the meantime gains nothing.
"""

import errno

from swelab.sandbox.protocol import PathRefused, SandboxLost
from swelab.sandbox.safe_files import locate

_REFUSED, _ABSENT, _FULL = 41, 42, 43
# Arguments: /testbed or /tmp, each folder of the path below it, and the file's name.
_WALK = r"""
LC_ALL=C
umask 022
end() { cat >/dev/null; echo "$2"; exit "$1"; }
said() { case $1 in *"No space left"*) end 43 "$1" ;; *) end 41 "$1" ;; esac; }
here=$1
shift
cd -P -- "$here" && [[ $PWD == "$here" ]] || end 41 "no such folder"
while (($# > 1)); do
    if [[ ! -e ./$1 && ! -L ./$1 ]]; then
        MISSING
    fi
    [[ ! -L ./$1 && -d ./$1 ]] || end 41 "$1 is a link or no folder"
    here+=/$1
    cd -P -- "./$1" 2>/dev/null && [[ $PWD == "$here" ]] || end 41 "$1 is a link or cannot be opened"
    shift
done
[[ ! -L ./$1 ]] || end 41 "it is a link"
[[ ! -e ./$1 || -f ./$1 ]] || end 41 "it is not a regular file"
"""
_PUT = (
    _WALK.replace("MISSING", 'why=$(mkdir -m 755 -- "./$1" 2>&1) || [[ -d ./$1 ]] || said "$why"')
    + r"""
mode=644
[[ ! -e ./$1 ]] || mode=$(stat -c %a -- "./$1")
new=.swelab-$$-$RANDOM$RANDOM$RANDOM
set -C
: 2>/dev/null >"./$new" || said "$(: 2>&1 >"./$new")"
set +C
why=$(cat 2>&1 >"./$new" && chmod "$mode" "./$new" 2>&1 && mv -fT -- "./$new" "./$1" 2>&1) && exit 0
rm -f -- "./$new"
said "$why"
"""
)
_GET = (
    "most=$1\nshift\n"
    + _WALK.replace("MISSING", 'end 42 ""')
    + r"""
[[ -e ./$1 ]] || end 42 ""
exec 4<"./$1" || end 41 "it cannot be opened"
[[ ! -L ./$1 && ./$1 -ef /proc/self/fd/4 ]] || end 41 "it was replaced meanwhile"
exec head -c "$most" <&4
"""
)


def put_words(path: str) -> list[bytes]:
    """Returns the arguments of a `bash -c` that writes its stdin to the file `path`. Raises PathRefused."""
    return [_PUT.encode(), b"bash", *_parts(path)]


def get_words(path: str, max_bytes: int) -> list[bytes]:
    """Returns the arguments of a `bash -c` that prints up to `max_bytes` + 1 bytes of a file.

    Raises PathRefused.
    """
    return [_GET.encode(), b"bash", str(max_bytes + 1).encode(), *_parts(path)]


def check_ending(path: str, code: int, message: bytes) -> None:
    """Raises an error if a script's exit code is not 0. message: the script's output.

    Raises PathRefused, FileNotFoundError, OSError (disk full), SandboxLost.
    """
    if not code:
        return
    text = message.decode(errors="replace").strip().splitlines()
    why = text[-1] if text else f"exit {code}"
    if code == _REFUSED:
        raise PathRefused(f"{path!r}: {why}")
    if code == _ABSENT:
        raise FileNotFoundError(errno.ENOENT, "no such file in the sandbox", path)
    if code == _FULL:
        raise OSError(errno.ENOSPC, "No space left on device in the sandbox", path)
    raise SandboxLost(f"the sandbox could not handle {path!r}: {why}")


def _parts(path: str) -> list[bytes]:
    folder, parts = locate(path)
    root = {"testbed": b"/testbed", "tmp": b"/tmp"}[folder]
    return [root, *(part.encode("utf-8", "surrogateescape") for part in parts)]
