"""The kinds of artifacts, and the inputs that several kinds share.

Tasks: repositories, subsets, images, validation, proof of disjointness, exports, ratings. Attempts: recorded
and live trajectories, predictions, grades, reports. Models: base models, training data, checkpoints. Scores:
a policy's score on a benchmark, an experiment's verified score, and its page.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swelab.configs import experiment, kinds, recipes
from swelab.configs.experiment import is_published, local_files
from swelab.configs.recipes import recipe_file
from swelab.configs.trained_on import files_of_model, sft_recipes, start_of, training_runs, training_subsets
from swelab.jobs.shards import sample_of, sample_suffix
from swelab.lineage.graph import (
    Kind,
    Need,
    Params,
    Wildcards,
    base_manifest,
    find,
    policy_files,
    weights_paths,
)
from swelab.records import InputError, sha256_file


def _recordings(at: Wildcards) -> list[str]:
    policy = at.recipe(kinds.POLICY)
    return [at.path("recordings.manifest")] * (policy.kind == "recorded" and is_published(policy))


def _scaffold(at: Wildcards) -> list[str]:
    return at.each(recipe_file("scaffold"), [setting(at, kinds.POLICY, "scaffold")])


def _service(at: Wildcards) -> list[str]:
    """Returns the result file of the scoring service for the shard's sample. Returns [] if the service does
    not judge the subset."""
    if setting(at, kinds.SUBSET, "scorer") != "sb-cli":
        return []
    return [at.path("service", sample=sample_suffix(sample_of(at.names["shard"])))]


def _training(at: Wildcards) -> Mapping[str, object]:
    return experiment.training_slice(at.recipe(kinds.SFT))


def _subsets_taught(at: Wildcards) -> list[str]:
    return at.each("tasks", [subset for _, subset in training_runs(at.names["sft"], at.configs)])


def _selection(at: Wildcards) -> Mapping[str, object]:
    """Returns the settings that affect a dataset, with the hashes of the user's files that they name."""
    sft = at.recipe(kinds.SFT)
    texts = {path: sha256_file(path) for path in texts_of(sft)}
    return experiment.selection_slice(sft) | ({"texts": texts} if texts else {})


def _recipe_with_texts(at: Wildcards) -> list[str]:
    """Returns the path of an SFT recipe. Raises InputError if a file that becomes part of its rows does not
    exist."""
    texts_of(at.recipe(kinds.SFT))
    return [at.path(SFT)]


def _start(at: Wildcards) -> list[str]:
    """Returns the weights from which an RL recipe starts: a manifest, or a folder without a manifest. Raises
    InputError."""
    start = start_of(at.names["rl"], find, at.configs)
    if {"{", "}"} & set(start):
        where = f"start {start} of {recipes.path_of('rl', at.names['rl'], at.configs)}"
        raise InputError("braces in a path, which Snakemake reads as wildcards", where, "a path without them")
    return [weights_paths(start)[1] or str(Path(start).expanduser())]


def _start_files(at: Wildcards) -> list[str]:
    """Returns the files in the user's folder of start weights, so that a changed file is noticed."""
    return [path for start in _start(at) if not find(start) for path in local_files(start)]


def _judges(at: Wildcards) -> list[str]:
    """Returns the paths of the recipes and weights of the policies that judge single steps."""
    return [path for name in at.recipe(kinds.RL).judges for path in _policy(at, name)]


def _policy(at: Wildcards, name: str) -> list[str]:
    return [*at.each(POLICY, [name]), *policy_files(at.recipe(kinds.POLICY, name))]


def _witnesses(at: Wildcards) -> list[str]:
    recipe = at.recipe(kinds.RL)
    return at.each("lock.witness", [*recipe.held_out, recipe.subset])


TRAINING: Params = {"training": _training}


def _expert_runs(at: Wildcards) -> list[str]:
    expert = at.recipe(kinds.EXPERIMENT).expert
    named = [(file, each) for file in ("report", "predictions") for each in expert.subsets]
    return [path for file, each in named for path in at.samples(file, policy=expert.policy, subset=each)]


