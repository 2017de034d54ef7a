"""Pairs for preference learning: one task, one beginning, resolved and unresolved. Others are counted."""

import io
import json
import subprocess
import sys

import pytest

from swelab.configs import recipes
from swelab.configs.experiment import load_experiment
from swelab.configs.kinds import SFT
from swelab.configs.trained_on import lineage, training_subsets
from swelab.lineage import base_manifest
from swelab.outcomes import FAILED_GRADES
from swelab.records import InputError, check, read_json, read_jsonl, sha256_file, write_jsonl
from swelab.records.attempt_records import Message
from swelab.records.training_records import SftPair
from swelab.sft.rows.dataset import load_verdicts
from swelab.sft.rows.lengths import ChatTokenizer, check_stats
from swelab.sft.rows.preferences import build_pairs, conversations
from tests.toy_checkpoint import make_checkpoint
from tests.unit.sft.rows.test_dataset import grade, trajectory


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = make_checkpoint(tmp_path_factory.mktemp("base") / "toy")
    (folder.parent / "toy.json").write_text("{}")
    return folder


def said(name, policy, text, **changes):
    """Returns a trajectory for task `name` whose policy wrote `text`."""
    row = trajectory(name, 0, policy=policy, **changes)
    row["messages"][2]["content"] = f"```bash\n{text}\n```"
    return row


def build(base, rows, grades, tmp_path, selection=None, **settings):
    write_jsonl(tmp_path / "grades.jsonl", grades)
    made = {"base": "toy", "selection": {"max_tokens": 400, **(selection or {})}, "pairs": settings}
    recipe = recipes.complete(SFT, made, "recipe")
    spool = io.BytesIO()
    verdicts = load_verdicts([tmp_path / "grades.jsonl"])
    pairs = build_pairs(iter(rows), verdicts, recipe, ChatTokenizer(base), spool)
    found = list(pairs.rows(spool))
    facts = pairs.facts()
    assert facts["trajectories"] == sum(facts["in_pairs"].values()) + sum(facts["dropped"].values())
    for row in found:
        check(row, SftPair, "pair")
    return found, facts


def runs(good, bad, name="t"):
    rows = [said(name, f"g{n}", f"good {n}") for n in range(good)]
    rows += [said(name, f"b{n}", f"bad {n}") for n in range(bad)]
    grades = [grade(name, policy=f"g{n}") for n in range(good)]
    return rows, grades + [grade(name, "unresolved", policy=f"b{n}") for n in range(bad)]


def test_a_pair_is_a_resolved_and_an_unresolved_one_of_a_task(base, tmp_path):
    rows, grades = runs(1, 1)
    (pair,), facts = build(base, rows, grades, tmp_path)
    assert "good 0" in pair["chosen_conversations"][2]["content"]
    assert "bad 0" in pair["rejected_conversations"][2]["content"]
    assert pair["chosen_conversations"][:2] == pair["rejected_conversations"][:2]
    assert pair["rejected_status"] == "unresolved" and pair["policies"] == ["g0", "b0"]
    assert facts["kept"] == 1 and facts["rejected_for"] == {"unresolved": 1} and facts["dropped"] == {}
    write_jsonl(tmp_path / "pairs.jsonl", [pair])
    assert [each["messages"][2]["content"][8:12] for each in conversations(tmp_path / "pairs.jsonl")] == [
        "good",
        "bad ",
    ]


def test_the_draw_is_seeded_bounded_and_takes_each_once_before_any_twice(base, tmp_path):
    rows, grades = runs(2, 4)
    pairs, facts = build(base, rows, grades, tmp_path, per_instance=4, seed=1)
    assert sorted(pair["policies"][1] for pair in pairs) == ["b0", "b1", "b2", "b3"]
    assert [pair["policies"][0] for pair in pairs].count("g0") == 2 and facts["dropped"] == {}
    again, _ = build(base, rows[::-1], grades, tmp_path, per_instance=4, seed=1)
    assert again == pairs
    draws = set()
    for seed in range(12):
        (one,), facts = build(base, rows, grades, tmp_path, per_instance=1, seed=seed)
        draws.add(tuple(one["policies"]))
        assert facts["dropped"] == {"over_per_instance": 4}
    assert len(draws) > 2


@pytest.mark.parametrize("fate", "suspect tampered infra_error sandbox_lost model_lost not_recorded".split())
def test_what_was_lost_or_not_judged_is_never_rejected(base, tmp_path, fate):
    rows, grades = runs(1, 1)
    if "lost" in fate or fate == "not_recorded":
        rows[1]["outcome"] = fate
    else:
        grades[1]["status"] = fate
        assert fate not in FAILED_GRADES
    pairs, facts = build(base, rows, grades, tmp_path)
    assert not pairs and facts["dropped"] == {fate: 1, "no_unresolved_one_to_pair_with": 1}


