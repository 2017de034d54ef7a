"""How records should be held: 50,000 rows read as plain dicts, and as typed records of five kinds.

    .venv/bin/python -m benchmarks.records [--rows 50000]

Writes that many grades and task rows to a temporary folder, and one trajectory of 2 MB for each 2,500 of
them. Each way reads all of them, checks them against their schema and holds them, in a process of its own.
Prints seconds of CPU and the largest memory of each, without those of imports; then ratio_vs_dicts=...;
exit code 1 when the library's way takes more than 1.2 times the seconds of plain dicts. `kept` says whether
the way can write a row again byte by byte: with fields that it does not know, in their order, and with bytes
that are not UTF-8.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from swelab.console.terminal import run_script
from swelab.records import Record, check, line, read_jsonl, write_jsonl
from swelab.records.attempt_records import Grade, Trajectory
from swelab.records.task_records import Task
from swelab.records.typed import TypedRecord

KINDS: dict[str, type[TypedRecord]] = {"grade": Grade, "task": Task, "trajectory": Trajectory}
LIMIT = 1.2
ODD = {"further": {"b": 1, "a": 2**70}, "model_patch": "caf\udce9", "null": None}
TESTS = [f"tests/test_depot_quota.py::test_{word}_bridge" for word in "abcdefgh"]
PATCH = "--- a/quota.py\n+++ b/quota.py\n@@ -7,1 +7,1 @@\n-    return left + 1\n+    return left\n"
BASE = {"policy": "scripted", "subset": "drill-train"}
Reader = Callable[[dict[str, Any]], Any]


@dataclass
class Way:
    """One way of holding records: its reader by kind. checks: the schema checks its rows; by_bytes: it reads
    JSON itself."""

    reader: Callable[[type[TypedRecord]], Callable[[Any], Any]]
    checks: bool = True
    by_bytes: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=sorted(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(measured(WAYS[args.way], args.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name), args.rows)
        figures = {way: best(way, name, args.repeats) for way in WAYS}
    print(f"{'way':<22} {'CPU s':>8} {'peak MiB':>9} {'ratio':>6}  kept")
    for way, (seconds, peak, kept) in figures.items():
        print(f"{way:<22} {seconds:>8.2f} {peak:>9.0f} {seconds / figures['dict'][0]:>6.2f}  {kept}")
    ratio = figures["typed dict (ours)"][0] / figures["dict"][0]
    print(f"ratio_vs_dicts={ratio:.3f}")
    sys.exit(ratio > LIMIT)


def best(way: str, folder: str, repeats: int) -> tuple[float, float, str]:
    """Least seconds of CPU, its memory, and whether rows survive."""
    command = [sys.executable, "-m", "benchmarks.records", "--way", way, "--folder", folder]
    runs = [json.loads(subprocess.check_output(command, text=True)) for _ in range(repeats)]
    return min((seconds, peak, "yes" if kept else "no") for seconds, peak, kept in runs)


def measured(way: Way, folder: Path) -> tuple[float, float, bool]:
    """Seconds of CPU and MiB of reading all rows; whether a row with odd fields can be written again."""
    readers = {kind: way.reader(record) for kind, record in KINDS.items()}
    start = resource.getrusage(resource.RUSAGE_SELF)
    held = []
    for kind, reader in readers.items():
        path = folder / f"{kind}.jsonl"
        for row in open(path, "rb") if way.by_bytes else read_jsonl(path):
            if way.checks:
                check(row, KINDS[kind], folder)
            held.append(reader(row))
    end = resource.getrusage(resource.RUSAGE_SELF)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    row = next(read_jsonl(folder / "trajectory.jsonl")) | ODD
    try:
        again = readers["trajectory"](line(row) if way.by_bytes else row)
        kept = line(again) == line(row)
    except Exception:
        kept = False
    return seconds, (end.ru_maxrss - start.ru_maxrss) / 1024, kept


def write_rows(folder: Path, count: int) -> None:
    """`count` grades and tasks, and a trajectory of 2 MB for each 2,500 of them, as results hold them."""
    names = [f"swelab__drill.3b30a5a0.func_pm_const_change__{number:08x}" for number in range(count)]
    write_jsonl(folder / "grade.jsonl", (_grade(at, name) for at, name in enumerate(names)))
    write_jsonl(folder / "task.jsonl", (_task(at, name) for at, name in enumerate(names)))
    turns = [{"role": "user", "content": "x" * 40_000, "extra": {"number": at}} for at in range(50)]
    shape = {**BASE, "outcome": "submitted", "model_patch": PATCH, "messages": turns}
    shape |= {"info": {"exit_status": "Submitted"}, "trajectory_format": "mini-swe-agent-1.1"}
    write_jsonl(folder / "trajectory.jsonl", ({"instance_id": name} | shape for name in names[::2_500]))


def _grade(at: int, name: str) -> Record:
    status = {"success": TESTS, "failure": []}
    return (
        {"instance_id": name, "status": "resolved", "resolved": True, "reason": ""}
        | {"patch_sha256": f"{at:064x}", "seconds": at / 1000}
        | {"tests_status": {"FAIL_TO_PASS": status, "PASS_TO_PASS": status}, "run": f"{at:064x}"}
        | {"outcome": "submitted", **BASE, "key": f"{at:064x}"}
    )


def _task(at: int, name: str) -> Record:
    return (
        {"instance_id": name, "repo": "swelab/drill", "patch": f"{PATCH}{at}\n"}
        | {"problem_statement": f"`quota` returns one too few for {at}.\n", "FAIL_TO_PASS": TESTS[:1]}
        | {"PASS_TO_PASS": TESTS[1:], "image_name": "drill", "base_commit": f"{at:040x}"}
        | {"repo_recipe": "drill", "test_cmd": "python -m pytest -rA", "log_parser": "parse_log_pytest"}
        | {"test_files": ["tests/test_depot_quota.py"], "test_timeout": 60, "hint": "the sum", "bug": name}
    )


def plain(kind: Any) -> Any:
    """A field's type for another library: records inside it as dicts."""
    if isinstance(kind, type) and issubclass(kind, TypedRecord):
        return dict[str, Any]
    if hasattr(kind, "__metadata__"):
        return kind.__origin__
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, dict):
        return origin[*(plain(each) for each in arguments)]
    if arguments and None.__class__ in arguments:
        return Union[*(plain(each) for each in arguments)]
    return kind


