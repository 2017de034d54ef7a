"""The table of results/README.md: every kind of artifact with its files, its rules and its meaning."""

import re
from pathlib import Path

from swelab.lineage import KINDS, Kind
from swelab.records import InputError, read_text

_TABLE = re.compile(r"<!-- swelab.lineage -->\n(\|.*\n)*")


def with_table(page: str, rules: Path) -> str:
    """Returns `page` with its table filled in from the graph. rules: folder of the rules.
    A row has the first paragraph of a rule's docstring. Raises InputError if a rule has no docstring."""
    text = "".join(read_text(path) for path in sorted(rules.glob("*.smk")))
    sentences = dict(re.findall(r'^rule (\w+):\n    """(.*?)(?:\n\n.*?)?"""', text, flags=re.M | re.S))
    variants = re.findall(r"^use rule (\w+) as (\w+)", text, flags=re.M)
    sentences |= {variant: sentences.get(base, "") for base, variant in variants}
    rows = ["| path | rule | what it is |", "|---|---|---|"]
    for kind in KINDS.values():
        rule = kind.rules.split()[0]
        if not sentences.get(rule):
            raise InputError("no docstring", f"rule {rule}", "a sentence that says what it makes")
        names = ", ".join(f"`{name}`" for name in kind.rules.split())
        rows.append(f"| {_paths(kind)} | {names} | {' '.join(sentences[rule].split())} |")
    return _TABLE.sub(lambda _: "\n".join(["<!-- swelab.lineage -->", *rows, ""]), page)


def _paths(kind: Kind) -> str:
    """Lists the files of an artifact kind.

    The first is a path below results/, the others are names. Manifests of stages are omitted.
    """
    first, *others = kind.files.values()
    shown = [path.rpartition("/")[2] for path in others if not path.endswith(".manifest.json")]
    return ", ".join(f"`{path}`" for path in [first.removeprefix("results/"), *shown])
