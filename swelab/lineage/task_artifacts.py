"""Kinds of artifacts about tasks: repositories, subsets, images, validation, proof of disjointness, exports,
ratings."""

import os

from swelab.configs import experiment, kinds
from swelab.configs.recipes import recipe_file
from swelab.configs.trained_on import training_subsets
from swelab.lineage.common_needs import POLICY, SUBSET, files_at, files_of, images, repos, setting
from swelab.lineage.graph import Kind, Wildcards, find, policy_files
from swelab.records import InputError


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


TASK_ARTIFACTS = {
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
}
