"""Names in code that give access to state that outlives a sandbox, such as which pages of a file are cached.

One run of a task could leave values in such state for a later run. So code with such names stays suspect even
if its values are correct.
"""

import ast
import re
from collections.abc import Iterable, Mapping

OUTLIVES = "which outlives the run"
"""A phrase that each finding about lasting state contains."""

MODULES = frozenset({"fcntl", "mmap"})
POWERS = frozenset({"fcntl.fcntl", "mmap.__new__"})
"""Names of the interpreter's audit events for lasting state."""

NAMES = frozenset(
    "posix_fadvise POSIX_FADV_DONTNEED POSIX_FADV_WILLNEED pread preadv RWF_NOWAIT RWF_HIPRI mincore "
    "readahead sync_file_range madvise".split()
)
_OF_DESCRIPTORS = frozenset(
    ["open", "io.open"]
    + [f"os.{name}" for name in "fdopen read readv write lseek dup dup2 fstat fsync ftruncate".split()]
)
_FIRST_DESCRIPTOR = 3
"""The lowest file descriptor that is not a standard stream."""


_MEMORY_CONSTANTS = re.compile("PAGESIZE|ALLOCATIONGRANULARITY|(ACCESS|PROT|MAP)_[A-Z]+")


def only_anonymous_memory(nodes: Iterable[ast.AST], modules: Mapping[str, str]) -> bool:
    """Returns whether code uses the module mmap only for memory that belongs to no file: `mmap.mmap(-1, n)`.

    Such memory ends with its process. modules: as for `descriptor`.
    """
    plain: set[int] = set()
    uses: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "-1":
            plain |= {id(node.func), id(getattr(node.func, "value", None))}
        elif isinstance(node, ast.Attribute) and _MEMORY_CONSTANTS.fullmatch(node.attr):
            plain.add(id(node.value))
        if isinstance(node, ast.Name) and modules.get(node.id, "").partition(".")[0] == "mmap":
            uses.add(id(node))
    return bool(uses) and uses <= plain


def remark(name: str) -> str:
    """Returns the text to append to a finding if the name gives access to state that outlives the run.

    Otherwise returns "".
    """
    lasting = name in NAMES | MODULES or name.startswith(("/proc/", "/dev/fd"))
    return f", {OUTLIVES}" if lasting else ""


def descriptor(call: ast.Call, modules: Mapping[str, str]) -> int | None:
    """Returns the number of a file descriptor if a call has it as a constant, otherwise None.

    Honest code keeps the descriptor of a file that it opened in a variable. modules: maps each imported name
    to the module or member that it stands for.
    """
    function, number = call.func, getattr(call.args[0], "value", None) if call.args else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{modules.get(function.value.id, function.value.id)}.{function.attr}"
    else:
        name = modules.get(function.id, function.id) if isinstance(function, ast.Name) else ""
    if name in _OF_DESCRIPTORS and type(number) is int and number >= _FIRST_DESCRIPTOR:
        return number
    return None
