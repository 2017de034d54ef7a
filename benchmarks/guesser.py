"""How often guesses answer a task's question: the measure behind the bits of the witness.

    python -m benchmarks.guesser [--tasks S.json ...] [--repos-dir DIR] [--guesses 1000]

Needs forged tasks with the archives of their repositories. Of each task the tests to be repaired are asked,
with gold and with the bug. Then answers are guessed from what the process of a patch sees: the question's
text, the file with the bug, the values of the bug. First one rule for all values, then one rule for one
assertion with the others as with the bug, then rules drawn for each value. A guess is a hit if the task is
witnessed by it, or, where the gold patch has too few bits for that, if each test is confirmed. It knows how
often each assertion runs, which a patch would have to find out. Prints hits by the tasks' bits, beside
2^-bits.
"""

import argparse
import json
import math
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.guess_sights import Shown
from benchmarks.guesses import Rule, Sight, rules, value
from benchmarks.question_runs import run_question
from benchmarks.witness import only, patch
from swelab.console.terminal import run_script
from swelab.grading.validation.witness_sources import sources_in
from swelab.records.task_records import Task
from swelab.records.witness_records import GoldValue, GoldValues, Slot
from swelab.tasks.task_rows import read_tasks
from swelab.witness.changes import CHANGES
from swelab.witness.emitted import Data, Emitted, read
from swelab.witness.forming import Question, form
from swelab.witness.judgement import ENOUGH_BITS, gold_values, judge

TASKS = [Path(f"results/tasks/{name}-heldout.json") for name in ("forge", "drill")]
BINS = (0, 2, 4, 6, 8, 12, 16, 32, math.inf)
COUNTS = (1, 10, 100, 1000)
KEEP = {"bug": ("bug", "same")}


@dataclass
class Told:
    """A task's guesses: bits of its gold patch, how many were judged, and the rules of those that hit."""

    name: str
    bits: float
    judged: int = 0
    hits: list[tuple[int, str]] = field(default_factory=list)


class Guesser:
    """Guesses the answers of one task."""

    def __init__(self, question: Question, gold: GoldValues, code: str, bug: bytes, draw: random.Random):
        self.gold, self.draw, self.manifest = gold, draw, question.manifest
        self.slots = {each.slot: each for each in self.manifest.slots}
        names = {
            path for path, base in self.manifest.questions.items() if base in self.manifest.tests.values()
        }
        files = {path: text for path, text in question.files.items() if path in names}
        heard, shown = read(bug, self.manifest), Shown(files, code)
        self.paths = {base: path for path, base in self.manifest.questions.items()}
        self.places: list[tuple[str, int, GoldValue, list[Sight]]] = []
        for test, told in gold.tests.items():
            base = self.manifest.tests[test]
            said = heard.get((base, told.case), Emitted())
            for each in told.occurrences:
                slot = self.slots[each.slot]
                self.places.append((base, told.case, each, shown.sights(slot, each, told.case, said)))

    def hits(self, rule_of: dict[int, Rule] | Rule | None) -> bool:
        """Whether a guess is confirmed: one rule, a rule for some places, or rules drawn for each."""
        lines: list[list[object]] = []
        now = None
        for at, (base, case, gold, sights) in enumerate(self.places):
            if (base, case) != now:
                now = (base, case)
                lines.append(["case", case, f"{self.paths[base]}::test_q"])
            rule = self._rule(at, rule_of)
            said = self._said(rule, gold, self.slots[gold.slot], sights)
            lines.append(["value", case, gold.slot, gold.at, gold.part, said])
        text = "".join(json.dumps([number, *line]) + "\n" for number, line in enumerate(lines))
        told = judge(self.manifest, self.gold, text.encode())
        confirmed = all(each.standing == "confirmed" for each in told.tests.values())
        return told.testimony == "witnessed" or (confirmed and self.gold.bits < ENOUGH_BITS)

    def _rule(self, at: int, rule_of: dict[int, Rule] | Rule | None) -> Rule:
        if isinstance(rule_of, tuple):
            return rule_of
        if isinstance(rule_of, dict):
            return rule_of.get(at, KEEP["bug"])
        return KEEP["bug"] if self.draw.random() < 0.5 else self.draw.choice(_ALL)

    def _said(self, rule: Rule, gold: GoldValue, slot: Slot, sights: list[Sight]) -> list[Data]:
        """The values that are said at a place. Operators answer as of equal values, or as with the bug."""
        if gold.part == "op":
            equal: list[Data] = [["b", True], ["b", False], ["b", False]]
            known = [each.bug for each in sights if each.bug is not None]
            return known if rule == KEEP["bug"] and len(known) == len(sights) else equal[: len(sights)]
        said: list[Data] = []
        for at, sight in enumerate(sights):
            if gold.part == "v" and at < len(slot.cut) and slot.cut[at]:
                said.append(["cut"])
                continue
            found = value(rule, sight, self.draw)
            said.append(found if found is not None else sight.bug or ["n"])
        two_sided = gold.part == "v" and len(said) == 2 and not any(slot.cut) and slot.ops[:1] == ["=="]
        return [said[0], said[0]] if two_sided and rule != KEEP["bug"] else said

    def guesses(self) -> Iterator[tuple[str, dict[int, Rule] | Rule | None]]:
        """(name, guess) of all guesses, likely ones first; it never ends."""
        for rule in _ALL:
            yield f"all {rule}", rule
        slots = list(dict.fromkeys(gold.slot for _, _, gold, _ in self.places))
        for rule in _ALL[: len(_FIRST)]:
            for slot in slots:
                chosen = [at for at, place in enumerate(self.places) if place[2].slot == slot]
                yield f"one {rule}", dict.fromkeys(chosen, rule)
        while True:
            yield "drawn", None


