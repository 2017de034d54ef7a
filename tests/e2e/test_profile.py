"""Rules under `--profile slurm`: where each runs, its resources, and which rules reach the internet."""

import json
import re

import pytest
import yaml

from tests.conftest import ROOT, run_program
from tests.e2e.clone import command_on_slurm, make_clone
from tests.toy_checkpoint import make_checkpoint

PUBLISHED = "source: dataset\ndataset: some/set\nrevision: 0123456789012345678901234567890123456789\n"
MODEL = "source: hub\nrepository: some/model\nrevision: 0123456789012345678901234567890123456789\n"
JUDGED = PUBLISHED.replace("some/set", "SWE-bench/SWE-bench_Lite") + "scorer: sb-cli\n"
HOSTED = "kind: hosted\nscaffold: demo\nmodel: some/model\napi_key_env: SOME_KEY\n"
ROWS = "kind: recorded\ndataset: some/set\nrevision: 0123456789012345678901234567890123456789\n"
LARGE = "kind: checkpoint\nscaffold: demo\nweights: model:small\njob: {gpus: 4, cpus: 16, mem_mb: 9000}\n"
PREFERENCES = "base: sft:small\nrecipe: full_dpo_distributed\ntrain: {dpo: {beta: 0.1}}\n"
REWARDED = "{start: 'sft:small', subset: small-train, scaffold: demo, train: {steps: 2}}\n"
CHOSEN = "source: attempted\nsubset: small-train\npolicy: scripted\nat_least: 0.5\n"
TARGETS = (
    "results/tasks/chosen.kept.json",
    *("results/verified_score.json", "results/report.html", "results/cheats/small-forge.json"),
    *("results/regrades/small-base/small-heldout.json", "results/images/sandbox/image.json"),
    *("results/models/published.json", "results/models/mine.json", "results/scores/small-base/judged.json"),
    *("results/exports/small-heldout/manifest.json", "results/difficulty/paid/published.jsonl"),
    "results/difficulty/difficulty/small-heldout.jsonl",
    "results/sft/preferences/checkpoint.json",
    *("results/modal/small/checkpoint.json", "results/rl/small/checkpoint.json"),
    *("results/rollouts/hosted/published/preds.json", "results/rollouts/large/small-heldout/preds.json"),
    *("results/rollouts/rows/published/preds.json", "results/models/smollm2-135m.json"),
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = make_clone(tmp_path_factory.mktemp("profile") / "swelab")
    (clone / "configs/subsets/published.yaml").write_text(PUBLISHED)
    (clone / "configs/subsets/judged.yaml").write_text(JUDGED)
    (clone / "configs/policies/hosted.yaml").write_text(HOSTED)
    (clone / "configs/policies/large.yaml").write_text(LARGE)
    (clone / "configs/policies/rows.yaml").write_text(ROWS)
    (clone / "configs/models/published.yaml").write_text(MODEL)
    mine = make_checkpoint(tmp_path_factory.mktemp("models") / "mine")
    (clone / "configs/models/mine.yaml").write_text(f"source: folder\npath: {mine}\n")
    rater = (clone / "configs/raters/difficulty.yaml").read_text()
    (clone / "configs/raters/paid.yaml").write_text(rater.replace(": difficulty-rater", ": hosted"))
    (clone / "configs/sft/preferences.yaml").write_text(PREFERENCES)
    (clone / "configs/rl/small.yaml").write_text(REWARDED)
    (clone / "configs/subsets/chosen.yaml").write_text(CHOSEN)
    return clone


def jobs(clone, **site):
    """Returns a map: rule -> (whether it runs on this machine, resources), from a dry run."""
    settings = yaml.safe_load((ROOT / "configs/site.yaml").read_text())
    settings["site"] |= {"partitions": {"cpu": "short", "gpu": "a100"}, "gpu_type": "h100", **site}
    (clone / "configs/site.yaml").write_text(yaml.safe_dump(settings))
    run = command_on_slurm("-n", "--", *TARGETS, config=["experiment=small"], program="tests.e2e.plan")
    done = run_program(run, cwd=clone)
    assert done.returncode == 0, done.stderr
    return [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("job [")]


def declared():
    """Returns all rules of rules/, and those that use the internet."""
    text = "".join(path.read_text() for path in sorted((ROOT / "rules").glob("*.smk")))
    blocks = re.split(r"^(?:use rule \w+ as|rule) (\w+)", text, flags=re.MULTILINE)
    return {name: "localrule: FETCH_HERE" in block for name, block in zip(blocks[1::2], blocks[2::2])}


def test_only_a_site_whose_nodes_have_a_network_lets_rules_fetch_there(clone):
    rules = declared()
    fetching = {name for name, fetches in rules.items() if fetches}
    assert {"build_repo", "build_sandbox_image", "fetch_tasks", "pull_images", "rollout_hosted"} <= fetching
    assert "unpack_trajectories" in fetching
    for network in (False, True):
        found = jobs(clone, network=network)
        assert {name for name, _, _ in found} == set(rules), "each rule is looked at"
        assert {name for name, local, _ in found if name in fetching and not local} == (
            fetching if network else set()
        )


def test_every_job_says_what_it_needs(clone):
    found = jobs(clone)
    sent = [(name, asked) for name, local, asked in found if not local]
    assert len(sent) > 20
    for name, asked in sent:
        missing = {"slurm_partition", "cpus_per_task", "mem_mb", "runtime"} - asked.keys()
        assert not missing, f"{name}: {missing}"
        role = "a100" if asked.get("gpu") else "short"
        assert asked["slurm_partition"] == role, name
    (large,) = [asked for name, asked in sent if asked.get("gpu")]
    assert (large["gpu"], large["gpu_model"], large["cpus_per_task"]) == (4, "h100", 16)


def test_gpus_that_the_site_has_not_are_a_line_not_a_job(clone):
    experiment = yaml.safe_load((clone / "configs/experiments/small.yaml").read_text())
    experiment["policies"] += ["large"]
    (clone / "configs/experiments/wide.yaml").write_text(yaml.safe_dump(experiment))
    settings = yaml.safe_load((ROOT / "configs/site.yaml").read_text())
    settings["site"]["partitions"]["gpu"] = ""
    (clone / "configs/site.yaml").write_text(yaml.safe_dump(settings))
    run = command_on_slurm("-n", config=["experiment=wide"])
    done = run_program(run, cwd=clone)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "error: configs/site.yaml: site.partitions.gpu is empty" in done.stdout + done.stderr
