"""Rows in SWE-bench's shape made of real later fixes, and how well their gold patches are witnessed.

    .venv/bin/python -m benchmarks.published_rows [--cache FOLDER] [--only PACKAGE ...]

Of each package the index gives two releases in a row. The gold patch is what the later one changed in its
code, the test patch what it changed in its tests; tests to be repaired are those that fail before and pass
after. Needs bubblewrap, the package index and the sandbox image (rule build_sandbox_image). The gold patch of
each row is graded three times and an empty one once, with the witness. Prints a row each, then totals. Exit
code 1 when a gold patch is not resolved or contradicted, or an empty one is resolved.
"""

import argparse
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import grade
from swelab.grading.harness.spec import read_spec
from swelab.grading.validation.witness_making import make_witnesses, unpack
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.sandbox import Image, Limits, open_backend
from swelab.sandbox.sandbox_image import recorded_image
from swelab.tasks.checkout import RepoStore
from swelab.tasks.datasets_source import named_rows
from tests.contract.real_instances import CONDA, SCRIPT, archive, git, tar

ROW = "{:<16} {:<8} {:>6} {:>9} {:>5} {:>9} {:>6} {:>6.1f} {:<17} {:<9} {}"
TEST_FILE = re.compile(r"(^|/)(tests?/.*|test_[^/]*|[^/]*_test)\.py$")
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR) (\S+)", re.MULTILINE)
SITE = "opt/toolbox/lib/python3.11/site-packages"


@dataclass(frozen=True)
class Fix:
    """Two releases in a row, each (version, sha256 of its source archive)."""

    package: str
    before: tuple[str, str]
    after: tuple[str, str]


FIXES = (
    Fix(
        "sqlparse",
        ("0.5.0", "714d0a4932c059d16189f58ef5411ec2287a4360f17cdd0edd2d09d4c5087c93"),
        ("0.5.1", "bb6b4df465655ef332548e24f08e205afc81b9ab86cb1c45657a7ff173a3a00e"),
    ),
    Fix(
        "sqlparse",
        ("0.5.1", "bb6b4df465655ef332548e24f08e205afc81b9ab86cb1c45657a7ff173a3a00e"),
        ("0.5.2", "9e37b35e16d1cc652a2545f0997c1deb23ea28fa1f3eefe609eee3063c3b105f"),
    ),
    Fix(
        "click",
        ("8.1.3", "7682dc8afb30297001674575ea00d1814d808d6a36af415a82bd481d37ba7b8e"),
        ("8.1.4", "b97d0c74955da062a7d4ef92fadb583806a585b2ea81958a81bd72726cbb8e37"),
    ),
    Fix(
        "more-itertools",
        ("10.1.0", "626c369fa0eb37bac0291bce8259b332fd59ac792fa5497b59837309cd5b114a"),
        ("10.2.0", "8fccb480c43d3e99a00087634c06dd02b0d50fbf088b380de5a41a015ec239e1"),
    ),
    Fix(
        "more-itertools",
        ("10.3.0", "e5d93ef411224fbcef366a6e8ddc4c5781bc6359d43412a65dd5964e46111463"),
        ("10.4.0", "fe0e63c4ab068eac62410ab05cccca2dc71ec44ba8ef29916a0090df061cf923"),
    ),
    Fix(
        "cachetools",
        ("5.4.0", "b8adc2e7c07f105ced7bc56dbb6dfbe7c4a00acce20e2227b3f355be89bc6827"),
        ("5.5.0", "2cc24fb4cbe39633fb7badd9db9ca6295d766d9c2995f245725a46715d050f2a"),
    ),
    Fix(
        "xmltodict",
        ("1.0.1", "43f06e35e03f0f3ce622b9bd5e9652570a923db2906d5d4b830b76eafcafddcb"),
        ("1.0.2", "54306780b7c2175a3967cad1db92f218207e5bc1aba697d887807c0fb68b7649"),
    ),
    Fix(
        "pathspec",
        ("0.11.2", "e0d8d0ac2f12da61956eb2306b69f9469b42f4deb0f3cb6ed47b9cce9996ced3"),
        ("0.12.0", "c57e16065a97b7beb175f13c84d27cb05f7b7315741c2fbd5de541042f4ea6e1"),
    ),
    Fix(
        "parse",
        ("1.20.2", "b41d604d16503c79d81af5165155c0b20f6c8d6c559efa66b4b695c3e5a0a0ce"),
        ("1.21.0", "937725d51330ffec9c7a26fdb5623baa135d8ba8ed78817ea9523538844e3ce4"),
    ),
    Fix(
        "parse",
        ("1.21.0", "937725d51330ffec9c7a26fdb5623baa135d8ba8ed78817ea9523538844e3ce4"),
        ("1.21.1", "825e1a88e9d9fb481b8d2ca709c6195558b6eaa97c559ad3a9a20aa2d12815a3"),
    ),
    Fix(
        "boltons",
        ("23.0.0", "8c50a71829525835ca3c849c7ed2511610c972b4dddfcd41a4a5447222beb4b0"),
        ("23.1.0", "ab4023d57a69609f7742dcc21c12bb57f2970d278d315f28eb2d3110a64114a8"),
    ),
    Fix(
        "boltons",
        ("26.0.0", "5566d6cfd5a1e873d8e8476496287a9f92979964611ad9a9cecb6b0ef29b1edd"),
        ("26.1.0", "5764468aba493b15995ed17f46a16789023f123ca2a62d491a9ce825c1cbe26c"),
    ),
    Fix(
        "tabulate",
        ("0.9.0", "0095b12bf5966de529c0feb1fa08671671b3368eec77d7ef7ab114be2c068b3c"),
        ("0.10.0", "e2cfde8f79420f6deeffdeda9aaec3b6bc5abce947655d17ac662b126e48a60d"),
    ),
)


