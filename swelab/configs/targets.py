"""Explains why no rule makes a target: names the unknown part of the path, and the nearest known name.

Snakemake itself reports only that there is no rule. The most frequent cause is a misspelt recipe name in the
path.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swelab.configs import recipes
from swelab.records import InputError

NAMING = ("--forcerun", "-R", "--until", "-U", "--omit-from", "-O")
"""Options of Snakemake whose values are rule names."""


Find = Callable[[str], tuple[str, dict[str, str]] | None]
"""The function `lineage.find`: maps a path to the kind of the file and its wildcard values."""


def check_targets(
    targets: Iterable[str], rules: Sequence[Any], outputs: Mapping[str, Sequence[str]], find: Find
) -> None:
    """Raises InputError for the first target that is not a rule name, a rule's output or an existing file.

    rules: Snakemake's rules, with `name` and `products()`, whose patterns have `match(path)`. outputs: maps a
    rule to its path patterns.
    """
    names = [rule.name for rule in rules]
    for target in targets:
        first = outputs.get(target, [""])[0]
        if "{" in first:
            wanted = f"a path such as {first} with its names filled in"
            raise InputError("the rule makes more than one file", f"target {target}", wanted)
        targets_of_rules = [*names, *(path for paths in outputs.values() for path in paths)]
        unknown = _unknown_recipe(target, find)  # also for a file that an older recipe left
        is_named = "{" not in target and target in targets_of_rules  # a pattern is no target
        is_made = any(output.match(target) for rule in rules for output in rule.products())
        if unknown or not (is_named or Path(target).exists() or is_made):
            hint = unknown or _nearest_text(target, targets_of_rules)
            raise InputError(f"no rule makes it{hint}", f"target {target}", "a path of results/README.md")


def with_variants(words: Sequence[str], rules: Iterable[Sequence[str]]) -> list[str]:
    """Returns the words of a Snakemake command line. In the NAMING options, the variants of a rule are added
    after its name. A variant is a rule that makes the same files. rules: (name, names of the variants ...) of
    each rule.

    Words after `--forcerun=rule` are targets, but words after `--forcerun rule` are rules. So the first form
    stays, and the option comes again after the targets, with the variants. Snakemake uses the last one.
    """
    variants = {first: others for first, *others in rules}
    result, again, naming = list[str](), list[str](), False
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            result, again, naming = result + again, [], option in NAMING and not equals
            new = [each for each in variants.get(value, ()) if option in NAMING and each not in words]
            again = [option, value, *new] if new else []
        result.append(word)
        result += [each for each in variants.get(word, ()) if naming and each not in words]
    return [*result, *again, *words[end:]]


def _unknown_recipe(target: str, find: Find) -> str:
    """Returns a hint if the target has the form of an output, but one of its names is not a known recipe.
    Otherwise returns ""."""
    for kind, name in (find(target) or ("", {}))[1].items():
        if kind in recipes.FOLDERS and name not in (known := recipes.names(kind)):
            folder = recipes.CONFIGS / recipes.FOLDERS[kind]
            return f": {folder} has no {kind} {name!r}{recipes.nearest(name, known)}"
    return ""


def _nearest_text(target: str, targets: list[str]) -> str:
    match = difflib.get_close_matches(target, targets, n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else ""
