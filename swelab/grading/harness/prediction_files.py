"""Writes out the contents of the files that a patch moves, copies or has in binary form."""

from swelab.grading.harness.spec import RunSpec
from swelab.records.patch_contents import Files, resolve
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.records.patches import Patch
from swelab.sandbox import Limits, Sandbox
from swelab.sandbox.working_copy import plain_files

_LIMITS = Limits(wall_seconds=300, cpu_seconds=300)


def whole_files(spec: RunSpec, patch: Patch, sandbox: Sandbox) -> Patch:
    """Returns the patch as `resolve` does, with the files of a fresh sandbox of its task.

    A file that is restored before the tests run is no source: a patch would bring the tests along as data. If
    a patch moves such a file to a place that is restored too, the change is left out. Raises PatchRefused,
    SandboxError.
    """
    protected = [each for each in patch.changes if each.source and spec.protects(each.source)]
    if away := [each.source for each in protected if not spec.protects(each.path)]:
        raise PatchRefused(f"the patch takes the content of {away[0]!r}, a file by which it is judged")

    def files(names: list[str]) -> Files:
        if spec.setup:
            sandbox.exec("\n".join(spec.setup), limits=_LIMITS)  # checks out the task's own commit
        return plain_files(sandbox, names)

    return resolve(patch.only(lambda change: change not in protected), files)


def protected_gold(spec: RunSpec) -> str:
    """Returns the gold patch's part in protected files, or "" if the gold patch cannot be read."""
    try:
        patch = read_patch(spec.gold)
    except PatchRefused:
        return ""
    return patch.only(lambda change: any(map(spec.protects, (change.path, change.source)))).text
