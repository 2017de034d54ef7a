"""Tests in question form, and the judgement of the values that a patch emits in them.

`forming` turns tests into questions: assertions become statements that emit the values of their operands, and
expected values are removed. `inside` is the code that runs with them in the sandbox. `judgement` compares the
values that a patch emits with the gold patch's values. This room knows Python source and plain data; it knows
no sandbox, no task and no store.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources

CHANNEL = "SWELAB_QUESTION_CHANNEL"
NEEDS = "SWELAB_QUESTION_NEEDS"
MODULE = "question_runtime"
CASES = "question_cases.json"


def runtime_files(cases: Mapping[str, Sequence[int]] | None = None) -> dict[str, bytes]:
    """The modules that question files import, by file name. They must be in a folder on PYTHONPATH.

    They need the standard library of Python 3.6 or newer. The environment variable `CHANNEL` tells where to
    write the values: the number of an inherited file descriptor, or the path of a FIFO. Without it nothing is
    emitted. A run emits at most 8 MB; the command must run with PYTHONHASHSEED=0. With the variable `NEEDS`
    the run emits the names of the repository's files that it opened. cases: numbers of the cases to run, by
    name of a question's file (`emitted.asked_cases`); other files run all cases.
    """
    code, names = resources.files("swelab.witness.inside"), (MODULE, "canonical_data", "opened_files")
    files = {f"{name}.py": (code / f"{name}.py").read_bytes() for name in names}
    return files | ({CASES: json.dumps(cases).encode()} if cases else {})