def _scores(at: Wildcards) -> list[str]:
    """Returns the paths of the scores of all policies on all benchmarks."""
    plan = at.recipe(kinds.EXPERIMENT)
    return [
        at.path("score", policy=policy, subset=benchmark)
        for benchmark in plan.benchmarks
        for policy in plan.policies
    ]


def _checkpoints(at: Wildcards) -> list[str]:
    return at.each("checkpoint.manifest", sft_recipes(at.recipe(kinds.EXPERIMENT), at.configs))


SUBSET, POLICY, SFT, RL = map(recipe_file, ("subset", "policy", "sft", "rl"))


def files_at(start: str, manifest: str = ".manifest.json", **ends: str) -> dict[str, str]:
    """Maps each role to a file pattern that begins with `start`. The last pattern is the job's manifest."""
    return {role: start + end for role, end in {**ends, "manifest": manifest}.items()}


def setting(at: Wildcards, kind: kinds.RecipeKind[Any], name: str) -> Any:
    """Returns the value of a recipe's key, or None if the recipe's model has no such key."""
    return getattr(at.recipe(kind), name, None)


def files_of(kind: kinds.RecipeKind[Any]) -> Need:
    """Returns an input: the user's files at the `path` of a recipe of this kind."""
    return lambda at: experiment.local_files(setting(at, kind, "path"))


def repos(at: Wildcards) -> list[str]:
    """Returns the paths of the repository archives that a subset needs."""
    return at.each("repo", setting(at, kinds.SUBSET, "repos") or [])


def images_of(at: Wildcards, subsets: Iterable[str]) -> list[str]:
    """Returns the paths of the image records of these subsets. A subset that is part of a larger subset has
    the image record of the larger subset."""
    return at.each("images", [whole for each in subsets for whole in experiment.in_images(each, at.configs)])


def images(at: Wildcards) -> list[str]:
    """Returns the path of the subset's image record."""
    return images_of(at, [at.names["subset"]])


def texts_of(sft: kinds.Sft) -> list[str]:
    """Returns the user's files whose texts become part of an SFT recipe's rows: the system prompt, and the
    tool definitions. Raises InputError if a file does not exist."""
    rows = sft.rows
    texts = {} if rows.style == "text" else {"rows.system": rows.system, "rows.tools": rows.tools}
    for key, path in texts.items():
        if path and not os.path.isfile(path):
            raise InputError(f"no such file: {path}", key, "a file, as an SFT recipe names it")
    return [path for path in texts.values() if path]


def base(at: Wildcards) -> list[str]:
    """Returns the path of the manifest of the weights from which an SFT recipe starts."""
    return [base_manifest(at.recipe(kinds.SFT))]


GRADED: Mapping[str, Need] = {"tasks": "lock.kept", "witness": "lock.witness", "images": images}
"""The inputs of grading a subset, without the patches."""


def _excluded_files(at: Wildcards) -> list[str]:
    return at.each("tasks", setting(at, kinds.SUBSET, "exclude") or [])


def _ratings(at: Wildcards) -> list[str]:
    """Returns the path of the ratings of a subset's rows. Returns [] if it names none. Raises InputError if
    the user's file does not exist."""
    rated = setting(at, kinds.SUBSET, "ratings")
    if not rated or not rated.path:
        return [at.path("difficulty", **rated.plain())] if rated else []
    path = os.path.expanduser(rated.path)
    if not os.path.isfile(path) and not find(path):
        where = f"ratings.path of {at.path(SUBSET)}"
        raise InputError(f"no such file: {rated.path}", where, "JSON Lines with instance_id and difficulty")
    return [path]


def _whole_subset(at: Wildcards) -> list[str | None]:
    """Returns a list with the larger subset that contains this subset, or [None]."""
    return [setting(at, kinds.SUBSET, "subset")]


