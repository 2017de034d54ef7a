"""Unpacks published sets of trajectories, one row at a time, into a folder of recordings.

The rows have the form of swesmith's collect_trajs and of SWE-bench/SWE-smith-trajectories. Their fields are
`messages` (a list, or its JSON as text), `instance_id`, `patch`, and sometimes `resolved`, `traj_id` and
`model`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swelab.configs.kinds.policy import RecordedPolicy
from swelab.files.dataset_files import FORMATS, published_files, read_rows
from swelab.records import InputError, Record, write_bytes
from swelab.rollouts.trajectory_files import ROW

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")
"""Matches instance ids that can be file names."""
AT_ONCE = 32
"""Number of rows that are in memory at a time. A row has a few hundred kilobytes."""


def unpack_trajectories(policy: RecordedPolicy, downloads: Path, output: Path) -> Record:
    """Writes the n-th row of each instance to `<n>/<id>/<id>.row.json` in the folder `output`, and returns
    counts.

    At most the first `samples` rows of an instance are written. Raises HubError, and InputError if there is
    no file, a file of another kind, or no row with a trajectory.
    """
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    rows, most = 0, policy.samples or 1
    for row in _rows(policy, downloads):
        rows += 1
        reason = _unfit(row, policy.resolved_only)
        if not reason and counts[row["instance_id"]] >= most:
            reason = "over_samples"
        if reason:
            dropped[reason] += 1
            continue
        name = row["instance_id"]
        place = output / str(counts[name]) / name / f"{name}{ROW}"
        counts[name] += 1
        write_bytes(place, json.dumps(row, ensure_ascii=True).encode(), durable=False)
    if not counts:
        what = f"none of its {rows} rows is a trajectory ({dict(dropped)})" if rows else "holds no row"
        raise InputError(what, policy.path or policy.dataset or "", "trajectories in rows")
    reasons = dict(sorted(dropped.items()))
    return {"rows": rows, "instances": len(counts), "trajectories": counts.total(), "dropped": reasons}


def _unfit(row: Any, resolved_only: bool) -> str:
    """Returns why a row is not a wanted trajectory, or ''. Messages that are JSON text are parsed in
    place."""
    name = row.get("instance_id") if isinstance(row, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "no_instance_id"
    if resolved_only and row.get("resolved") is not True:
        return "not_resolved"
    if not isinstance(row.get("patch"), str | None):
        return "patch_of_another_kind"
    if isinstance(row.get("messages"), str):
        try:
            row["messages"] = json.loads(row["messages"])
        except (ValueError, RecursionError):
            return "messages_are_no_json"
    messages = row.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return "no_list_of_messages"
    return "" if any(message.get("role") == "assistant" for message in messages) else "no_turn_of_the_policy"


def _rows(policy: RecordedPolicy, downloads: Path) -> Iterator[Any]:
    if policy.dataset and policy.revision:
        given = (policy.dataset, policy.revision, policy.split, policy.files, policy.sha256)
        files = published_files(*given, downloads)
    else:
        path = Path(policy.path or "")
        files = (
            sorted(each for each in path.rglob("*") if each.suffix in FORMATS) if path.is_dir() else [path]
        )
        if not files:
            raise InputError("holds no rows", path, f"files that end in {', '.join(FORMATS)}")
    for file in files:
        yield from read_rows(file, AT_ONCE)
