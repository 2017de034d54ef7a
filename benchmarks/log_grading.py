"""How long it takes to judge a finished run: ours beside swebench's grader, both from files.

    .venv/bin/python -m benchmarks.log_grading [--tests 200 2000] [--rounds 200]

Prints a table, then `ratio_vs_swebench_<tests>=...`: swebench's seconds a log over ours, for the same
log. Ours is timed twice: by the log alone, and with the observer's record, which swebench has no
counterpart of.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from swebench.harness.grading import get_eval_report
from swebench.types import TestSpec

from swelab.console.terminal import run_script
from swelab.grading.evidence import RunEvidence
from swelab.grading.harness.observer_record import observed, read_record
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.spec import RunSpec
from swelab.grading.harness.verdict import verdict

NONCE, KEY = "0" * 16, "0" * 64
MARKS = (">>>>> Start Test Output\n", ">>>>> End Test Output\n>>>>> Test Exit Code: 0\n")


def median(step: Callable[[], bool], rounds: int) -> float:
    """Median seconds of a step that must say that the patch is resolved."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        assert step()
        times.append(time.perf_counter() - start)
    return sorted(times)[rounds // 2]


def log_of(tests: list[str]) -> str:
    """A log of `pytest -rA`: progress, captured output, one status line a test."""
    noise = "".join(f"---- Captured stdout call ----\nvalue {number}\n" for number in range(len(tests) // 4))
    return noise + "".join(f"PASSED {test}\n" for test in tests) + f"==== {len(tests)} passed in 1.00s ====\n"


def junit_of(tests: list[str]) -> str:
    """A JUnit file as pytest writes it."""
    cases = []
    for test in tests:
        path, group, name = test.split("::")
        place = f"{path.removesuffix('.py').replace('/', '.')}.{group}"
        cases.append(f'<testcase classname="{place}" name="{name}" time="0.001" />')
    return (
        f'<?xml version="1.0"?><testsuites><testsuite name="pytest">{"".join(cases)}</testsuite></testsuites>'
    )


def record_of(tests: list[str]) -> bytes:
    """The observer's record of tests that passed."""
    lines = [["start"], *(["call", test, ""] for test in tests), ["end", 0]]
    key, found = bytes.fromhex(KEY), b""
    for number, words in enumerate(lines):
        text = f"{number} .{json.dumps(words)}".encode()
        seal = hashlib.sha256(key + text).hexdigest()[:32]
        found += f"\x1e{NONCE} {seal} ".encode() + text + b"\x1f"
        key = hashlib.sha256(key).digest()
    return found


def measure(count: int, rounds: int, folder: Path) -> dict[str, float]:
    """Median seconds a log of `count` tests, by grader."""
    tests = [f"tests/unit/test_{number % 40}.py::TestGroup::test_case[{number}-x]" for number in range(count)]
    fail, keep = tests[: count // 20], tests[count // 20 :]
    log = log_of(tests)
    (folder / "log").write_text(MARKS[0] + log + MARKS[1])
    plain = RunEvidence.of({"ended": "ran", "findings": [], "timed_out": False, "code": 0, "guarded": False})
    plain |= {"sealed": "whole", "echo": ""}
    spec = RunSpec("i", tuple(fail), tuple(keep), test_cmd="pytest")
    theirs = TestSpec("i", "", [], "r", "1", fail, keep, "parse_log_pytest", "pass_and_fail")
    prediction = {"instance_id": "i", "model_patch": "x", "model_name_or_path": "m"}
    (folder / "told").write_bytes(record_of(tests) + (MARKS[0] + log + MARKS[1]).encode())
    (folder / "junit").write_text(junit_of(tests))

    def by_log() -> bool:
        return verdict(spec, plain | {"log": (folder / "log").read_text()})[0] == "resolved"

    def guarded() -> bool:
        record = read_record((folder / "told").read_bytes(), NONCE, KEY, LOG_BYTES)
        seen = observed(record.observations, (folder / "junit").read_text())
        run = plain | {"log": record.log.decode(), "guarded": True, "observed": seen, "sealed": record.state}
        return verdict(spec, run)[0] == "resolved"

    def swebench() -> bool:
        return get_eval_report(theirs, prediction, str(folder / "log"), True)["i"]["resolved"]

    return {
        "swebench": median(swebench, rounds),
        "ours": median(by_log, rounds),
        "guarded": median(guarded, rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, nargs="+", default=[200, 2000], help="tests a log")
    parser.add_argument("--rounds", type=int, default=200, help="times each log is judged")
    args = parser.parse_args()
    print(f"{'tests':>6} {'swebench ms':>12} {'ours ms':>9} {'ours with record ms':>20}")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in args.tests:
            found[count] = times = measure(count, args.rounds, Path(folder))
            ours, record = 1e3 * times["ours"], 1e3 * times["guarded"]
            print(f"{count:>6} {1e3 * times['swebench']:>12.3f} {ours:>9.3f} {record:>20.3f}")
    for count, times in found.items():
        print(f"ratio_vs_swebench_{count}={times['swebench'] / times['ours']:.2f}")
        print(f"ratio_vs_swebench_{count}_with_record={times['swebench'] / times['guarded']:.2f}")


if __name__ == "__main__":
    run_script(main)
