"""Turns tests into questions, and judges the values that a patch emits when the questions run.

In a question, assertions are replaced by statements that emit the values of their operands, and expected
values are removed. `forming` turns tests into questions. `inside` is the code that runs with them in the
sandbox. `judgement` compares the values that a patch emits with the gold patch's values. This package handles
only Python source and plain data. It does not depend on sandboxes, tasks or storage.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources

CHANNEL = "SWELAB_QUESTION_CHANNEL"
NEEDS = "SWELAB_QUESTION_NEEDS"
MODULE = "question_runtime"
CASES = "question_cases.json"


def runtime_files(cases: Mapping[str, Sequence[int]] | None = None) -> dict[str, bytes]:
    """Returns the modules that question files import, by file name. They must be in a folder on PYTHONPATH.

    They need the standard library of Python 3.6 or newer. The environment variable `CHANNEL` says where to
    write values: the number of an inherited file descriptor, or the path of a FIFO. Without the variable,
    nothing is emitted. A run emits at most 8 MB and must have PYTHONHASHSEED=0. If the environment variable
    `NEEDS` is set, the run also emits the names of the repository's files that it opened. cases: maps the
    name of a question file to the numbers of the cases to run (`emitted.asked_cases`). All cases of other
    files run.
    """
    code, names = resources.files("swelab.witness.inside"), (MODULE, "canonical_data", "opened_files")
    files = {f"{name}.py": (code / f"{name}.py").read_bytes() for name in names}
    return files | ({CASES: json.dumps(cases).encode()} if cases else {})
