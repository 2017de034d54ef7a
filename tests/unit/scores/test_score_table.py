"""The CSV beside a score has a line for each attempt."""

from swelab.records.score_records import Score
from swelab.scores.score_table import score_table


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
