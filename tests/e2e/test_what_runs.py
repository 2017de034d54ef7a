"""Which rules run after a change: dry runs on a finished experiment whose files all exist and are empty."""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from swelab.configs import recipes
from swelab.configs.experiment import training_slice
from swelab.configs.kinds import SFT
from swelab.jobs.provenance import Stage
from tests.conftest import run_program
from tests.e2e.clone import ROOT, command, make_clone, toolbox
from tests.e2e.dry_runs import DryRuns, rules_of

CONFIGS = {
    "experiments/one": "{expert: {policy: teacher, subsets: [train]}, sft: tuned, benchmarks: [held],"
    " policies: [plain, tuned, other, taken, mine, served], compare: [plain, tuned]}",
    "experiments/two": "{expert: {policy: teacher, subsets: [train]}, sft: tuned, benchmarks: [more],"
    " policies: [plain, tuned], compare: [plain, tuned]}",
    "subsets/train": "{source: dataset, path: train.jsonl}",
    "subsets/held": "{source: dataset, path: held.jsonl, limit: 70}",
    "subsets/more": "{source: drill, repos: [drill], side: heldout, heldout_share: 0.15, limit: 5}",
    "policies/teacher": "{kind: hosted, scaffold: demo, model: idle/x, api_base: http://here, shards: 2}",
    "policies/plain": "{kind: checkpoint, scaffold: demo, weights: 'model:own'}",
    "policies/tuned": "{kind: checkpoint, scaffold: demo, weights: 'sft:tuned'}",
    "policies/other": "{kind: checkpoint, scaffold: swe, weights: 'sft:preferred'}",
    "policies/mine": "{kind: checkpoint, scaffold: swe, weights: my-model}",
    "policies/served": "{kind: checkpoint, scaffold: swe, weights: x, endpoint: 'http://here'}",
    "policies/taken": "{kind: recorded, folder: recordings}",
    "models/own": "{source: folder, path: own-model}",
    "sft/tuned": "{base: own, train: {epochs: 2, batch_size: 4, lr: 1.0e-3}}",
    "sft/preferred": "{base: 'sft:tuned', trainer: torchtune, recipe: full_dpo_distributed,"
    " pairs: {per_instance: 1}, rows: {style: xml, system: configs/prompt.txt},"
    " train: {epochs: 1, batch_size: 4, lr: 1.0e-5, dpo: {beta: 0.05}}}",
}
FILES = {
    "train.jsonl": "{}\n",
    "held.jsonl": "{}\n",
    "own-model/config.json": "{}",
    "own-model/model.safetensors": "x",
    "my-model/config.json": "{}",
    "my-model/model.safetensors": "x",
    "configs/prompt.txt": "Be brief.",
    "recordings/a/a.traj": "{}",
    "recordings/b/b.traj": "{}",
}
SCORED = {"grade", "report_grades", "score"}
ROLLED = {"rollout", "collect_predictions"} | SCORED
END = {"score_experiment", "report", "copy_result", "copy_page"}
TASKS = {"fetch_tasks", "pull_images", "validate_tasks", "check_disjoint", "check_training"} | ROLLED | END
TRAINED = {"preflight", "train_sft"} | ROLLED | END
TAUGHT = {"build_sft_dataset", "build_sft_pairs"} | TRAINED
TARGETS = ("results/verified_score.json", "results/report.html")
GROUPS = {"*every run of it*": ROLLED, "*the result*": END}
"""Groups of rules that run together, with the names of docs/recipes.md."""
PAGE = ROOT / "docs/recipes.md"
TABLE = re.compile(r"<!-- tests.e2e.test_what_runs -->\n(\|.*\n)*")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with two finished experiments: every file exists, is empty, and is known to Snakemake."""
    clone = make_clone(tmp_path_factory.mktemp("what") / "swelab")
    for name, text in CONFIGS.items():
        (clone / "configs" / f"{name}.yaml").write_text(text + "\n")
    for name, text in FILES.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    for experiment in ("two", "one"):
        finish(clone, experiment)
    return clone


def finish(clone: Path, experiment: str) -> None:
    def run(*arguments: str) -> str:
        line = command(*arguments, config=[f"experiment={experiment}"])
        done = run_program(line, cwd=clone)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    listed = [line.partition("\t")[0] for line in run("--summary").splitlines()]
    for path in (clone / name for name in listed if name.startswith("results/")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir(exist_ok=True)
    run("--touch", "--forceall", "--cores", "1")


@pytest.fixture(scope="module")
def dry_runs(clone):
    runs = DryRuns(clone)
    yield runs
    runs.close()


@pytest.fixture
def plan(dry_runs):
    """Returns the rules that would run, for a command's settings and targets."""

    def rules(*settings: str, targets=TARGETS) -> dict[str, int]:
        named = {"experiment": "one", "toolbox": toolbox()} | dict(each.split("=") for each in settings)
        code, text = dry_runs.ask(*targets, "--config", *(f"{key}={value}" for key, value in named.items()))
        assert code == 0, text[-3000:]
        return {rule: count for rule, count in rules_of(text).items() if rule != "all"}

    return rules