_ALL = list(dict.fromkeys(rules()))
_FIRST = [each for each in _ALL if each[0] == "bug" or each[1] == "same"]


def measure(task: Task, question: Question, gold: list[bytes], root: Path, args: argparse.Namespace) -> Told:
    """The guesses of a task whose clean repository lies in a folder."""
    patch(root, task.patch)
    bug = run_question(args.python.absolute(), root, question, False, [root, root / "src"]).emitted
    code = (root / task.hint["path"]).read_text(encoding="utf-8") if task.get("hint") else ""
    patch(root, task.patch, "--reverse")
    values = gold_values(question.manifest, gold[:2], gold[2], bug)
    guesser = Guesser(question, values, code, bug, random.Random(f"{args.seed} {task.instance_id}"))
    found = Told(task.instance_id, values.bits)
    if values.testimony not in ("witnessed", "weakly_witnessed"):
        return found
    for number, (name, guess) in enumerate(guesser.guesses()):
        if number >= args.guesses:
            break
        found.judged += 1
        if guesser.hits(guess):
            found.hits.append((number, name))
    return found


def measure_all(path: Path, args: argparse.Namespace) -> Iterator[Told]:
    """The guesses of the tasks of a subset. Tasks of a repository share the runs with gold."""
    by_repository: dict[str, list[Task]] = {}
    for task in read_tasks(path):
        by_repository.setdefault(task.repo_recipe, []).append(task)
    for name, tasks in by_repository.items():
        tests = sorted({test for task in tasks for test in task.FAIL_TO_PASS})
        files = sorted({test.partition("::")[0] for test in tests})
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            shutil.unpack_archive(args.repos_dir / f"{name}.tar", root)
            question = form(sources_in(root, files, most=1 << 30), tests)
            python, paths = args.python.absolute(), [root, root / "src"]
            gold = [run_question(python, root, question, at == 2, paths).emitted for at in range(3)]
            for task in tasks:
                found = measure(task, only(question, task.FAIL_TO_PASS), gold, root, args)
                if args.verbose or (found.hits and found.bits >= ENOUGH_BITS):
                    hits = f"{len(found.hits)} of {found.judged}: {found.hits[:4]}"
                    print(f"{found.name}: {found.bits:g} bits, {hits}", flush=True)
                yield found


def table(found: list[Told]) -> None:
    """Prints hits by bits."""
    print("bits        tasks  2^-bits  a guess  " + "  ".join(f"in {count:>4}" for count in COUNTS))
    for least, most in zip(BINS, BINS[1:]):
        held = [each for each in found if least <= each.bits < most]
        if not held:
            continue
        share = sum(len(each.hits) / each.judged for each in held) / len(held)
        expected = sum(2**-each.bits for each in held) / len(held)
        within = [sum(any(at < count for at, _ in each.hits) for each in held) for count in COUNTS]
        cells = "  ".join(f"{count:>3}/{len(held):<3}" for count in within)
        print(f"{least:>4}-{most:<6} {len(held):>5}  {expected:7.4f}  {share:7.4f}  {cells}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=Path, nargs="+", default=TASKS, help="subsets, JSON")
    parser.add_argument("--repos-dir", type=Path, default=Path("results/repos"))
    parser.add_argument("--python", type=Path, default=Path(".venv-sandbox/bin/python"))
    parser.add_argument("--guesses", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    print(f"{len(_ALL)} rules, {len(CHANGES)} changes")
    found = [told for path in args.tasks for told in measure_all(path, args)]
    asked = [told for told in found if told.judged]
    enough = sum(each.bits >= ENOUGH_BITS for each in asked)
    print(f"{len(found)} tasks, {len(asked)} with bits, {enough} with {ENOUGH_BITS:g} or more")
    table(asked)


if __name__ == "__main__":
    run_script(main)
