"""The task source `dataset`: a published set in SWE-smith's or SWE-bench's schema, or a local copy."""

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swelab.configs.kinds.subset import DatasetSubset
from swelab.files.dataset_files import published_files, read_rows
from swelab.files.hf_hub import newest_commit
from swelab.files.json_streams import RowSelection, Spool
from swelab.records import InputError, numbered_jsonl
from swelab.records.task_records import Task
from swelab.tasks.criteria import Criteria
from swelab.tasks.identity import Identities
from swelab.tasks.published_rows import lacks, read_row


def ordered_ids(repos: Mapping[str, str], recipe: DatasetSubset) -> list[str]:
    """Returns instance ids in the recipe's order. repos: maps an id to its repository, as published.

    If `order` is "seeded", ids are sorted by a hash of seed and id. So the order of two ids does not depend
    on other rows. If `stratify` is "equal", repositories take turns. If `stratify` is "proportional", each
    repository has about the same share in each section of the order as in the whole set. A larger limit gives
    the same first rows.
    """
    ids = list(repos)
    if recipe.order == "seeded":
        ids.sort(key=lambda name: _draw(recipe.seed, name))
    if recipe.stratify == "none":
        return ids
    sizes, ranks = Counter(repos.values()), Counter[str]()
    turns = {}
    for name in ids:
        repo = repos[name]
        share = sizes[repo] if recipe.stratify == "proportional" else 1
        turns[name] = ((ranks[repo] + 0.5) / share, _draw(recipe.seed, repo))
        ranks[repo] += 1
    return sorted(ids, key=lambda name: turns[name])


def _draw(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}\n{name}".encode()).hexdigest()


DOWNLOADS = Path("results/downloads/datasets")
_HUB_NAME = re.compile(r"([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(?:@([0-9a-f]{40}))?")
AT_ONCE = 256
"""Number of rows that are read into memory at a time."""


def make_tasks(
    recipe: DatasetSubset,
    downloads: Path = DOWNLOADS,
    excluded: Iterable[Task] = (),
    ratings: Mapping[str, int] | None = None,
) -> tuple[Sequence[Task], dict[str, int]]:
    """Returns the rows of a published set that meet the recipe's criteria, and the counts of dropped rows.

    The counts are a mapping from reasons to numbers of rows. A row counts for the first reason that applies.
    Rows keep all their keys. Lists written as JSON strings become lists. A larger limit gives the same first
    rows. `patch` is what its publisher means: the bug in SWE-smith, the fix in SWE-bench. A row without patch
    or tests is dropped. If the recipe's answers are private, such a row is kept and marked as private.
    downloads: folder for the files of published sets. excluded: tasks to exclude. This also excludes rows
    with the same change, or with the same repository and commit. ratings: maps instance ids to difficulties.
    Raises HubError, and InputError naming the file, the row and the field.
    """
    criteria, others = Criteria(recipe.criteria, ratings), Identities.of(excluded)
    drops: Counter[str] = Counter()
    places: dict[str, int] = {}
    repos: dict[str, str] = {}
    spool = Spool()
    for where, raw in raw_rows(recipe, downloads):
        row = read_row(raw, where, recipe.images)
        name = row["instance_id"]
        missing = lacks(row)
        if missing and "private" in (recipe.answers, row.get("answers")):
            missing, row["answers"] = "", "private"
        reason = missing or criteria.miss(row) or others.shares(row)
        if reason:
            drops[reason] += 1
        elif name not in places:
            places[name], repos[name] = spool.add(row), sys.intern(row.repo)
        elif spool.get(places[name]) == row:
            drops["repeated_row"] += 1
        else:
            raise InputError(f"duplicate instance_id {name}", where, "unique ids")
    if not places:
        where = recipe.path or f"{recipe.dataset}, split {recipe.split}"
        raise InputError(f"no row meets the criteria ({dict(drops)})" if drops else "holds no row", where)
    order = [places[name] for name in ordered_ids(repos, recipe)]
    limit = recipe.limit or len(order)
    if len(order) > limit:
        drops["over_limit"] = len(order) - limit
    return RowSelection(spool, order[:limit], Task), dict(sorted(drops.items()))


def named_set(
    data: str, split: str = "test", files: Sequence[str] = (), expected: str = "or owner/set"
) -> DatasetSubset:
    """Returns a recipe for the set `data`: a file, or `owner/set` or `owner/set@<commit>` on the hub.

    Without a commit, the newest commit is used. expected: text for the error message, with other values that
    the caller accepts. Raises HubError, and InputError if `data` has none of these forms.
    """
    if Path(data).is_file():
        return DatasetSubset(source="dataset", path=data)
    match = _HUB_NAME.fullmatch(data)
    if not match or Path(data).exists() or Path(data).suffix in (".json", ".jsonl", ".parquet"):
        what = "not a file" if Path(data).exists() else "no such file"
        raise InputError(what, data, f"a JSON list, JSON Lines, Parquet, {expected}")
    commit = match[2] or newest_commit(match[1], "dataset")
    named: dict[str, Any] = {"revision": commit, "split": split, "files": list(files)}
    return DatasetSubset(source="dataset", dataset=match[1], **named)


def named_rows(data: str | Path, split: str = "test") -> Sequence[Task]:
    """Returns all rows of a set as tasks. data: a file or a name on the hub (see `named_set`).
    The rows are stored on disk. Raises InputError, HubError."""
    rows, _ = make_tasks(named_set(str(data), split))
    return rows


def raw_rows(recipe: DatasetSubset, downloads: Path = DOWNLOADS) -> Iterator[tuple[str, Any]]:
    """Yields (location, row). Rows are as published. Raises InputError, HubError.
    A location is file and line for JSON Lines, otherwise file and row number from 0."""
    if path := recipe.path:
        yield from _numbered_rows(Path(path).expanduser())
    elif not recipe.dataset:
        raise InputError("neither path nor dataset", "subset recipe", "where the rows come from")
    elif not recipe.revision:
        wanted = "`revision`: its commit of 40 digits, as the set's page lists it under Files and versions"
        raise InputError(f"{recipe.dataset} without revision", "subset recipe", wanted)
    else:
        given = (recipe.dataset, recipe.revision, recipe.split, recipe.files, recipe.sha256)
        for file in published_files(*given, downloads):
            yield from _numbered_rows(file)


def _numbered_rows(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".jsonl":
        return ((f"{path}, line {number}", row) for number, row in numbered_jsonl(path))
    return ((f"{path}, row {number}", row) for number, row in enumerate(read_rows(path, AT_ONCE)))
