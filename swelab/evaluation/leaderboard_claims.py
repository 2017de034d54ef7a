"""The claims that a submission to SWE-bench's leaderboard may make. A claim that is not known to be true is
left unticked, with the reason."""

import re
from collections.abc import Collection, Iterable

from swelab.records import InputError, Record

SPLITS = {"lite": 300, "multilingual": 300, "verified": 500, "test": 2294}
"""Number of tasks in each split of the leaderboard that is graded from files (huggingface.co/SWE-bench)."""
INSTANCE = re.compile(r"[A-Za-z0-9_.+-]+__[A-Za-z0-9_.+-]+-[0-9]+")
"""Pattern of a SWE-bench id: <owner>__<repository>-<pull request number>."""
ONCE = "Is a pass@1 submission (does not attempt the same task instance more than once)"
TESTS = "Does not use SWE-bench test knowledge (`PASS_TO_PASS`, `FAIL_TO_PASS`)"
HINTS = "Does not use the `hints` field in SWE-bench"
WEB = (
    "Does not have web-browsing OR has taken steps to prevent lookup of SWE-bench solutions via web-browsing"
)


def check_ids(ids: Iterable[str]) -> None:
    """Raises InputError if an id does not have the form of a SWE-bench id."""
    if strangers := sorted(name for name in ids if not INSTANCE.fullmatch(name)):
        what = f"{len(strangers)} tasks are of no benchmark of the leaderboard, such as {strangers[0]}"
        raise InputError(what, expected="ids such as django__django-11099")


def missing_tasks(ids: Collection[str]) -> str:
    """Returns "" if the number of tasks is the size of a split. Otherwise returns a text with the sizes of
    all splits."""
    if len(ids) in SPLITS.values():
        return ""
    sizes = ", ".join(f"{name} {size}" for name, size in SPLITS.items())
    return f"{len(ids)} tasks are no whole split ({sizes}): the leaderboard counts the others as not resolved"


def steps(limit: int | None) -> str:
    """Describes a limit of model calls. 0 means no limit, and None means an unknown limit."""
    if limit is None:
        return "limit of steps not known"
    return f"at most {limit} steps" if limit else "no limit of steps"


def checklist(summary: Record, scaffold: Record) -> str:
    """Returns the leaderboard's checklist as Markdown. A box is ticked if the claim is known to be true.
    summary: contains statements_naming_tests, if known. scaffold: the recipe."""
    agent = scaffold.get("agent")
    reasons = {ONCE: "", TESTS: _test_knowledge(summary, scaffold), HINTS: "", WEB: ""}
    if not agent or agent == "swe-agent":
        reasons[WEB] = "not known: the sandboxes are not swelab's, which have no network"
    lines = (
        f"- [{' ' if why else 'x'}] {claim}{f' ({why})' if why else ''}" for claim, why in reasons.items()
    )
    return "\n".join(lines)


def _test_knowledge(summary: Record, scaffold: Record) -> str:
    """Returns why a submission cannot claim that it used no test knowledge. Returns "" if it can."""
    naming = summary.get("statements_naming_tests")
    if naming is None:
        return "not known: nobody counted the statements that name a test to repair"
    if naming:
        return f"no: {len(naming)} statements name a test to repair, such as that of {naming[0]}"
    if "eval" in scaffold.get("tools", ()):
        return "no: the agent's tool `eval` runs the files with the tests to repair"
    return ""
