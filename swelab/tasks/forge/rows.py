"""Makes task rows from valid bugs. Repositories take turns."""

import fnmatch
import itertools
from collections import Counter
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import REPO
from swelab.configs.kinds.subset import ForgeSubset
from swelab.console.terminal import Progress
from swelab.jobs.journal import Journal
from swelab.records import InputError, sha256_file
from swelab.records.task_records import Task
from swelab.sandbox import Backend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.forge.candidates import Candidate, read_sources, seeded_order, with_companions
from swelab.tasks.forge.issue_text import issue_text
from swelab.tasks.forge.operators import OPERATORS, choose_operators
from swelab.tasks.forge.validate import Repository, Statuses, Validator, Verdict
from swelab.tasks.split import side_of


class Lane:
    """The candidates of one repository, in order. Functions that already have enough bugs are skipped."""

    def __init__(self, repo: Repository, queue: list[Candidate], per_function: int, drops: Counter[str]):
        self.repo, self.queue, self.per_function, self.drops = repo, queue, per_function, drops
        self.next = 0
        self.chosen: Counter[str] = Counter()

    def ahead(self, count: int) -> list[Candidate]:
        """Returns the next `count` candidates, which will probably be requested soon."""
        rest = itertools.islice(self.queue, self.next, None)
        return list(itertools.islice((c for c in rest if self.chosen[c.function] < self.per_function), count))

    def take(self) -> Candidate | None:
        """Returns the next candidate, or None at the end."""
        while self.next < len(self.queue):
            candidate = self.queue[self.next]
            self.next += 1
            if self.chosen[candidate.function] < self.per_function:
                return candidate
            self.drops["function_full"] += 1
        return None


def make_tasks(
    recipe: ForgeSubset,
    repo_tars: dict[str, Path],
    backend: Backend,
    progress: Path,
    workers: int,
    statuses: Statuses,
    configs: Path = recipes.CONFIGS,
) -> tuple[list[Task], dict[str, int]]:
    """Returns the task rows of a `forge` subset, and how many candidates were dropped for each reason.

    repo_tars: maps a repository recipe's name to its archive. progress: journal of verdicts. A larger limit
    gives the same first rows. Raises SandboxLost, and InputError for a broken archive or recipe.
    """
    drops: Counter[str] = Counter()
    with (
        scratch_folder() as scratch,
        Journal(progress) as journal,
        Validator(backend, statuses, journal, workers) as validator,
    ):
        lanes = []
        for name in recipe.repos:
            repo = open_repository(name, repo_tars[name], scratch, configs)
            validator.baseline(repo)
            lanes.append(Lane(repo, _queue(recipe, repo, drops), recipe.max_per_function, drops))
        rows = _take_turns(recipe, lanes, validator, workers, drops)
    return rows, dict(sorted(drops.items()))


def open_repository(name: str, archive: Path, scratch: Path, configs: Path) -> Repository:
    """Unpacks a repository archive under `scratch`. Returns the repository with its recipe.
    Raises InputError."""
    settings, where = recipes.load_named(REPO, name, configs), recipes.path_of("repo", name, configs)
    if settings.source == "drill" or settings.source == "harbor":
        raise InputError(f"its source is {settings.source!r}", where, "pypi or git")
    place = Task.of({"instance_id": name, "repo_recipe": archive.stem})
    tree = RepoStore(archive.parent, scratch).clean_tree(place)
    sources = read_sources(tree, settings.targets)
    if not sources:
        raise InputError("no file matches its targets", where, "paths of the archive")
    return Repository(name, settings, sha256_file(archive), tree, sources)


def _queue(recipe: ForgeSubset, repo: Repository, drops: Counter[str]) -> list[Candidate]:
    operators = choose_operators(recipe.operators, OPERATORS)
    found, ambiguous = seeded_order(repo.sources.values(), operators, recipe.seed)
    if ambiguous:
        drops["same_bug_in_two_functions"] += ambiguous
    mine = [c for c in found if side_of(repo.name, c.function, recipe.heldout_share) == recipe.side]
    short = [c for c in mine if c.lines <= (recipe.max_function_lines or c.lines)]
    if len(short) < len(mine):
        drops["function_too_long"] += len(mine) - len(short)
    if recipe.max_bugs == 1:
        return short
    return list(with_companions(short, repo.sources, recipe.max_bugs, recipe.seed))


def _take_turns(
    recipe: ForgeSubset, lanes: list[Lane], validator: Validator, workers: int, drops: Counter[str]
) -> list[Task]:
    rows: list[Task] = []
    names: set[str] = set()
    bar = Progress(recipe.limit, "tasks")
    turn = list(lanes)
    while turn and len(rows) < recipe.limit:
        lane = turn.pop(0)
        row = _next_row(recipe, [lane, *turn], validator, workers, drops)
        if row is None:
            continue
        turn.append(lane)
        if row.instance_id in names:
            drops["same_id"] += 1
            continue
        names.add(row.instance_id)
        rows.append(row)
        bar.done(True)
    bar.close()
    return rows


def _next_row(
    recipe: ForgeSubset, turn: list[Lane], validator: Validator, workers: int, drops: Counter[str]
) -> Task | None:
    """Returns a row for the next valid bug of the first lane, or None if the lane has no more candidates.
    Meanwhile, idle workers judge candidates of other lanes."""
    lane, most = turn[0], recipe.max_fail_to_pass
    while (candidate := lane.take()) is not None:
        if not validator.is_known(lane.repo, candidate, most):
            validator.expect(lane.repo, candidate, most)
            others = turn[1:] or turn
            upcoming = [(each.repo, c) for each in others for c in each.ahead(-(-workers // len(others)))]
            for repo, other in upcoming[: workers - 1]:
                validator.expect(repo, other, most)
        verdict = validator.verdict(lane.repo, candidate, most)
        if not verdict.reason:
            lane.chosen[candidate.function] += 1
            return task_row(lane.repo, candidate, verdict)
        drops[verdict.reason] += 1
    return None


def task_row(repo: Repository, bug: Candidate, verdict: Verdict) -> Task:
    """Returns a row in SWE-smith's schema, with additional fields of ours."""
    settings, broken = repo.recipe, verdict.broken
    failing = set(broken)
    if settings.source == "pypi":
        package, content = settings.package, settings.sha256
    else:
        package, content = repo.name, settings.commit
    mirror = f"{settings.owner}__{package}.{content[:8]}"
    return Task(
        instance_id=f"{mirror}.func_pm_{bug.op}__{bug.bug[:8]}",
        repo=f"swelab/{mirror}",
        patch=bug.patch,
        problem_statement=issue_text(bug.function, broken, verdict.message, bug.before + bug.after, bug.bug),
        FAIL_TO_PASS=broken,
        PASS_TO_PASS=[test for test in repo.passed if test not in failing],
        image_name=f"swelab/{repo.name}",
        base_commit="",
        source="forge",
        repo_recipe=repo.name,
        test_cmd=settings.test_cmd,
        log_parser=settings.log_parser,
        test_files=test_files(repo.tree, settings.tests, broken[0]),
        tests_left_out=repo.unstable,
        test_timeout=settings.test_timeout,
        function=bug.function,
        bug=bug.bug,
        op=bug.op,
        hint={"path": bug.path, "line": bug.line, "name": bug.qualified_name.rpartition(".")[2]},
    )


def test_files(tree: Path, patterns: list[str], failing: str) -> list[str]:
    """Returns files of a tree that a pattern matches, the failing test's file first. `*` also matches "/"."""
    paths = (path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())
    found = (path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns))
    return sorted(found, key=lambda path: (path != failing.partition("::")[0], path))
