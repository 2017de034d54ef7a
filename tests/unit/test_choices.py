"""Every entry of the tables of choices is complete, and is found by each of its names."""

import inspect
from pathlib import Path

import pytest

from swelab.choices import ADVANTAGES, BACKENDS, ROW_STYLES, TABLES, canonical, load
from swelab.configs.kinds.rl import Method
from swelab.sft.rows.styles import RowStyle

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"ADVANTAGES": "rl", "BACKENDS": "sandboxes", "CALL_FORMS": "debugger", "ROW_STYLES": "sft-data"}


@pytest.mark.parametrize("table", TABLES)
def test_names_of_a_table_are_unique_and_on_its_page(table):
    names = [name for value, each in TABLES[table].items() for name in (value, *each.aliases)]
    assert len(names) == len(set(names))
    page = (DOCS / f"{PAGES[table]}.md").read_text()
    assert not [name for name in TABLES[table] if f"`{name}`" not in page]


def test_alias_in_a_recipe_gives_the_same_recipe():
    for name, each in ADVANTAGES.items():
        for alias in each.aliases:
            assert Method(advantage=alias) == Method(advantage=name)
    assert canonical(ADVANTAGES, "rlo") == "rlo" and canonical(ADVANTAGES, ["rloo"]) == ["rloo"]


def test_code_of_every_entry_exists():
    for each in ADVANTAGES.values():
        assert len(inspect.signature(each.load()).parameters) >= 2
    for name, backend in BACKENDS.items():
        assert backend.load().name == name and callable(backend.load().start)
        assert callable(load(backend.puller).pull)
    assert {type(each.load()) for each in ROW_STYLES.values() if each.code} == {RowStyle}
