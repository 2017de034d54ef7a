"""Writes published data sets as input files of SWE-RL's and Miles' programs: prompt rows, ids, image
names."""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from swelab.evaluation.benchmark_rows import Source, read_benchmark
from swelab.evaluation.eval_scripts import with_script
from swelab.records import InputError, Record, write_bytes, write_jsonl
from swelab.records.task_records import Task
from swelab.tasks.exports import docker_image, slime_row

FORMS = ("slime", "miles")
ASSETS = ("instance_ids.txt", "docker_images.txt", "verified_eval.jsonl")
VACUOUS = "rows without eval_script: a trainer that judges by it alone would call every patch right"


def write_prompts(source: Source, path: Path, most: int = 0, form: str = FORMS[0]) -> Record:
    """Writes prompt rows of a data set, with all columns. Returns the number of rows, and the counts of
    omitted rows.

    most: maximum number of rows. 0 writes all. form: one of FORMS. Raises InputError, HubError.
    """
    names: set[str] = set()
    reasons: Counter[str] = Counter()

    def rows() -> Iterator[Record]:
        for where, raw in source.rows():
            row = raw if isinstance(raw, dict) else {}
            name, text = row.get("instance_id"), row.get("problem_statement")
            reason = "not a row of tasks" if not name or not isinstance(text, str) else ""
            reason = reason or ("repeated" if name in names else "")
            if reason:
                reasons[reason] += 1
                print(f"left out: {where}: {reason}", file=sys.stderr)
                continue
            names.add(str(name))
            reasons[VACUOUS] += not str(row.get("eval_script") or "").strip()
            yield prompt_row(source, row, form)

    found = rows()
    if (first := next(found, None)) is None:
        raise InputError("none of its rows has instance_id and problem_statement", source.data)
    write_jsonl(path, islice(chain([first], found), most or None))
    counts = {reason: count for reason, count in reasons.items() if count}
    return {"rows": min(len(names), most or len(names)), "left_out": counts}


def prompt_row(source: Source, row: Record, form: str) -> Record:
    """Converts a task's row to a prompt row of slime (SWE-RL) or Miles. Miles' field `subset` says whose
    images are used: SWE-bench Verified's or SWE-Gym's."""
    if form == "slime":
        instance = {"instance": row, "data_source": set_name(source.data)}
        return {"text": row["problem_statement"], "metadata": instance}
    subset = "gym" if source.images == "swe-gym" else "verified"
    return {"prompt": row["problem_statement"], "metadata": {**row, "subset": subset, "split": source.split}}


def set_name(data: str) -> str:
    """Returns the value of `data_source`: the data set's name. Programs derive image names from this
    value."""
    return data.partition("@")[0]


def write_assets(source: Source, folder: Path) -> Record:
    """Writes ASSETS into `folder`. Returns the number of lines of each file, and the refused rows with
    reasons.

    Every row of verified_eval.jsonl has an eval script that can fail. Raises HubError, and InputError if no
    row is left.
    """
    benchmark = read_benchmark(source)
    scripted: list[Task] = []
    for task in benchmark.tasks:
        try:
            scripted.append(with_script(task))
        except InputError as error:
            benchmark.refused[task.instance_id] = str(error)
    if not scripted:
        first = next(iter(benchmark.refused.values()))
        raise InputError(f"none of {benchmark.rows} rows has a usable eval script: {first}", source.data)
    images = list(dict.fromkeys(filter(None, (docker_image(task, {}) for task in scripted))))
    write_bytes(folder / ASSETS[0], "".join(f"{task.instance_id}\n" for task in scripted).encode())
    write_bytes(folder / ASSETS[1], "".join(f"{full_name(image)}\n" for image in images).encode())
    write_jsonl(folder / ASSETS[2], (slime_row(task, set_name(source.data)) for task in scripted))
    return {
        "lines": {ASSETS[0]: len(scripted), ASSETS[1]: len(images), ASSETS[2]: len(scripted)},
        "refused": benchmark.refused,
    }


def full_name(image: str) -> str:
    """Returns the image's name with a registry. A name without a registry gets `docker.io/` as prefix."""
    first = image.partition("/")[0]
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"