def outcomes(text: bytes) -> dict[str, str]:
    """Outcomes by test, of a summary that pytest printed."""
    return {name: word for word, name in OUTCOME.findall(text.decode(errors="replace"))}


def write(tree: Path, files: dict[str, bytes]) -> None:
    """Puts files into a repository."""
    for path, data in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)


def change(tree: Path, files: dict[str, bytes]) -> str:
    """The patch that gives a repository these files. The repository stays as it was."""
    write(tree, files)
    git(tree, "add", "-Af")
    done = subprocess.run(["git", "diff", "--cached"], cwd=tree, capture_output=True, check=True)
    git(tree, "reset", "-q", "--hard")
    return done.stdout.decode()  # ends of lines as they are


class Rows:
    """Makes rows and their images: copies of the sandbox image's root with a repository at /testbed."""

    def __init__(self, cache: Path, scratch: Path) -> None:
        self.cache, self.scratch = cache, scratch
        self.backend, self.base = open_backend("bubblewrap"), recorded_image()

    def make(self, fix: Fix) -> tuple[Task, Image]:
        """The row of a fix, and its image."""
        name = f"{fix.package}__{fix.package}-{fix.before[0].replace('.', '')}"
        tree = self.scratch / "trees" / name
        tree.mkdir(parents=True)
        old, new = (archive(fix.package, *each, self.cache) for each in (fix.before, fix.after))
        git(tree, "init", "-q", "-b", "main")
        write(tree, old)
        git(tree, "add", "-Af")
        git(tree, "commit", "-qm", f"{fix.package} {fix.before[0]}")
        changed = {path: data for path, data in new.items() if path.endswith(".py") and old.get(path) != data}
        tests = {path: data for path, data in changed.items() if TEST_FILE.search(path) and "src" not in path}
        code = {path: data for path, data in changed.items() if path not in tests and path in old}
        row = self.row(fix, name, tree, (change(tree, code), change(tree, tests)), sorted(tests))
        image = self.image(name, tree)
        with self.backend.start(None, image=image) as box:
            ran = [self.ran(box, row, patch) for patch in (row["test_patch"], row["patch"])]
        kept = [test for test, word in ran[1].items() if word == "PASSED"]
        row["FAIL_TO_PASS"] = json.dumps([test for test in kept if ran[0].get(test) != "PASSED"])
        row["PASS_TO_PASS"] = json.dumps([test for test in kept if ran[0].get(test) == "PASSED"])
        path = self.scratch / f"{name}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        return next(iter(named_rows(path))), image

    def row(self, fix: Fix, name: str, tree: Path, patches: tuple[str, str], tests: list[str]) -> dict:
        """The row, but for its tests."""
        base = git(tree, "rev-parse", "HEAD")
        files = " ".join(each for each in tests if re.search(r"(^|/)(test_[^/]*|[^/]*_test)\.py$", each))
        script = SCRIPT.format(base=base, tests=files, patch=patches[1].rstrip("\n"))
        return {
            "repo": f"{fix.package}/{fix.package}",
            "instance_id": name,
            "base_commit": base,
            "patch": patches[0],
            "test_patch": patches[1],
            "problem_statement": f"{fix.package} {fix.before[0]} has a bug; the next release has not.",
            "hints_text": "",
            "created_at": "2024-01-01T00:00:00Z",
            "version": fix.before[0],
            "environment_setup_commit": base,
            "image": name,
            "eval_script": script,
            "log_parser": "parse_log_pytest",
            "eval_type": "pass_and_fail",
            "files": files,
        }

    def image(self, name: str, tree: Path) -> Image:
        """An image with the repository."""
        folder = self.scratch / "images" / name
        folder.parent.mkdir(exist_ok=True)
        assert self.base.folder is not None
        subprocess.run(["cp", "-a", "--reflink=auto", self.base.folder, folder], check=True)
        config = self.base.folder.with_name(self.base.folder.name + ".json").read_text()
        folder.with_name(f"{name}.json").write_text(config)
        paths = b"/testbed/src\n/testbed\n"
        layer = tar(tree, {"opt/miniconda3/bin/activate": CONDA.encode(), f"{SITE}/testbed.pth": paths})
        with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
            opened.extractall(folder)
        return Image(name, f"sha256:{hashlib.sha256(layer).hexdigest()}", folder)

    def ran(self, box, row: dict, patch: str) -> dict[str, str]:
        """Outcomes of the row's test files after one more patch."""
        box.put("/tmp/one.patch", patch.encode())
        done = box.exec(
            "source /opt/miniconda3/bin/activate; conda activate testbed; cd /testbed; "
            f"git apply /tmp/one.patch && python -m pytest -rA --tb=no -q -p no:cacheprovider {row['files']}"
        )
        return outcomes(done.output)


