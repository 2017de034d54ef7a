"""Assigns functions to the sides of the split, and recognizes equal bugs."""

import hashlib

from swelab.files.text_lines import lines_of


def side_of(repo: str, function: str, heldout_share: float) -> str:
    """Returns "train" or "heldout", by a stable hash of the repository recipe's name and the function.
    heldout_share: in [0, 1]. All bugs of a function are on the same side, in every subset."""
    value = int(hashlib.sha256(f"{repo}\n{function}".encode()).hexdigest()[:8], 16)
    return "heldout" if value < heldout_share * 2**32 else "train"


def bug_hash(patch: str) -> str:
    """Returns a hash (16 hex digits) of a patch's paths and lines, but not of its line numbers.
    Changed lines and context lines count."""
    kept = []
    for line in lines_of(patch):
        if line.startswith(("diff --git ", "index ", "+++ ", "@@ ")):
            continue
        kept.append(line.rstrip())
    return hashlib.sha256("\n".join(kept).strip().encode("utf-8", "surrogateescape")).hexdigest()[:16]
