"""An instance stays in its shard, and names of shards are parsed."""

import pytest

from swelab.jobs import shards
from swelab.records import InputError


def test_adding_an_instance_moves_no_other():
    names = [f"x{n}" for n in range(500)]
    before = {name: shards.shard_of(name, 7) for name in names}
    counts = [list(before.values()).count(n) for n in range(7)]
    assert min(counts) > 40
    assert all(shards.shard_of(name, 7) == before[name] for name in names)
    rows = [{"instance_id": name} for name in names]
    dealt = [row for name in shards.shard_names(7) for row in shards.in_shard(rows, name)]
    assert sorted(row["instance_id"] for row in dealt) == sorted(names)


@pytest.mark.parametrize("name", ["7of7", "a", "1of", "of3"])
def test_bad_shard_names(name):
    with pytest.raises(InputError):
        shards.parse_shard(name)
