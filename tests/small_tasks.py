"""Small debugging tasks in the shape of published rows, made from a seed: one code file, one test file.

By hand: `python -m tests.small_tasks 100 rows.parquet repairs.jsonl`.
"""

import difflib
import json
import random
import sys
from pathlib import Path

from swelab.tasks.drill_text import NOUNS, SHAPES, VERBS, make_function

ENTRYPOINT = "python -m pytest --tb=no -s test.py"
STATEMENT = "Some tests fail. Find the fault and repair it."


def made(number, functions=8, seed=0):
    """Returns (row, its code without the fault).

    One function of the module has a fault that a test detects.
    """
    rng = random.Random(f"{seed} {number}")
    name = f"made_{number:05d}"
    path = f"{name}_code.py" if number % 2 else "solution.py"
    names = [f"{verb}_{noun}" for verb in VERBS for noun in NOUNS]
    found = [
        make_function(rng, each, path, SHAPES[at % len(SHAPES)])
        for at, each in enumerate(rng.sample(names, functions))
    ]
    broken = rng.choice(found)
    mutation = next(
        each for each in rng.sample(broken.mutations, len(broken.mutations)) if _shows(broken, each)
    )
    sound = "\n\n\n".join("\n".join(each.lines()) for each in found) + "\n"
    code = "\n\n\n".join("\n".join(f.lines(mutation if f is broken else None)) for f in found) + "\n"
    cases = [case for each in found for case in each.asserts]
    tests = f"from {path.removesuffix('.py')} import {', '.join(each.name for each in found)}\n"
    tests += "".join(f"\n\ndef test_case_{at}():\n    assert {case}\n" for at, case in enumerate(cases))
    files = [{"path": "test.py", "content": tests}, {"path": path, "content": code}]
    extra = {"entrypoint": ENTRYPOINT, "files": files, "task_name": name}
    prompt = json.dumps([{"role": "user", "content": STATEMENT}])
    row = {"task_id": name, "problem_statement": STATEMENT, "prompt": prompt, "extra_info": extra}
    return row, sound


def _shows(function, mutation):
    """Returns whether a case of the function's test fails with the mutation."""
    names = {}
    exec("\n".join(function.lines(mutation)), names)  # noqa: S102
    for case in function.asserts:
        try:
            if not eval(case, names):  # noqa: S307
                return True
        except Exception:  # noqa: BLE001
            return True
    return False


def code_of(row):
    """Returns (path, text) of the row's code file."""
    file = next(each for each in row["extra_info"]["files"] if each["path"] != "test.py")
    return file["path"], file["content"]


def change(path, before, after):
    """Returns a patch of one file that turns `before` into `after`. None means that there is no file."""
    lines = [[] if text is None else text.splitlines(keepends=True) for text in (before, after)]
    old, new = (
        ("/dev/null" if before is None else f"a/{path}"),
        ("/dev/null" if after is None else f"b/{path}"),
    )
    kind = (
        "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
    )
    return f"diff --git a/{path} b/{path}\n{kind}" + "".join(difflib.unified_diff(*lines, old, new))


def write_rows(rows, path):
    """Writes rows in the form of the published Parquet file."""
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def write_repairs(pairs, path):
    """Writes the repairs of (row, sound code) pairs as predictions."""
    with open(path, "w", encoding="utf-8") as stream:
        for row, sound in pairs:
            name, text = code_of(row)
            patch = change(name, text, sound)
            told = {"instance_id": row["task_id"], "model_name_or_path": "made", "model_patch": patch}
            stream.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    count, rows_path, repairs_path = sys.argv[1:]
    pairs = [made(number) for number in range(int(count))]
    write_rows([row for row, _ in pairs], Path(rows_path))
    write_repairs(pairs, Path(repairs_path))