@contextlib.contextmanager
def edited(path: Path, old: str, new: str):
    """Replaces or adds a text in a file during the block."""
    before = path.read_text() if path.exists() else None
    times = path.stat() if before is not None else None
    assert before is None or old in before, f"{path} has no {old}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new if before is None else before.replace(old, new))
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextlib.contextmanager
def gone(path: Path):
    """Removes a file or folder during the block."""
    aside = path.with_name(f"{path.name}.aside")
    os.replace(path, aside)
    try:
        yield
    finally:
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        os.replace(aside, path)


EDITS = [
    ("a comment in a recipe", "configs/sft/tuned.yaml", "}\n", "} # a remark\n", set()),
    ("another order of keys, a default written out, `1` for `1.0`", "configs/sft/tuned.yaml",
     "base: own, train: {epochs: 2, batch_size: 4, lr: 1.0e-3}",
     "train: {clip_grad_norm: 1, lr: 0.001, batch_size: 4, epochs: 2}, trainer: torchtune, base: own", set()),
    ("an edit of the code", "scripts/train_sft.py", "import", "import", set()),
    ("a learning rate", "configs/sft/tuned.yaml", "1.0e-3", "2.0e-3", TRAINED | {"build_sft_pairs"}),
    ("a learning rate of preference training", "configs/sft/preferred.yaml", "1.0e-5", "2.0e-5", TRAINED),
    ("GPUs of a training job", "configs/sft/tuned.yaml", "}\n", ", job: {minutes: 9}}\n", set()),
    ("which rows are kept", "configs/sft/tuned.yaml", "base: own", "base: own, selection: {per_instance: 2}",
     TAUGHT),
    ("`evidence: witnessed` of training rows", "configs/sft/tuned.yaml", "base: own",
     "base: own, selection: {evidence: witnessed}", TAUGHT),
    ("one more held-out task", "configs/subsets/held.yaml", "limit: 70", "limit: 71", TASKS),
    ("how held-out tasks are validated", "configs/subsets/held.yaml", "}\n", ", validate: {gold_runs: 2}}\n",
     {"validate_tasks"} | ROLLED | END),
    ("`validate: {allow_leaks: true}` of a held-out subset", "configs/subsets/held.yaml", "}\n",
     ", validate: {allow_leaks: true}}\n", {"validate_tasks"} | ROLLED | END),
    ("`guard: reference` of a held-out subset", "configs/subsets/held.yaml", "}\n", ", guard: reference}\n",
     {"validate_tasks"} | ROLLED | END),
    ("`tests: hidden` of a held-out subset", "configs/subsets/held.yaml", "}\n", ", tests: hidden}\n", TASKS),
    ("rows of a local held-out set", "held.jsonl", "{}", "{} ", TASKS),
    ("rows of a local train set", "train.jsonl", "{}", "{} ",
     TASKS - {"validate_tasks"} | TAUGHT | {"validate_training_tasks", "rollout_hosted"}),
    ("a recorded trajectory", "recordings/a/a.traj", "{}", "{} ", ROLLED | END),
    ("one more recorded trajectory", "recordings/c/c.traj", "", "{}", ROLLED | END),
    ("a local model that is scored", "my-model/config.json", "{}", "{} ", ROLLED | END),
    ("a local model that is trained", "own-model/config.json", "{}", "{} ",
     {"take_model"} | TAUGHT),
    ("the step limit of a scaffold", "configs/scaffolds/swe.yaml", "step_limit: ", "step_limit: 1",
     ROLLED | END),
    ("temperature of a policy", "configs/policies/plain.yaml", "}\n", ", sampling: {temperature: 0.5}}\n",
     ROLLED | END),
    ("jobs of a policy on a cluster", "configs/policies/plain.yaml", "}\n", ", job: {minutes: 9}}\n", set()),
    ("address of a hosted model", "configs/policies/teacher.yaml", "http://here", "http://there", set()),
    ("address of a server", "configs/policies/served.yaml", "http://here", "http://there", set()),
    ("budget of a hosted model", "configs/policies/teacher.yaml", "}\n", ", budget_dollars: 5}\n", set()),
    ("more samples of a policy", "configs/policies/plain.yaml", "}\n", ", samples: 3}\n", ROLLED | END),
    ("one more scored policy", "configs/experiments/one.yaml", "[plain, tuned, other",
     "[scripted, plain, tuned, other", ROLLED | END),
    ("one scored policy less", "configs/experiments/one.yaml", ", served", "", END),
    ("which policies are compared", "configs/experiments/one.yaml", "compare: [plain, tuned]",
     "compare: [plain, mine]", END),
    ("trajectories of one shard of a scored policy", "results/rollouts/plain/held/000of001.jsonl", "", "{}\n",
     {"collect_predictions"} | SCORED | END),
    ("the pins of the sandbox image", "envs/sandbox.txt", "pytest", "pytest", set()),
]  # fmt: skip


