"""Predictions in the SWE-bench format: the patch that was submitted for each instance."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swelab.files.json_streams import KeyFilter, Spool, object_items
from swelab.records import InputError, as_record, decoder, read_jsonl, read_record, read_records, read_text
from swelab.records.attempt_records import Prediction, Trajectory
from swelab.rollouts.own_eval import own_eval


def load_predictions(path: str | Path, key_filter: KeyFilter | None = None) -> dict[str, Prediction]:
    """Returns the predictions in a JSON object, a JSON list or JSON Lines, keyed by instance id.

    Each prediction is {"instance_id", "model_name_or_path", "model_patch": str | None}. key_filter: selects
    ids. If the file is an object, other predictions are not kept in memory. Raises InputError if a prediction
    is malformed, or if an instance has two. A patch that no file can contain is accepted here, and graded as
    a patch that does not apply.
    """
    return {row.instance_id: row for row in read_predictions(path, key_filter)}


def read_predictions(path: str | Path, key_filter: KeyFilter | None = None) -> Iterator[Prediction]:
    """Yields predictions, with the forms and errors of `load_predictions`. An object is read entry by
    entry."""
    names: set[str] = set()
    for number, row in enumerate(_rows(path, key_filter)):
        prediction = as_record(row, Prediction, f"{path}, prediction {number}")
        name = prediction.instance_id
        if name in names:
            raise InputError(f"{name} is predicted twice", path, "one prediction each")
        names.add(name)
        if key_filter is None or key_filter(name):
            yield prediction
    if not names and next(_rows(path, None), None) is None:
        raise InputError("holds no prediction", path, "at least one")


def _rows(path: str | Path, key_filter: KeyFilter | None) -> Iterator[Any]:
    if not _one_key_a_line(path):
        yield from _parse(path)
        return
    for key, row in object_items(path, key_filter):
        yield _with_id(key, row, path)


def _with_id(key: str, row: Any, path: str | Path) -> Any:
    """Returns a prediction whose instance id is set to its key in the file.

    Raises InputError if the prediction names another id.
    """
    if not isinstance(row, dict):
        return row
    if row.get("instance_id", key) != key:
        raise InputError(f"key {key} holds the prediction of {row['instance_id']}", path)
    return {"instance_id": key, **row}


def _one_key_a_line(path: str | Path) -> bool:
    """Returns whether a file is an object of predictions with one entry per line, as swelab writes it."""
    try:
        with open(path, "rb") as stream:
            return stream.readline(16).strip() == b"{" and not stream.readline(64).lstrip().startswith(
                b'"instance_id"'
            )
    except OSError:
        return False


def _parse(path: str | Path) -> list[Any]:
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", path, "predictions")
    try:
        content: Any = decoder.decode(text)
    except (ValueError, RecursionError):
        content = list(read_jsonl(path))
    if isinstance(content, dict) and "instance_id" not in content:
        return [_with_id(key, row, path) for key, row in content.items()]
    return content if isinstance(content, list) else [content]


def collect(
    trajectories: Iterable[tuple[str | Path, Trajectory]], names: Iterable[str], spool: Spool
) -> Iterator[tuple[str, Prediction]]:
    """Yields (instance id, prediction) for each of `names` in order, from trajectories in any order.

    spool: an empty spool that temporarily stores the predictions. Raises InputError if an instance has two
    trajectories, if a name has no trajectory, or if a trajectory belongs to none of `names`.
    """
    places: dict[str, int] = {}
    for path, row in trajectories:
        if row.instance_id in places:
            raise InputError(f"{row.instance_id} has two trajectories", path)
        prediction = Prediction(
            instance_id=row.instance_id,
            model_name_or_path=row.policy,
            model_patch=row.model_patch,
            outcome=row.outcome,
        )
        if "sample" in row:
            prediction["sample"] = row.sample
        prediction.update(own_eval(row.messages))
        places[row.instance_id] = spool.add(prediction)
    order = list(names)
    missing = [name for name in order if name not in places]
    if missing or len(places) != len(order):
        strangers = sorted(places.keys() - set(order))
        what = f"{len(missing)} tasks without a trajectory{_some(missing)}, "
        what += f"{len(strangers)} of no task{_some(strangers)}"
        raise InputError(what, expected="one trajectory a task")
    for name in order:
        yield name, Prediction.of(spool.get(places[name]))


def shard_predictions(path: str | Path, names: Iterable[str]) -> dict[str, Prediction]:
    """Returns the predictions from the trajectories of one shard, keyed by instance id. names: the shard's
    instances. Raises InputError as `collect` does."""
    return dict(collect(read_records([path], Trajectory), names, Spool()))


def _some(names: list[str]) -> str:
    """Returns the first few names in brackets, or '' without names."""
    return f" ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" if names else ""


def merge_folders(
    folders: Sequence[Path], instance_ids: Iterable[str] | None = None
) -> dict[str, Prediction]:
    """Returns SWE-agent's predictions below `folders` (`<id>/<id>.pred`), keyed and sorted by instance id.

    Raises InputError for malformed files. Also raises InputError with the instances that are predicted twice,
    have a trajectory but no prediction, are not among `instance_ids`, or are missing.
    """
    paths: dict[str, Path] = {}
    twice, begun = set(), set()
    for folder in folders:
        if not folder.is_dir():
            raise InputError("no such folder", folder, "a folder of SWE-agent's trajectories")
        for path in sorted(folder.rglob("*.pred")):
            twice |= {path.stem} & paths.keys()
            paths[path.stem] = path
        begun |= {path.stem for path in folder.rglob("*.traj")}
    names = paths.keys() if instance_ids is None else set(instance_ids)
    faults = {
        "predicted more than once": sorted(twice),
        "without a prediction": sorted((begun | names) - paths.keys()),
        "not of the tasks": sorted(paths.keys() - names),
    }
    told = [f"{len(ids)} {what}{_some(ids)}" for what, ids in faults.items() if ids]
    if told or not paths:
        where = ", ".join(map(str, folders))
        raise InputError("; ".join(told) or "holds no prediction", where, "one <id>.pred an instance")
    return {name: _prediction(paths[name]) for name in sorted(paths)}


def _prediction(path: Path) -> Prediction:
    """Reads one `.pred` file. A null patch becomes '', as in SWE-agent's own merge."""
    row = read_record(path, Prediction)
    if row.instance_id != path.stem:
        raise InputError(f"it is of {row.instance_id}", path, "the instance that it is named after")
    return row | {"model_patch": row.model_patch or ""}