def test_every_other_reason_is_counted(base, tmp_path):
    rows, grades = runs(2, 2)
    rows[1]["messages"][2] = Message.of(rows[0].messages[2])  # says the same
    rows[3]["messages"][1] |= {"content": "Another task."}
    rows.append(said("u", "b9", "alone"))
    grades.append(grade("u", "empty_patch", policy="b9"))
    rows.append(said("u", "g9", "again " * 400))
    grades.append(grade("u", policy="g9"))
    rows.append(said("v", "b9", "never graded"))
    pairs, facts = build(base, rows, grades, tmp_path, per_instance=9)
    assert [pair["policies"][1] for pair in pairs] == ["b0"]
    assert facts["dropped"] == {
        "duplicate": 1,
        "no_resolved_one_to_pair_with": 2,
        "not_graded": 1,
        "too_long": 1,
    }


def test_the_script_writes_pairs_their_lengths_and_counts(base, tmp_path):
    rows, grades = runs(2, 2)
    write_jsonl(tmp_path / "t.jsonl", rows)
    write_jsonl(tmp_path / "g.jsonl", grades)
    (tmp_path / "system.txt").write_text("Be brief.\n")
    recipe = (
        f"base: toy\nselection: {{max_tokens: 400}}\nrows: {{style: ticks, system: {tmp_path}/system.txt}}\n"
    )
    (tmp_path / "r.yaml").write_text(recipe + "pairs: {per_instance: 2}\n")
    command = [sys.executable, "-m", "scripts.build_sft_pairs", "--trajectories", tmp_path / "t.jsonl"]
    command += ["--grades", tmp_path / "g.jsonl", "--base", base.with_suffix(".json"), "--recipe"]
    command += [tmp_path / "r.yaml", "--dataset", tmp_path / "d.jsonl", "--manifest", tmp_path / "m.json"]
    command += ["--lengths", tmp_path / "l.tsv", "--stats", tmp_path / "s.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(read_jsonl(tmp_path / "d.jsonl"))) == 2
    over, told = check_stats(tmp_path / "d.jsonl", tmp_path / "s.json", 400)
    assert (over, told.num_samples, told.over_long) == (0, 2, "drop")
    texts = read_json(tmp_path / "m.json")["inputs"]["texts"]
    assert texts == {f"{tmp_path}/system.txt": sha256_file(tmp_path / "system.txt")}
    assert read_json(tmp_path / "m.json")["in_pairs"] == {"chosen": 2, "rejected": 2}
    assert len((tmp_path / "l.tsv").read_text().splitlines()) == 3


def test_a_recipe_starts_from_a_model_or_from_anothers_checkpoint(tmp_path):
    assert lineage("swesmith-7b-dpo") == ["swesmith-7b-dpo", "swesmith-7b"]
    made = base_manifest(recipes.load_named(SFT, "swesmith-7b-dpo"))
    assert made == "results/sft/swesmith-7b/checkpoint.json"
    assert base_manifest(recipes.load_named(SFT, "demo")) == "results/models/tiny.json"
    experiment = load_experiment("swesmith-7b").model_copy(update={"sft": "swesmith-7b-dpo"})
    assert training_subsets(experiment) == ["swesmith-pr"]
    for name, below in (("a", "b"), ("b", "a")):
        (tmp_path / "sft").mkdir(exist_ok=True)
        (tmp_path / "sft" / f"{name}.yaml").write_text(json.dumps({"base": f"sft:{below}"}))
    with pytest.raises(InputError, match="starts from itself"):
        lineage("a", tmp_path)


@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.parametrize("changes", [{"status": "suspect"}, {"status": "tampered"}, {"doubt": "it forges"}])
def test_a_forgery_is_no_side_of_a_pair_whatever_its_grade_says_beside(base, tmp_path, changes, resolved):
    rows, grades = runs(1, 1)
    for number, other in enumerate(["no_resolved_one_to_pair_with", "no_unresolved_one_to_pair_with"]):
        forged = list(grades)
        forged[number] = grades[number] | {**changes, "resolved": resolved}
        found, facts = build(base, rows, forged, tmp_path)
        assert found == [] and facts["dropped"] == {other: 1, changes.get("status", "suspect"): 1}


def test_a_grade_of_another_patch_is_no_side_of_a_pair(base, tmp_path):
    rows, grades = runs(1, 1)
    for number, other in enumerate(["no_resolved_one_to_pair_with", "no_unresolved_one_to_pair_with"]):
        others = list(grades)
        others[number] = grades[number] | {"patch_sha256": "0" * 64}
        found, facts = build(base, rows, others, tmp_path)
        assert found == [] and facts["dropped"] == {other: 1, "grade_of_another_patch": 1}
