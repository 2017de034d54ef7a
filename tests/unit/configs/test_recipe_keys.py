"""Every optional key of a recipe is set by a shipped recipe or documented on a page."""

import re
from pathlib import Path

import yaml

from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS

ROOT = Path(__file__).resolve().parents[3]


def optional_keys(node):
    """Returns the optional keys of a schema and its parts."""
    if isinstance(node, dict):
        properties = node.get("properties")
        if isinstance(properties, dict):
            yield from set(properties) - set(node.get("required", []))
        for each in node.values():
            yield from optional_keys(each)
    elif isinstance(node, list):
        for each in node:
            yield from optional_keys(each)


def keys(node):
    """Returns the keys of a recipe and its parts."""
    if isinstance(node, dict):
        yield from map(str, node)
        for each in node.values():
            yield from keys(each)
    elif isinstance(node, list):
        for each in node:
            yield from keys(each)


def test_every_key_is_set_by_a_recipe_or_named_on_a_page():
    recipes = sorted((ROOT / "configs").rglob("*.yaml"))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert len(recipes) > 100 and len(pages) > 30
    known = {key for path in recipes for key in keys(yaml.safe_load(path.read_text()))}
    known |= {word for path in pages for word in re.findall(r"\w+", path.read_text())}
    optional = {key for kind in RECIPE_KINDS.values() for key in optional_keys(schema_of(kind))}
    assert len(optional) > 200 and not sorted(optional - known)
