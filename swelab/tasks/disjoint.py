"""Proof that nothing a policy is scored on was trained on."""

from collections.abc import Iterable

from swelab.records import InputError, Record
from swelab.tasks.split import bug_hash

SHOWN = 5


def check_disjoint(train: Iterable[Record], heldout: Iterable[Record]) -> Record:
    """Counts of both sides by instance, function and bug.

    A function is (repository recipe, "path::Qual.name"); rows of a published set have none. A bug is
    its row's hash, or the hash of its patch. Raises InputError that lists what is on both sides.
    """
    sides = {"train": _identities(train), "heldout": _identities(heldout)}
    shared = {kind: sorted(sides["train"][kind] & sides["heldout"][kind]) for kind in sides["train"]}
    overlaps = {kind: found for kind, found in shared.items() if found}
    if overlaps:
        listed = [f"{len(found)} by {kind} ({_some(found)})" for kind, found in overlaps.items()]
        raise InputError(f"train and heldout overlap: {', '.join(listed)}", expected="no task on both sides")
    counts = {side: {kind: len(found) for kind, found in kinds.items()} for side, kinds in sides.items()}
    return {"disjoint": True, **counts}


def _identities(tasks: Iterable[Record]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {"instance_id": set(), "function": set(), "bug": set()}
    for task in tasks:
        kinds["instance_id"].add(task["instance_id"])
        kinds["bug"].add(task.get("bug") or bug_hash(task["patch"]))
        if task.get("function"):
            kinds["function"].add(f"{task.get('repo_recipe') or task['repo']}:{task['function']}")
    return kinds


def _some(found: list[str]) -> str:
    return ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