def fields(record: type[TypedRecord]) -> list[tuple[str, Any]]:
    """Names and types, required ones first; all may be None."""
    return [(name, plain(kind) | None) for name, (kind, _) in record.declared.items()]


def as_dataclass(record: type[TypedRecord]) -> Reader:
    """A slotted dataclass; unknown fields in a dict of their own."""
    from dataclasses import field, make_dataclass

    named = [(name, kind, None) for name, kind in fields(record)]
    made = make_dataclass("Made", [*named, ("rest", dict, field(default_factory=dict))], slots=True)
    known = {name for name, _ in fields(record)}

    def read(row: dict[str, Any]) -> Any:
        rest = {name: value for name, value in row.items() if name not in known}
        return made(**{name: value for name, value in row.items() if name in known}, rest=rest)

    return read


def as_struct(record: type[TypedRecord]) -> Reader:
    """A msgspec.Struct, converted and checked by msgspec; unknown fields in a dict of their own."""
    import msgspec

    made = msgspec.defstruct("Made", [(name, kind, None) for name, kind in fields(record)])
    known = {name for name, _ in fields(record)}

    def read(row: dict[str, Any]) -> Any:
        rest = {name: value for name, value in row.items() if name not in known}
        return msgspec.convert(row, made), rest

    return read


def as_decoded_struct(record: type[TypedRecord]) -> Callable[[bytes], Any]:
    """A msgspec.Struct that msgspec reads from the line; it passes over unknown fields."""
    import msgspec

    made = msgspec.defstruct("Made", [(name, kind, None) for name, kind in fields(record)])
    return msgspec.json.Decoder(made).decode


def as_pydantic(record: type[TypedRecord]) -> Reader:
    """A pydantic model that keeps unknown fields."""
    import pydantic

    named: Any = {name: (kind, None) for name, kind in fields(record)}
    made: Any = pydantic.create_model("Made", __config__=pydantic.ConfigDict(extra="allow"), **named)
    return made.model_validate


WAYS: dict[str, Way] = {
    "dict": Way(lambda record: lambda row: row),
    "typed dict (ours)": Way(lambda record: record.of),
    "dataclass": Way(as_dataclass),
    "msgspec.Struct": Way(as_struct, checks=False),
    "msgspec.Struct, bytes": Way(as_decoded_struct, checks=False, by_bytes=True),
    "pydantic": Way(as_pydantic, checks=False),
}


if __name__ == "__main__":
    run_script(main)
