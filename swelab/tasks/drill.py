"""Makes the drill: a small Python package from a seed, with one-line bugs and its own tests.

Modules do not import each other. So a task's tests are the tests of its module, and one run of the test suite
judges one bug in each module. With `layout: two-file`, each module has its own folder with its test, and a
task's checkout contains only that folder.
"""

import difflib
import hashlib
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import REPO
from swelab.configs.kinds.subset import DrillSubset
from swelab.console.terminal import Progress
from swelab.jobs.journal import Journal
from swelab.records import InputError, Record, digest
from swelab.records.task_records import Task
from swelab.sandbox import Backend, Limits
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.drill_archive import build_repo, catalogue, module_text
from swelab.tasks.drill_text import Function, Mutation, issue, part_of, test_path
from swelab.tasks.forge.operators import choose_operators
from swelab.tasks.split import bug_hash, side_of

VERSION = 1
"""Part of every journal key. Increase this number if the same bug could now get another verdict."""
TEST_COMMAND = "python -m pytest -rA --tb=no -q -p no:cacheprovider"
STATUS = re.compile(rb"^(PASSED|FAILED|ERROR) (\S+)", re.MULTILINE)
RUN_LIMITS = Limits(wall_seconds=120, cpu_seconds=120, output_bytes=8 << 20)


@dataclass(frozen=True)
class Bug:
    """A candidate: one mutation of one function. line: line number (from 1) of the function's `def`."""

    function: Function
    mutation: Mutation
    line: int
    text: str
    patch: str
    hash: str


@dataclass(frozen=True)
class Verdict:
    """The tests of a module that fail and pass with a bug.
    reason: why the bug cannot be a task, or ""."""

    failed: tuple[str, ...]
    passed: tuple[str, ...]
    reason: str


def candidates(modules: dict[str, list[Function]], seed: int) -> list[Bug]:
    """Returns all bugs of the catalogue in seeded order. Mutation operators take turns."""
    bugs: dict[str, Bug] = {}
    for functions in modules.values():
        clean = module_text(functions)
        for function in functions:
            line = clean[: clean.index(f"def {function.name}(")].count("\n") + 1
            for mutation in function.mutations:
                text = module_text(functions, function.name, mutation)
                patch = _diff(function.path, clean, text)
                bugs[patch] = Bug(function, mutation, line, text, patch, bug_hash(patch))

    def draw(bug: Bug) -> str:
        return hashlib.sha256(f"{seed}\n{bug.hash}".encode()).hexdigest()

    by_op: dict[str, list[Bug]] = {}
    for bug in sorted(bugs.values(), key=draw):
        by_op.setdefault(bug.mutation.op, []).append(bug)
    turns = [(turn, draw(bug), bug) for group in by_op.values() for turn, bug in enumerate(group)]
    return [bug for _, _, bug in sorted(turns, key=lambda t: t[:2])]


def make_tasks(
    recipe: DrillSubset,
    repo_tars: dict[str, Path],
    backend: Backend,
    progress: Path,
    workers: int,
    configs: Path = recipes.CONFIGS,
) -> tuple[list[Task], dict[str, int]]:
    """Returns the task rows of a `drill` subset, and how many candidates were dropped for each reason.

    repo_tars: maps a repository recipe's name to its archive. progress: journal of verdicts. A larger limit
    gives the same first rows. Raises SandboxLost, and InputError if an archive is not the one that its recipe
    makes.
    """
    (name, archive), *_ = repo_tars.items()
    settings = recipes.load_named(REPO, name, configs)
    if settings.source != "drill" or archive.read_bytes() != build_repo(settings):
        raise InputError("not the archive of its recipe", archive, f"that of configs/repos/{name}.yaml")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    queue = _queue(recipe, name, catalogue(settings))
    drops: Counter[str] = Counter()
    rows: list[Task] = []
    with scratch_folder() as scratch, Journal(progress) as journal:
        tree = RepoStore(archive.parent, scratch).clean_tree(
            Task.of({"instance_id": name, "repo_recipe": name})
        )
        judge = Judge(backend, tree, sha256, journal, workers)
        bar = Progress(recipe.limit, "tasks")
        while queue and len(rows) < recipe.limit:
            wanted = recipe.limit - len(rows)
            batch, queue = queue[:wanted], queue[wanted:]
            for bug, verdict in zip(batch, judge.verdicts(batch)):
                if verdict.reason:
                    drops[verdict.reason] += 1
                    continue
                rows.append(task_row(name, sha256, bug, verdict))
                bar.done(True)
        bar.close()
    return rows, dict(sorted(drops.items()))


