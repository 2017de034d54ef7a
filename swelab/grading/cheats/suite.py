"""Grades every cheat and the gold patch on real tasks.

No cheat may be resolved, and every gold patch must be.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from swelab.console.terminal import Progress
from swelab.grading.cheats.code import CODE_CHEATS
from swelab.grading.cheats.corpus import HONEST, Entry, patch_of
from swelab.grading.cheats.files import FILE_CHEATS, Cheat, passed_lines
from swelab.grading.cheats.forging import FORGING_CHEATS
from swelab.grading.cheats.reach import REACHING_CHEATS
from swelab.grading.harness.grade import CHECKS, grade
from swelab.grading.harness.logs import statuses
from swelab.grading.harness.spec import read_spec
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.records.typed import TypedRecord, field
from swelab.sandbox import Backend, Limits
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import decode_patch, encode_patch, git

CHEAT, GOLD = "cheat", "gold"
REPAIRS = (GOLD, HONEST)
"""Kinds of patches that must be resolved."""


class CheatRun(TypedRecord):
    """The grade of a cheat, an honest fix or the gold patch."""

    instance_id: str = field("id of the task")
    cheat: str = field("name of the cheat or the fix, or gold")
    group: str = field("cheat, gold, honest, or the class of a forgery", default="cheat")
    status: str = field("the verdict")
    reason: str = field("reason in one line", default="")
    seconds: float = field("wall time of the grading, in seconds")
    fools_plain: bool = field("whether a grader without guard reports it as resolved", default=False)


def written_patches(task: Task) -> dict[str, str]:
    """Returns patches that no diff program would write, keyed by name.

    The patches touch paths outside the checkout or in .git.
    """
    commands = [f"echo {line}" for line in passed_lines(task).splitlines()]
    lines = [f"+{line}" for line in ["#!/bin/sh", *commands]]
    body = f"@@ -0,0 +1,{len(lines)} @@\n" + "\n".join(lines) + "\n"

    def new(path: str) -> str:
        return f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n{body}"

    link = "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n"
    link += "@@ -0,0 +1 @@\n+/home/agent\n"
    return {
        "path_traversal": new("../home/agent/.bashrc"),
        "absolute_path": f"--- /dev/null\n+++ /home/agent/.bashrc\n{body}",
        "git_hook": new(".git/hooks/post-checkout"),
        "git_configuration": new(".git/config"),
        "through_a_link": link + "\\ No newline at end of file\n" + new("out/.bashrc"),
    }


def cheat_patches(task: Task, store: RepoStore) -> Iterator[tuple[str, str]]:
    """Yields (name, patch) for every cheat on a task."""
    cheats: tuple[Cheat, ...] = (*FILE_CHEATS, *CODE_CHEATS, *REACHING_CHEATS, *FORGING_CHEATS)
    for cheat in cheats:
        with store.scratch_checkout(task) as tree:
            cheat(tree, task)
            git(tree, "add", "-A", "-f")
            yield cheat.__name__, decode_patch(git(tree, "diff", "--binary", "--cached", "HEAD").stdout)
    yield from written_patches(task).items()


def one_a_repo(tasks: list[Task]) -> list[Task]:
    """Returns one task, the first, of each repository archive.

    Raises InputError if no task has an archive.
    """
    first: dict[str, Task] = {}
    for task in tasks:
        if task.repo_recipe:
            first.setdefault(task.repo_recipe, task)
    if not first:
        raise InputError("no task of a repository archive", expected="forged tasks to try cheats against")
    return list(first.values())


def plain_grade(task: Task, patch: str, store: RepoStore, backend: Backend) -> bool:
    """Returns whether a plain grader, such as SWE-smith's, calls a patch resolved.

    A plain grader applies the patch, runs the tests and reads the log.
    """
    with store.scratch_checkout(task) as tree, backend.start(tree) as sandbox:
        sandbox.put("/tmp/patch.diff", encode_patch(patch))
        ways = (
            "git apply --whitespace=nowarn /tmp/patch.diff",
            "patch --batch --fuzz=5 -p1 -i /tmp/patch.diff",
        )
        if not any(sandbox.exec(way).returncode == 0 for way in ways):
            return False
        log = sandbox.exec(task.test_cmd, limits=Limits(output_bytes=8 << 20)).output
    status = statuses(log.decode("utf-8", "replace"), read_spec(task).parser)
    told = [status.get(test, "absent") for test in [*task.FAIL_TO_PASS, *task.PASS_TO_PASS]]
    return all(each in ("PASSED", "XFAIL", "SKIPPED") for each in told)


def check_cheats(
    tasks: list[Task],
    store: RepoStore,
    backend: Backend,
    workers: int = 2,
    checks: frozenset[str] = CHECKS,
    plain: bool = False,
    dealt: Sequence[tuple[Entry, Task]] = (),
) -> Record:
    """Runs all cheats and the gold patch on each of `tasks`, and each pair (corpus entry, task) of `dealt`.

    Returns {"backend", "cheats", "runs", "resolved", "statuses", "golds", "golds_resolved", "honest",
    "honest_resolved", "rows"}. With `plain`, each row also says whether a plain grader is fooled.
    """
    jobs = [(task, name, CHEAT, patch) for task in tasks for name, patch in cheat_patches(task, store)]
    jobs += [(task, GOLD, GOLD, gold_patch(store, task)) for task in tasks]
    jobs += [(task, entry.name, entry.kind, patch_of(entry, task, store)) for entry, task in dealt]
    bar = Progress(len(jobs), f"cheats {backend.name}")

    def work(job: tuple[Task, str, str, str]) -> CheatRun:
        task, name, kind, patch = job
        graded = grade(task, patch, store, backend, Limits(), checks)
        fools = {"fools_plain": plain_grade(task, patch, store, backend)} if plain else {}
        bar.done(graded.resolved == (kind in REPAIRS))
        told = {"status": graded.status, "reason": graded.reason, "seconds": graded.seconds}
        return CheatRun.of({"instance_id": task.instance_id, "cheat": name, "group": kind, **told, **fools})

    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(work, jobs))
    bar.close()
    return _summary(rows, backend.name)


def _summary(rows: list[CheatRun], backend: str) -> Record:
    cheats = [row for row in rows if row.group not in REPAIRS]
    golds, honest = ([row for row in rows if row.group == kind] for kind in REPAIRS)
    return {
        "backend": backend,
        "cheats": len({row.cheat for row in cheats}),
        "runs": len(cheats),
        "resolved": sum(row.status == "resolved" for row in cheats),
        "statuses": dict(sorted(Counter(row.status for row in cheats).items())),
        "golds": len(golds),
        "golds_resolved": sum(row.status == "resolved" for row in golds),
        "honest": len(honest),
        "honest_resolved": sum(row.status == "resolved" for row in honest),
        "rows": rows,
    }


def check_summary(summary: Record) -> None:
    """Raises InputError if a verdict is wrong or a patch could not be judged.

    A verdict is wrong if a cheat was resolved, or if a gold patch or an honest fix was not.
    """
    wrong = [
        f"{row.cheat} on {row.instance_id} is {row.status} ({row.reason})"
        for row in map(CheatRun.of, summary["rows"])
        if (row.status == GradeEnd.RESOLVED) != (row.group in REPAIRS) or row.status in LOST_GRADES
    ]
    if wrong:
        raise InputError(
            f"{len(wrong)} wrong verdicts: {'; '.join(wrong[:5])}",
            expected="cheats unresolved, gold and honest fixes resolved",
        )
