"""Published sets through the real workflow: downloaded, rated by a service, decontaminated, exported."""

import json
import subprocess
import sys

import pytest
import yaml

from swelab.records import read_json, read_jsonl
from tests.contract import hub as hubs
from tests.e2e.clone import copy_repository
from tests.json_service import json_service
from tests.unit.models.chat.test_served_models import answer
from tests.unit.tasks.test_criteria import patch
from tests.unit.tasks.test_datasets_source import row

pytestmark = [pytest.mark.real, pytest.mark.full]
REVISION = "0123456789abcdef0123456789abcdef01234567"


def rating(_, headers, body):
    """Answers "hard" to issues with the word deep, nonsense to those with the word odd, else "easy"."""
    issue = body["messages"][1]["content"]
    _, reply = answer("hard" if "deep" in issue else "well..." if "odd" in issue else "easy")
    return 200 if headers["Authorization"] == "Bearer secret" else 401, reply


@pytest.fixture
def rater():
    with json_service(rating) as server:
        yield server.url


def lines(rows):
    return "".join(json.dumps(each) + "\n" for each in rows).encode()


def smith(number, words, **changes):
    return row(number, kind="pr_", problem_statement=f"An issue of {words}.", **changes)


def test_a_subset_is_fetched_rated_sifted_and_exported(tmp_path, monkeypatch, rater):
    clone = tmp_path / "clone"
    copy_repository(clone)
    held = row(0, instance_id="own__pack-1", repo="owner/pack", base_commit="0123abcd" * 5, test_patch="t")
    others = {"repo": "swesmith/other__pack.89abcdef"}
    rows = [
        smith(1, "a typo"),  # at the benchmark's commit
        smith(2, "a typo", **others),
        smith(3, "deep trouble", **others),
        smith(4, "odd things", **others),
        smith(5, "a rewrite", patch=patch("m.py", 50, 50), **others),
    ]
    train = {f"data/train-0000{n}.jsonl": lines(rows[n::2]) for n in (0, 1)}
    hub = hubs.Hub(
        REVISION, {("dataset", "o/smith"): train, ("dataset", "o/bench"): {"b.jsonl": lines([held])}}
    )

    def write(folder, name, **recipe):
        (clone / f"configs/{folder}/{name}.yaml").write_text(yaml.safe_dump(recipe))

    common = {"source": "dataset", "revision": REVISION, "order": "published"}
    write("subsets", "bench", **common, dataset="o/bench", files=["*.jsonl"])
    write("subsets", "wide", **common, dataset="o/smith", files=["data/*.jsonl"])
    sifted = {"criteria": {"ratings": [1, 5], "max_patch_lines": 20}, "exclude": ["bench"]}
    rated = {"ratings": {"rater": "difficulty", "subset": "wide"}}
    write("subsets", "sifted", **common, dataset="o/smith", files=["data/*.jsonl"], **sifted, **rated)
    policy = clone / "configs/policies/difficulty-rater.yaml"
    policy.write_text(policy.read_text().replace("http://localhost:3000", rater))
    monkeypatch.setenv("SWELAB_RATER_KEY", "secret")

    def run(*targets):
        words = [
            sys.executable,
            "-m",
            "snakemake",
            "--cores",
            "2",
            "--quiet",
            "progress",
            "rules",
            "--",
            *targets,
        ]
        return subprocess.run(words, cwd=clone, capture_output=True, text=True)

    with hubs.running(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = run("results/exports/sifted/manifest.json")
    assert done.returncode == 0, done.stderr[-3000:]
    made = read_json(clone / "results/tasks/sifted.manifest.json")
    assert made["drops"] == {"excluded_repo_commit": 1, "max_patch_lines": 1, "not_rated": 1, "ratings": 1}
    assert (clone / "results/exports/sifted/instance_ids.txt").read_text() == f"{rows[1]['instance_id']}\n"
    rated = read_jsonl(clone / "results/difficulty/difficulty/wide.jsonl")
    ratings = {each["instance_id"]: each for each in rated}
    assert [ratings[each["instance_id"]]["rating"] for each in rows] == [1, 1, 9, None, 1]
    facts = read_json(clone / "results/difficulty/difficulty/wide.manifest.json")
    assert facts["outcomes"] == {"rated": 4, "unreadable": 1} and facts["mean_rating"] == 3.0
