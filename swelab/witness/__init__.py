"""What a patch must say: tests in question form, and the judgement of the values that they emit.

`forming` turns tests into questions: assertions become statements that emit the values of their operands, and
what is expected is cut out. `inside` runs beside them in the sandbox. `judgement` holds the values that the
gold patch said, and judges what another patch says. This room knows Python source and plain data; it knows no
sandbox, no task and no store.
"""

from importlib import resources

CHANNEL = "SWELAB_QUESTION_CHANNEL"
MODULE = "question_runtime"


def runtime_files() -> dict[str, bytes]:
    """The modules that question files import, by file name: to be put into a folder on PYTHONPATH.

    They need the standard library of Python 3.6 or newer. Values leave by the environment variable `CHANNEL`:
    the number of an inherited file descriptor, or the path of a FIFO. Without it nothing is said. A run emits
    at most 8 MB; the command must run with PYTHONHASHSEED=0.
    """
    code = resources.files("swelab.witness.inside")
    return {name: (code / name).read_bytes() for name in (f"{MODULE}.py", "canonical_data.py")}
