"""Targets of a Snakemake command that no rule makes: which name in them is unknown, and what was meant.

Snakemake itself says only that there is no rule. Most often a recipe's name in the path is misspelt.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from swelab.configs import recipes
from swelab.records import InputError


def check_targets(targets: Iterable[str], rules: Sequence[Any]) -> None:
    """Raises InputError for the first target that is no rule's name, no rule's output and no file.

    rules: Snakemake's rules, with `name` and `products()`, whose patterns have `match(path)`.
    """
    patterns = [str(output) for rule in rules for output in rule.products()]
    names = [rule.name for rule in rules]
    outputs = {rule.name: [_bare(str(output)) for output in rule.products()] for rule in rules}
    for target in targets:
        if any("{" in output for output in outputs.get(target, ())):
            what = "the rule makes more than one file"
            raise InputError(
                what, f"target {target}", f"a path such as {outputs[target][0]} with its names filled in"
            )
        made = target in names or any(output.match(target) for rule in rules for output in rule.products())
        if not made and not Path(target).exists():
            hint = _unknown_recipe(target, patterns) or _nearest_text(
                target, names + [_bare(each) for each in patterns]
            )
            raise InputError(f"no rule makes it{hint}", f"target {target}", "a path of results/README.md")


NAMING = ("--forcerun", "-R", "--until", "-U", "--omit-from", "-O")
"""Options of Snakemake after which rules are named."""


def with_variants(words: Sequence[str], rules: Iterable[Any]) -> list[str]:
    """A command line whose NAMING options name, after each rule, its variants: later rules of the same files.

    rules: Snakemake's, in the order of their definition, with `name` and `output`.
    """
    variants: dict[str, list[str]] = {}
    for rule in rules:
        made = _bare(str(rule.output[0])) if rule.output else rule.name
        variants.setdefault(made, []).append(rule.name)
    others = {names[0]: names[1:] for names in variants.values()}
    found, naming = list[str](), False
    for word in words:
        option, _, value = word.partition("=")
        naming = option in NAMING if word.startswith("-") else naming
        found += [option, value] if naming and value else [word]
        found += [each for each in others.get(found[-1], ()) if naming and each not in words]
    return found if len(found) > len(words) else list(words)


def _unknown_recipe(target: str, patterns: Sequence[str]) -> str:
    """Which part of a target is no recipe, where the rest of it has the shape of an output."""
    for pattern in sorted(
        patterns, key=lambda each: len(_bare(each)), reverse=True
    ):  # the most literal first
        found = re.fullmatch(_loose(pattern), target)
        for kind, name in (found.groupdict() if found else {}).items():
            if kind in recipes.FOLDERS and name not in (known := recipes.names(kind)):
                folder = recipes.CONFIGS / recipes.FOLDERS[kind]
                return f": {folder} has no {kind} {name!r}{recipes.nearest(name, known)}"
    return ""


_PARTS = re.compile(r"([^{]+)|\{(\w+)(?:,(?:[^{}]|\{[\d,]+\})*)?\}")
"""The literal parts of a pattern, and its wildcards: {name} or {name,regular expression}."""


def _loose(pattern: str) -> str:
    """Regular expression of a pattern in which each wildcard stands for any one part of a path."""
    seen: set[str] = set()
    parts = []
    for literal, wildcard in _PARTS.findall(pattern):
        if literal:
            parts.append(re.escape(literal))
        elif wildcard in seen:
            parts.append(f"(?P={wildcard})")
        else:
            seen.add(wildcard)
            parts.append(rf"(?P<{wildcard}>[^/]*)" if wildcard == "sample" else rf"(?P<{wildcard}>[^/]+)")
    return "".join(parts)


def _bare(pattern: str) -> str:
    """A pattern without the regular expressions of its wildcards."""
    return "".join(literal or f"{{{wildcard}}}" for literal, wildcard in _PARTS.findall(pattern))


def _nearest_text(target: str, known: list[str]) -> str:
    match = difflib.get_close_matches(target, known, n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else ""
