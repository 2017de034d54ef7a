"""The CSV beside a score, and the table of artifacts in results/README.md."""

import pytest

from swelab.lineage import KINDS, Kind
from swelab.records import InputError
from swelab.records.score_records import Score
from swelab.scores.artifact_table import with_table
from swelab.scores.score_table import score_table
from tests.conftest import ROOT


def test_score_table_of_two_runs():
    score = Score({"instances": {"a__b-1": ["resolved"] * 2, "a__b-2": ["resolved", "infra_error"]}})
    spent = {"calls": 2, "prompt_tokens": 10, "completion_tokens": 3, "cost": 0.5, "seconds": 1.25}
    spent |= {"reasoning_tokens": 1}
    usage = [{"a__b-1": spent, "a__b-2": {**spent, "prompt_tokens": None}}, {"a__b-1": spent}]
    assert score_table(score, usage).splitlines() == [
        "instance_id,sample,status,seconds,calls,prompt_tokens,completion_tokens,reasoning_tokens,cost",
        "a__b-1,0,resolved,1.25,2,10,3,1,0.5",
        "a__b-1,1,resolved,1.25,2,10,3,1,0.5",
        "a__b-2,0,resolved,1.25,2,,3,1,0.5",
        "a__b-2,1,infra_error,,,,,,",
    ]


def test_score_table_without_usage():
    assert score_table(Score({"instances": {"a__b-1": "resolved"}})).endswith("\na__b-1,0,resolved,,,,,,\n")


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
