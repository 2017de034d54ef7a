"""Computes the diff of a sandbox's repository, and the verdict on a patch.

The client sends a script, whose exit code is the verdict.
"""

import hashlib
import re
import shlex
from dataclasses import replace

from swelab.pool.host_sandbox import HostSandbox
from swelab.pool.request_schemas import PoolRequest
from swelab.records import Record
from swelab.records.patch_contents import Files, resolve
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.sandbox.protocol import Limits
from swelab.sandbox.remote_protocol import Refused
from swelab.sandbox.working_copy import plain_files

DIFF = (
    "export GIT_NO_REPLACE_OBJECTS=1; git add -A >/dev/null 2>&1 &&"
    " git diff --cached --no-renames --no-ext-diff --no-textconv 2>/dev/null"
)
_CLEAR = (
    r"git apply --numstat -z %s.diff 2>/dev/null | sed -z 's/^[^\t]*\t[^\t]*\t//'"
    " | xargs -0 -r git --literal-pathspecs clean -fdqx --"
)
"""Removes untracked files that a patch would add. A patch is applied to the index, too, so that the next
reset removes the files that it added."""
_STRICT = re.compile(r"^\s*set\s+(-[a-z]*e|-o\s+errexit)", re.MULTILINE)
_SHOWN = 2000  # maximum number of characters of output that `evaluate` returns


def check_script(script: str) -> None:
    """Raises Refused unless the script uses `set -e`.

    Without `set -e`, the script's exit code does not show whether a command failed.
    """
    if not _STRICT.search(script):
        raise Refused(
            "eval_script: expected `set -e`; without it the exit code says nothing about its commands"
        )


def inside(request: PoolRequest) -> str:
    """Returns the start of a bash command that changes to the requested folder.

    The caller appends a command.
    """
    return f"cd -- {shlex.quote(request.cwd)} && "


def as_text(data: bytes) -> str:
    """Decodes bytes as UTF-8. Invalid bytes become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def evaluate(sandbox: HostSandbox, request: PoolRequest, limits: Limits) -> Record:
    """Resets the repository to the last commit, applies a patch, and runs a script.

    Files that an earlier patch added, and untracked files in the patch's place, are removed. Other untracked
    files stay, such as what the image's build made. `resolved` in the result is true if the patch applies and
    the script exits with 0.
    """
    start = f"{inside(request)} git reset -q --hard HEAD"

    def files(names: list[str]) -> Files:
        sandbox.box.exec(start, limits=replace(limits, wall_seconds=120))
        return plain_files(sandbox.box, names, request.cwd)

    try:
        patch = resolve(read_patch(request.patch), files).text
    except PatchRefused as refusal:
        return {"resolved": False, "error": "the patch does not apply", "output": str(refusal)}
    name = f"/tmp/.swelab-{hashlib.sha256(request.eval_script.encode()).hexdigest()[:16]}"
    sandbox.box.put(f"{name}.diff", patch.encode("utf-8", "surrogateescape"))
    sandbox.box.put(f"{name}.sh", request.eval_script.encode("utf-8", "surrogateescape"))
    apply = f"{{ test ! -s {name}.diff || {{ {_CLEAR % name}; git apply --index {name}.diff; }}; }}"
    command = f"{start} && {apply}"
    applied = sandbox.box.exec(command, limits=replace(limits, wall_seconds=120))
    if applied.returncode:
        shown = as_text(applied.output)[-_SHOWN:]
        return {"resolved": False, "error": "the patch does not apply", "output": shown}
    result = sandbox.box.exec(f"{inside(request)} exec bash {name}.sh", limits=limits)
    if result.limit not in ("", "output"):
        error = f"limit: {result.limit}"
        return {"resolved": False, "error": error, "returncode": result.returncode, "output": ""}
    shown = as_text(result.output)[-_SHOWN:]
    return {"resolved": result.returncode == 0, "returncode": result.returncode, "output": shown}