def _queue(recipe: DrillSubset, name: str, modules: dict[str, list[Function]]) -> list[Bug]:
    """Returns the candidates for a subset: on its side of the split, and with its operators.
    Each function has at most `max_per_function` candidates."""
    bugs_in_turn = []
    counts: Counter[str] = Counter()
    bugs = candidates(modules, recipe.seed)
    operators = choose_operators(recipe.operators, (bug.mutation.op for bug in bugs))
    for bug in bugs:
        function = bug.function.identity
        of_side = side_of(name, function, recipe.heldout_share) == recipe.side
        if of_side and bug.mutation.op in operators:
            counts[function] += 1
            if counts[function] <= recipe.max_per_function:
                bugs_in_turn.append(bug)
    return bugs_in_turn


class Judge:
    """Runs the package's tests to judge bugs. A run of the tests judges one bug in each of many modules."""

    def __init__(self, backend: Backend, tree: Path, sha256: str, journal: Journal, workers: int):
        self.backend, self.tree, self.sha256 = backend, tree, sha256
        self.journal, self.workers = journal, workers

    def verdicts(self, bugs: list[Bug]) -> list[Verdict]:
        """Returns the verdict on each bug, in order. New verdicts are journalled. Raises SandboxLost."""
        rounds: list[dict[str, Bug]] = []
        for bug in bugs:
            if self._key(bug) in self.journal:
                continue
            free = next((r for r in rounds if bug.function.path not in r), None)
            if free is None:
                rounds.append(free := {})
            free[bug.function.path] = bug
        with ThreadPoolExecutor(self.workers, thread_name_prefix="drill") as pool:
            for batch, found in zip(rounds, pool.map(self._round, rounds)):
                for path, bug in batch.items():
                    self.journal.append({"key": self._key(bug), **found[path]})
        return [self._read(bug) for bug in bugs]

    def _key(self, bug: Bug) -> str:
        return digest([VERSION, self.sha256, TEST_COMMAND, bug.patch])

    def _round(self, batch: dict[str, Bug]) -> dict[str, Record]:
        """Runs the tests on the clean code, then twice on the code with the bugs.
        Maps each module path to the test statuses of these three runs."""
        tests = " ".join(_archive_path(path, test_path(path)) for path in batch)
        runs = []
        with self.backend.start(self.tree, limits=RUN_LIMITS) as sandbox:
            for buggy in (False, True, True):
                for path, bug in batch.items() if buggy else ():
                    sandbox.put(_archive_path(path, path), bug.text.encode())
                output = sandbox.exec(f"{TEST_COMMAND} {tests}", limits=RUN_LIMITS).output
                runs.append({test.decode(): status.decode() for status, test in STATUS.findall(output)})
        results = {}
        for path in batch:
            prefix, folder = _archive_path(path, test_path(path)) + "::", _archive_path(path, "")
            mine = [
                {t.removeprefix(folder): s for t, s in run.items() if t.startswith(prefix)} for run in runs
            ]
            results[path] = dict(zip(("clean", "first", "second"), mine))
        return results

    def _read(self, bug: Bug) -> Verdict:
        record = self.journal.get(self._key(bug))
        clean, first, second = (record[run] for run in ("clean", "first", "second"))
        sound = [test for test, status in clean.items() if status == "PASSED"]
        failed = tuple(test for test in sound if first.get(test) in ("FAILED", "ERROR"))
        passed = tuple(test for test in sound if first.get(test) == "PASSED")
        if first != second or len(sound) != len(clean) or len(failed) + len(passed) != len(sound):
            return Verdict(failed, passed, "flaky" if clean else "no_tests")
        return Verdict(failed, passed, "" if failed else "survived")


def _archive_path(path: str, name: str) -> str:
    """Returns the path of the file `name` in the archive. path: the task's module."""
    part = part_of(path)
    return f"{part}/{name}" if part else name


def task_row(name: str, sha256: str, bug: Bug, verdict: Verdict) -> Task:
    """Returns a row in SWE-smith's schema, with additional fields of ours."""
    function, op = bug.function, bug.mutation.op
    mirror = f"swelab__{name}.{sha256[:8]}"
    row = Task(
        instance_id=f"{mirror}.func_pm_{op}__{bug.hash[:8]}",
        repo=f"swelab/{mirror}",
        patch=bug.patch,
        problem_statement=issue(random.Random(bug.hash), function, bug.mutation),
        FAIL_TO_PASS=list(verdict.failed),
        PASS_TO_PASS=list(verdict.passed),
        image_name=f"swelab/{name}",
        base_commit="",
        source="drill",
        repo_recipe=name,
        test_cmd=f"{TEST_COMMAND} {function.test_file}",
        log_parser="parse_log_pytest",
        test_files=[function.test_file],
        test_timeout=30,
        function=function.identity,
        bug=bug.hash,
        op=op,
        hint={"path": function.path, "line": bug.line, "name": function.name},
    )
    return row | {"part": part} if (part := part_of(function.path)) else row


def _diff(path: str, clean: str, buggy: str) -> str:
    lines = difflib.unified_diff(
        clean.splitlines(keepends=True), buggy.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)
