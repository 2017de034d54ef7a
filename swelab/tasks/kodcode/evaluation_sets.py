"""Recognises instances of published evaluation sets, by hashes of their ids."""

import hashlib
import json
from functools import cache
from pathlib import Path

HASHES = Path(__file__).with_name("evaluation_sets.json")
DIGITS = 12
"""Hex digits of a hash that we store. The chance that one of 15,000 foreign ids matches is 1 in 10^7."""


@cache
def known_ids() -> dict[str, str]:
    """Name of the evaluation set by the hash of an instance's id."""
    found: dict[str, str] = {}
    for name, text in json.loads(HASHES.read_text(encoding="utf-8")).items():
        found.update((text[at : at + DIGITS], name) for at in range(0, len(text), DIGITS))
    return found


def hashed(instance_id: str) -> str:
    """The hash of an instance's id, in the form of HASHES."""
    return hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def evaluation_set(instance_id: str) -> str:
    """The evaluation set that has an instance of this id, or ""."""
    return known_ids().get(hashed(instance_id), "")
