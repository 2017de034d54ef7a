"""Computes the changes in a sandbox's working copy as a patch."""

from swelab.sandbox.protocol import Limits, Sandbox

_DIFF = (
    "git -c core.fsmonitor= -c core.hooksPath=/dev/null -c core.excludesFile=/dev/null add -A && "
    "git -c core.fsmonitor= --no-pager diff --cached --binary --no-color --no-ext-diff --no-textconv {base}"
)
_LIMITS = Limits(output_bytes=16 << 20, wall_seconds=120)


def diff(sandbox: Sandbox, base: str) -> str:
    """Returns the diff against the commit `base`, including new files.

    Returns "" if git fails, or if the diff has more than 16 MiB. Raises SandboxError.
    """
    result = sandbox.exec(_DIFF.format(base=base), limits=_LIMITS)
    if result.returncode or result.dropped_bytes:
        return ""
    return result.output.decode("utf-8", "surrogateescape")
