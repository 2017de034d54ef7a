"""Assigns instances to shards, which are jobs.

An instance belongs to a shard by a hash of its id, so that a new instance does not move other instances. A
policy may attempt its tasks k times. Then each sample has its own shard of the same instances, so that a
further sample touches no file of the other samples.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from swelab.records import InputError, Record

Row = TypeVar("Row", bound=Mapping[str, Any])
SHAPES = {"sample": r"(?:\.s[1-9]\d*)?", "shard": r"\d{3}of\d{3}(?:s[1-9]\d*)?"}
"""Regular expressions for the parts of paths that are not names of recipes."""


def shard_of(instance_id: str, shards: int) -> int:
    """Returns the shard (0 .. shards-1) that an instance belongs to."""
    return int.from_bytes(hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).digest()[:8]) % shards


def shard_names(shards: int, samples: Iterable[int] = (0,)) -> list[str]:
    """Returns the file names of the shards of some samples.

    A name is `<number>of<count>`, followed by s<sample> unless the sample is 0.
    """
    names = [f"{number:03d}of{shards:03d}" for number in range(shards)]
    return [f"{name}s{sample}" if sample else name for sample in samples for name in names]


def parse_shard(name: str) -> tuple[int, int, int]:
    """Returns (number, count, sample) of a shard's name. Raises InputError."""
    found = re.fullmatch(r"(\d+)of(\d+)(?:s([1-9]\d*))?", name)
    if not found or int(found[1]) >= int(found[2]):
        text = "<number>of<count>, such as 000of004, or 000of004s1 of sample 1"
        raise InputError(f"{name!r} is not a shard", expected=text)
    return int(found[1]), int(found[2]), int(found[3] or 0)


def sample_of(shard: str) -> int:
    """Returns the number of a shard's sample, or 0 for a policy without samples. Raises InputError."""
    return parse_shard(shard)[2]


def sample_suffix(sample: int) -> str:
    """Returns the part of a file name, before its extension, that names the sample.

    Returns "" for sample 0.
    """
    return f".s{sample}" if sample else ""


def with_sample(rows: Iterable[Record], shard: str) -> Iterator[Record]:
    """Adds the number of the sample to each row. Rows of sample 0 stay unchanged."""
    sample = sample_of(shard)
    return ({**row, "sample": sample} if sample else row for row in rows)


def attempt_name(row: Record) -> str:
    """Returns the name of a policy's attempt: the instance id, followed by #<sample> from sample 1 on."""
    sample = row.get("sample", 0)
    return f"{row['instance_id']}#{sample}" if sample else row["instance_id"]


def belongs_to(name: str) -> Callable[[str], bool]:
    """Returns a function that tells whether an instance id belongs to the shard `name`. Raises InputError."""
    number, count, _ = parse_shard(name)
    return lambda instance_id: shard_of(instance_id, count) == number


def in_shard(rows: Sequence[Row], name: str) -> list[Row]:
    """Returns the rows whose instance belongs to the shard `name`, in their order."""
    mine = belongs_to(name)
    return [row for row in rows if mine(row["instance_id"])]
