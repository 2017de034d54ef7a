"""The files in a rule's docstring are the files in the graph of artifacts."""

import itertools
import re
from contextlib import suppress
from pathlib import Path

import pytest

from swelab.configs import recipes
from swelab.jobs.shards import shard_names
from swelab.lineage import KINDS, Wildcards
from swelab.lineage.graph import find
from swelab.records import Fault

RULES = Path(__file__).resolve().parents[3] / "rules"
RULE = re.compile(r'^rule (\w+):\n    """(.*?)"""\n(.*?)(?=^\S|\Z)', re.M | re.S)
LINE = re.compile(r"^    (?:in: |out:|    ) ([a-z_]+) +(\S.*(?:\n {12,}\S.*)*)", re.M)
PATH = re.compile(r"\w+/[^\s,]*")
PATTERNS = {path for kind in KINDS.values() for path in kind.files.values()}
NAMES = {
    **{kind: recipes.names(kind) for kind in recipes.FOLDERS},
    "shard": shard_names(1, [0]),
    "sample": [""],
}


def pattern_of(path):
    """Returns the pattern of an artifact's or a recipe's path, or the path itself."""
    kind, names = find(path) or ("", {})
    for each in KINDS[kind].files.values() if kind else ():
        with suppress(KeyError):
            if each.format_map({"sample": "", **names}) == path:
                return each
    for name, folder in recipes.FOLDERS.items():
        if re.fullmatch(rf"configs/{folder}/[^/]+\.yaml", path):
            return recipes.recipe_file(name)
    return path


def needs_of(kind):
    """Maps roles to the file patterns that shipped recipes need in them."""
    found = {role: set() for role in KINDS[kind].needs}
    wildcards = sorted(
        {name for each in KINDS[kind].files.values() for name in re.findall(r"\{(\w+)\}", each)}
    )
    lists = [NAMES[name] for name in wildcards]
    count = 2 * max(map(len, lists), default=1)
    for names in itertools.islice(zip(*map(itertools.cycle, lists)), count) if lists else [()]:
        at = Wildcards(dict(zip(wildcards, names)))
        for role, need in KINDS[kind].needs.items():
            with suppress(Fault):  # names that do not fit together
                found[role] |= set(map(pattern_of, [at.path(need)] if isinstance(need, str) else need(at)))
    return found


def rules():
    """Returns (rule, its docstring, its other text) of all rules whose files come from the graph."""
    for path in sorted(RULES.glob("*.smk")):
        for name, words, body in RULE.findall(path.read_text()):
            if re.search(r"\*\*(needs|made)\(", body):
                yield pytest.param(words, body, id=name)


@pytest.mark.parametrize(("words", "body"), rules())
def test_a_docstring_names_the_files(words, body):
    before, _, after = words.partition("    out: ")
    inputs, outputs = dict(LINE.findall(before)), dict(LINE.findall(f"    out: {after}"))
    outputs = {role: text.partition("  ")[0] for role, text in outputs.items()}  # then a sentence
    (kind,) = set(re.findall(r"\*\*(?:needs|made)\(\"(\w+)\"", body))
    roles = re.findall(r"\*\*made\(\"\w+\", (.*)\)", body)
    files = KINDS[kind].files
    shown = re.findall(r'"(\w+)"', roles[0]) if roles else list(files)
    assert outputs == {role: files[role] for role in shown}
    given = set(re.findall(r"^        (\w+)=", body.partition("    output:")[0], re.M))
    needs = needs_of(kind) if "**needs(" in body else {}
    assert set(inputs) == set(needs) | given
    known = {*map(recipes.recipe_file, recipes.FOLDERS), *PATTERNS}
    for role, patterns in needs.items():
        paths = set(PATH.findall(inputs[role]))
        assert patterns <= paths <= known | patterns, role