@pytest.mark.parametrize("what, path, old, new, rules", EDITS, ids=[edit[0] for edit in EDITS])
def test_an_edit_runs_exactly(clone, plan, what, path, old, new, rules):
    with edited(clone / path, old, new):
        assert sorted(plan()) == sorted(rules)


def test_pairs_in_place_of_rows_are_built(clone, plan):
    with edited(
        clone / "configs/sft/tuned.yaml", "train: {", "recipe: full_dpo_distributed, train: {dpo: {}, "
    ):
        assert sorted(plan()) == sorted(TAUGHT - {"build_sft_dataset"})
        assert plan()["build_sft_pairs"] == 2


def test_an_edit_of_the_prompt_in_training_rows_builds_them_again(clone, plan):
    with edited(clone / "configs/prompt.txt", "brief", "very brief"):
        assert sorted(plan()) == sorted({"build_sft_pairs"} | TRAINED)
    with (
        gone(clone / "configs/prompt.txt"),
        pytest.raises(AssertionError, match="error: rows.system: no such"),
    ):
        plan()


SETTINGS = [
    ("the same command again", [], set()),
    ("`workers`, `rollouts_at_once`", ["workers=3", "rollouts_at_once=5"], set()),
    ("`backend=docker`", ["backend=docker"], set()),
    ("`backend=apptainer`", ["backend=apptainer"], set()),
    ("`executor=ray`", ["executor=ray"], set()),
    ("`toolbox`", ["toolbox=/usr"], set()),
    ("`image_prefix`, `images_may_fail`", ["image_prefix=mirror.example/", "images_may_fail=3"], set()),
    ("another finished experiment", ["experiment=two"], {"check_training", "copy_result", "copy_page"}),
]


@pytest.mark.parametrize("what, settings, rules", SETTINGS, ids=[each[0] for each in SETTINGS])
def test_a_setting_runs_exactly(plan, what, settings, rules):
    assert sorted(plan(*settings)) == sorted(rules)


def with_table(page: str) -> str:
    """Returns the page with this module's rows in its table."""
    rows = ["| change | exactly these rules run |", "|---|---|"]
    for what, *_, rules in [*EDITS, *SETTINGS]:
        groups = [name for name, group in GROUPS.items() if group <= rules]
        rest = rules.difference(*(GROUPS[name] for name in groups))
        told = [*(f"`{rule}`" for rule in sorted(rest)), *groups]
        rows.append(f"| {what} | {', '.join(told) or 'none'} |")
    return TABLE.sub("\n".join(["<!-- tests.e2e.test_what_runs -->", *rows, ""]), page)


def test_the_documentation_tells_these_rows():
    text = PAGE.read_text()
    assert TABLE.search(text) and with_table(text) == text, "run python -m tests.e2e.test_what_runs"


@pytest.mark.parametrize("path", ["held.jsonl", "own-model/model.safetensors", "recordings/a/a.traj"])
def test_a_local_input_that_is_written_again_with_the_same_bytes_runs_nothing(clone, plan, path):
    with edited(clone / path, "", ""):
        assert plan() == {}