def _grades_of_attempts(at: Wildcards) -> list[str]:
    runs = experiment.attempts(at.names["subset"], at.configs)
    return [path for run in runs for path in at.shards("grades", **run)]


def _validation_of_whole(at: Wildcards) -> list[str]:
    return [*at.each("lock", _whole_subset(at)), *at.each("lock.witness", _whole_subset(at))]


def _trained_tasks(at: Wildcards) -> list[str]:
    return at.each("tasks", training_subsets(at.recipe(kinds.EXPERIMENT), at.configs))


def _rater_policy(at: Wildcards) -> kinds.Policy:
    return at.recipe(kinds.POLICY, at.recipe(kinds.RATER).policy)


ARTIFACTS = {
    "repo": Kind(
        rules="build_repo",
        files=files_at("results/repos/{repo}", archive=".tar", manifest=".json"),
        params={"settings": lambda at: at.recipe(kinds.REPO).plain()},
        needs={"recipe": recipe_file("repo"), "rows": files_of(kinds.REPO)},
    ),
    "tasks": Kind(
        rules="make_tasks make_training_tasks fetch_tasks choose_tasks",
        files=files_at("results/tasks/{subset}", tasks=".json"),
        params={"settings": lambda at: experiment.tasks_slice(at.recipe(kinds.SUBSET))},
        needs={
            "recipe": SUBSET,
            "repos": repos,
            "rows": files_of(kinds.SUBSET),
            "exclude": _excluded_files,
            "ratings": _ratings,
            "attempted": lambda at: at.each("lock.kept", _whole_subset(at)),
            "grades": _grades_of_attempts,
        },
    ),
    "images": Kind(
        rules="pull_images",
        files=files_at("results/images/{subset}", images=".json"),
        needs={"tasks": "tasks"},
    ),
    "sandbox_image": Kind(
        rules="build_sandbox_image",
        files={
            "record": "results/images/sandbox/image.json",
            "archive": "results/images/sandbox/root.tar",
            "root": "results/images/sandbox/root",
        },
        needs={"pins": "envs/sandbox.txt"},
    ),
    "lock": Kind(
        rules="validate_tasks validate_training_tasks lock_chosen_tasks",
        files=files_at(
            "results/tasks/{subset}",
            lock=".lock.json",
            kept=".kept.json",
            witness=".witness.zip",
            manifest=".lock.manifest.json",
        ),
        params={"settings": lambda at: experiment.validation_slice(at.recipe(kinds.SUBSET))},
        needs={
            "tasks": "tasks",
            "recipe": SUBSET,
            "repos": repos,
            "images": images,
            "validated": _validation_of_whole,
        },
    ),
    "disjoint": Kind(
        rules="check_disjoint",
        files=files_at("results/disjoint/{experiment}", verdict=".json"),
        params={"same_commit": lambda at: at.recipe(kinds.EXPERIMENT).same_commit},
        needs={
            "train": _trained_tasks,
            "heldout": lambda at: at.each("tasks", at.recipe(kinds.EXPERIMENT).benchmarks),
        },
    ),
    "exports": Kind(
        rules="export_tasks",
        files=files_at(
            "results/exports/{subset}/",
            ids="instance_ids.txt",
            images="docker_images.txt",
            evaluation="evaluation.jsonl",
            gold="gold.jsonl",
            slime="slime.jsonl",
            miles="miles.jsonl",
            manifest="manifest.json",
        ),
        needs={"tasks": "tasks", "recipe": SUBSET},
    ),
    "difficulty": Kind(
        rules="rate_difficulty rate_difficulty_hosted",
        files=files_at("results/difficulty/{rater}/{subset}", ratings=".jsonl"),
        params={
            "rater": lambda at: at.recipe(kinds.RATER).plain(),
            "policy": lambda at: _rater_policy(at).plain(),
        },
        paid=True,
        needs={
            "weights": lambda at: policy_files(_rater_policy(at)),
            "rater": recipe_file("rater"),
            "policy": lambda at: at.each(POLICY, [at.recipe(kinds.RATER).policy]),
            "tasks": "tasks",
        },
    ),
    "recordings": Kind(
        rules="unpack_trajectories",
        files=files_at("results/recordings/{policy}", folder="", manifest=".json", stage=".manifest.json"),
        params={"policy": lambda at: at.recipe(kinds.POLICY).plain()},
        needs={"recipe": POLICY, "rows": files_of(kinds.POLICY)},
    ),
    "trajectories": Kind(
        rules="rollout rollout_hosted",
        files=files_at("results/rollouts/{policy}/{subset}/{shard}", trajectories=".jsonl"),
        params={
            "policy": lambda at: experiment.rollout_slice(at.recipe(kinds.POLICY)),
            "scaffold": lambda at: experiment.scaffold_of(at.recipe(kinds.POLICY), at.configs),
        },
        paid=True,
        needs={
            "tasks": "lock.kept",
            "images": images,
            "policy": POLICY,
            "recordings": _recordings,
            "scaffold": _scaffold,
            "sources": lambda at: policy_files(at.recipe(kinds.POLICY)),
        },
    ),
    "predictions": Kind(
        rules="collect_predictions",
        files=files_at(
            "results/rollouts/{policy}/{subset}/",
            predictions="preds{sample}.json",
            usage="usage{sample}.json",
            manifest="preds{sample}.manifest.json",
        ),
        needs={"tasks": "lock.kept", "trajectories": lambda at: at.shards("trajectories")},
    ),
    "service": Kind(
        rules="submit_predictions",
        files=files_at("results/grades/{policy}/{subset}/service{sample}", run=".json"),
        params={"service": lambda at: at.recipe(kinds.SUBSET).model_dump(include={"scorer", "service"})},
        needs={"tasks": "lock.kept", "predictions": "predictions", "recipe": SUBSET},
    ),
    "grades": Kind(
        rules="grade",
        files=files_at("results/grades/{policy}/{subset}/{shard}", grades=".jsonl"),
        needs={**GRADED, "trajectories": "trajectories", "policy": POLICY, "service": _service},
    ),
    "report": Kind(
        rules="report_grades",
        files=files_at("results/grades/{policy}/{subset}/report{sample}", report=".json"),
        needs={"tasks": "lock.kept", "lock": "lock", "grades": lambda at: at.shards("grades")},
    ),
    "regrades": Kind(
        rules="regrade",
        files={"regrades": "results/regrades/{policy}/{subset}{sample}.json"},
        needs={**GRADED, "predictions": "predictions", "grades": lambda at: at.shards("grades")},
    ),
    "cheats": Kind(
        rules="check_cheats", files={"verdicts": "results/cheats/{subset}.json"}, needs={"tasks": "lock.kept"}
    ),
    "model": Kind(
        rules="make_base_model fetch_model take_model convert_model",
        files=files_at(
            "results/models/{model}", folder="", manifest=".json", stage=".manifest.json", loss=".loss.jsonl"
        ),
        named="model",
        params={"settings": lambda at: at.recipe(kinds.MODEL).plain()},
        needs={
            "recipe": recipe_file("model"),
            "files": lambda at: files_of_model(at.recipe(kinds.MODEL)),
            "repo": lambda at: at.each("repo", [setting(at, kinds.MODEL, "repo")]),
        },
    ),
    "dataset": Kind(
        rules="build_sft_dataset build_sft_pairs",
        files=files_at(
            "results/sft/{sft}/dataset", dataset=".jsonl", lengths=".lengths.tsv", stats=".stats.json"
        ),
        params={"selection": _selection},
        needs={
            "trajectories": lambda at: at.training_rollouts("trajectories"),
            "grades": lambda at: at.training_rollouts("grades"),
            "base": base,
            "recipe": _recipe_with_texts,
        },
    ),
    "training_check": Kind(
        rules="check_training",
        files=files_at("results/sft/{sft}/disjoint", verdict=".json"),
        needs={"train": _subsets_taught},
    ),
    "preflight": Kind(
        rules="preflight",
        files={"report": "results/sft/{sft}/preflight.json"},
        params=TRAINING,
        needs={"dataset": "dataset", "stats": "dataset.stats", "base": base, "recipe": SFT},
    ),
    "checkpoint": Kind(
        rules="train_sft",
        files=files_at(
            "results/sft/{sft}/",
            checkpoint="checkpoint",
            manifest="checkpoint.json",
            stage="checkpoint.manifest.json",
            loss="loss.jsonl",
            metrics="metrics.tsv",
            plot="training.svg",
            tensorboard="tensorboard",
        ),
        params=TRAINING,
        undated=("disjoint",),
        named="sft",
        paid=True,
        needs={
            "dataset": "dataset",
            "disjoint": "training_check",
            "preflight": "preflight",
            "base": base,
            "recipe": SFT,
        },
    ),
    "modal": Kind(
        rules="train_on_modal",
        files=files_at(
            "results/modal/{sft}/", checkpoint="checkpoint", manifest="checkpoint.json", loss="loss.jsonl"
        ),
        params=TRAINING,
        undated=("disjoint",),
        paid=True,
        needs={"dataset": "dataset", "disjoint": "training_check", "base": base, "recipe": SFT},
    ),
    "rewarded_check": Kind(
        rules="check_rl_tasks",
        files=files_at("results/rl/{rl}/disjoint", verdict=".json"),
        needs={
            "train": lambda at: at.each("tasks", [at.recipe(kinds.RL).subset]),
            "held_out": lambda at: at.each("tasks", at.recipe(kinds.RL).held_out),
        },
    ),
    "rewarded": Kind(
        rules="train_rl",
        files=files_at(
            "results/rl/{rl}/",
            checkpoint="checkpoint",
            manifest="checkpoint.json",
            stage="checkpoint.manifest.json",
            metrics="metrics.jsonl",
            validation="validation.jsonl",
            rollouts="rollouts",
            tensorboard="tensorboard",
        ),
        params={"training": lambda at: experiment.rl_slice(at.recipe(kinds.RL), at.configs)},
        undated=("disjoint",),
        named="rl",
        paid=True,
        needs={
            "start": _start,
            "start_files": _start_files,
            "recipe": RL,
            "scaffold": lambda at: at.each(recipe_file("scaffold"), [at.recipe(kinds.RL).scaffold]),
            "disjoint": "rewarded_check",
            "tasks": lambda at: at.each("lock.kept", [at.recipe(kinds.RL).subset]),
            "images": lambda at: images_of(at, [at.recipe(kinds.RL).subset]),
            "witness": _witnesses,
            "judge": _judges,
            "held_out_tasks": lambda at: at.each("lock.kept", at.recipe(kinds.RL).held_out),
            "held_out_images": lambda at: images_of(at, at.recipe(kinds.RL).held_out),
        },
    ),
    "score": Kind(
        rules="score",
        files=files_at("results/scores/{policy}/{subset}", score=".json", table=".csv"),
        needs={
            "tasks": "lock.kept",
            "reports": lambda at: at.samples("report"),
            "usage": lambda at: at.samples("predictions.usage"),
        },
    ),
    "verified_score": Kind(
        rules="score_experiment",
        files={"score": "results/experiments/{experiment}/verified_score.json"},
        needs={
            "expert": _expert_runs,
            "disjoint": "disjoint",
            "scores": _scores,
            "checkpoints": _checkpoints,
        },
    ),
    "page": Kind(
        rules="report",
        files={"page": "results/experiments/{experiment}/report.html"},
        needs={"score": "verified_score"},
    ),
    "published": Kind(rules="copy_result", files={"published": "results/verified_score.json"}),
    "published_page": Kind(rules="copy_page", files={"published": "results/report.html"}),
}
"""All kinds, in the order in which data flows."""
