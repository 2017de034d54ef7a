"""Orders the rows of a published set. A limit takes the first rows."""

import hashlib
from collections import Counter
from collections.abc import Mapping

from swelab.configs.kinds.subset import DatasetSubset


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