def test_a_check_that_runs_hides_no_other_change(clone, plan):
    with edited(clone / "configs/sft/tuned.yaml", "1.0e-3", "2.0e-3"):
        assert {"check_training", "train_sft"} <= plan("experiment=two").keys()


def test_one_more_held_out_task_costs_one_job_a_policy(clone, plan):
    with edited(clone / "configs/subsets/held.yaml", "limit: 70", "limit: 71"):
        assert plan()["rollout"] == plan()["grade"] == 6


def test_a_shard_is_graded_when_its_rollout_ended_whatever_other_shards_do(clone, plan):
    rollouts, grades = "results/rollouts/teacher/train", "results/grades/teacher/train"
    first, second = f"{grades}/000of002.jsonl", f"{grades}/001of002.jsonl"
    with gone(clone / rollouts / "001of002.jsonl"), gone(clone / first):
        assert plan(targets=[first]) == {"grade": 1}
    with edited(clone / rollouts / "001of002.jsonl", "", "{}\n"):
        assert plan(targets=[first]) == {} and plan(targets=[second]) == {"grade": 1}


@pytest.mark.parametrize(
    "path, rule",
    [
        ("results/sft/tuned/dataset.jsonl", "build_sft_dataset"),
        ("results/sft/preferred/dataset.jsonl", "build_sft_pairs"),
        ("results/sft/tuned/checkpoint", "train_sft"),
        ("results/rollouts/plain/held/000of001.jsonl", "rollout"),
        ("results/rollouts/teacher/train/001of002.manifest.json", "rollout_hosted"),
        ("results/grades/taken/held/000of001.jsonl", "grade"),
        ("results/tasks/held.lock.json", "validate_tasks"),
        ("results/tasks/held.kept.json", "validate_tasks"),
        ("results/models/own", "take_model"),
    ],
)
def test_a_deleted_file_is_made_again_by_its_rule_alone_when_it_is_named(clone, plan, path, rule):
    with gone(clone / path):
        assert plan(targets=[path]) == {rule: 1}


def test_without_snakemake_s_records_manifests_tell_what_was_made_by_another_recipe(clone, plan, monkeypatch):
    recipe, made = "configs/sft/tuned.yaml", clone / "results/sft/tuned/checkpoint.manifest.json"
    monkeypatch.chdir(clone)
    used = training_slice(recipes.load(SFT, recipe))
    told = json.dumps(Stage("train_sft", {recipe: used}).record(["results/sft/tuned/checkpoint.json"]))
    with edited(made, "", told), gone(clone / ".snakemake"):
        assert plan() == {}
        with edited(clone / recipe, "epochs: 2", "epochs: 2 "):
            assert plan() == {}
        with edited(clone / recipe, "1.0e-3", "2.0e-3"):
            assert {"train_sft", "rollout", "score_experiment"} <= plan().keys()
            assert "build_sft_dataset" not in plan()


def test_a_third_experiment_of_known_recipes_trains_nothing(clone, plan):
    text = CONFIGS["experiments/two"].replace("[more]", "[held, more]")
    with edited(clone / "configs/experiments/three.yaml", "", text):
        assert set(plan("experiment=three")) == {"check_disjoint", "check_training"} | END


@pytest.mark.full
def test_a_paid_output_stays_until_its_next_version_is_whole(clone, plan):
    """A rollout and a training fail. The old outputs stay, and still count as made by the old recipe."""
    kept = {
        "results/rollouts/plain/held/000of001.jsonl": ("policies/plain.yaml", "}\n", ", dtype: float32}\n"),
        "results/sft/tuned/checkpoint/old.safetensors": ("sft/tuned.yaml", "1.0e-3", "2.0e-3"),
    }
    for name, (recipe, old, new) in kept.items():
        (clone / name).write_text("")
        target = name.replace("checkpoint/old.safetensors", "checkpoint.json")
        with edited(clone / "configs" / recipe, old, new):
            line = command(
                "--cores", "1", "--allowed-rules", "train_sft", "rollout", config=["experiment=one"]
            )
            line = [target if each == TARGETS[0] else each for each in line if each != TARGETS[1]]
            done = run_program(line, cwd=clone)
            assert done.returncode and "FAILED" in done.stderr, done.stdout + done.stderr
            assert (clone / name).exists() and (clone / target).exists()
            assert {"rollout", "train_sft"} & plan(targets=[target]).keys()
        assert plan(targets=[target]) == {}


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
