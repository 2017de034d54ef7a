"""The table in results/README.md equals the graph of artifacts."""

import pytest

from swelab.lineage import KINDS, Kind
from swelab.records import InputError
from swelab.scores.artifact_table import with_table
from tests.conftest import ROOT

PAGE = ROOT / "results/README.md"


def test_the_page_is_current():
    assert with_table(PAGE.read_text(), ROOT / "rules") == PAGE.read_text(), (
        "run python -m scripts.write_schemas"
    )


def test_a_new_kind_and_its_rule_s_sentence_are_a_row(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "fused", Kind("fuse", {"checkpoint": "results/fused/{fused}/checkpoint"}))
    for path in (ROOT / "rules").glob("*.smk"):
        (tmp_path / path.name).write_text(path.read_text())
    with pytest.raises(InputError, match="rule fuse: no docstring"):
        with_table(PAGE.read_text(), tmp_path)
    (tmp_path / "fused.smk").write_text('rule fuse:\n    """Weights that\n    were fused."""\n')
    (row,) = set(with_table(PAGE.read_text(), tmp_path).splitlines()) - set(PAGE.read_text().splitlines())
    assert row == "| `fused/{fused}/checkpoint` | `fuse` | Weights that were fused. |"