def tell(fix: Fix, task: Task, image: Image, rows: Rows) -> tuple[bool, Counter[str], str]:
    """Prints a row's figures: (whether all is as it should be, standings of its tests, of the task)."""
    store = RepoStore(rows.scratch, rows.scratch / "checkouts")
    start = time.monotonic()
    run = make_witnesses([task], Bench(store, rows.backend, {task.instance_id: image}))
    seconds = time.monotonic() - start
    assert not run.lost, run.lost
    standing, packed = run.standings[task.instance_id], run.packed.get(task.instance_id)
    witness = unpack(packed) if packed else None
    repaired = read_spec(task).fail_to_pass
    held = witness.gold.tests if witness else {}
    counts = Counter(held[test].standing if test in held else "unformed" for test in repaired)
    graded = [
        grade(task, patch, store, rows.backend, Limits(), image=image, witness=witness)
        for patch in (task.patch, task.patch, task.patch, "")
    ]
    gold = [
        each.status + ("!" if each.witness and each.witness.standing == "contradicted" else "")
        for each in graded[:3]
    ]
    good = gold == ["resolved"] * 3 and not graded[3].resolved
    cells = (
        len(repaired),
        counts["confirmed"],
        counts["weak"],
        counts["unwitnessed"],
        counts["unformed"],
    )
    print(
        ROW.format(
            fix.package,
            fix.before[0],
            *cells,
            seconds,
            standing.standing,
            "/".join(sorted(set(gold))),
            standing.reason,
        ),
        flush=True,
    )
    return good, counts, standing.standing


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path("results/repos/archives"), help="source archives")
    parser.add_argument("--only", nargs="+", default=[], help="packages")
    args = parser.parse_args()
    tests: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    faults = 0
    print(
        "package, release; tests to be repaired: all, confirmed, weak, unwitnessed, unformed; "
        "seconds, task, gold"
    )
    with tempfile.TemporaryDirectory() as scratch:
        rows = Rows(args.cache, Path(scratch))
        for fix in FIXES:
            if args.only and fix.package not in args.only:
                continue
            try:
                task, image = rows.make(fix)
            except InputError:
                print(f"{fix.package} {fix.before[0]}: no test that the later release repairs")
                continue
            good, counts, standing = tell(fix, task, image, rows)
            tests += counts
            tasks[standing] += 1
            faults += not good
    print("tests", dict(tests), "tasks", dict(tasks), f"faults={faults}")
    return int(bool(faults))


if __name__ == "__main__":
    run_script(main)
