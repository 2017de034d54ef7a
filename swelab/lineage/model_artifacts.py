"""Kinds of artifacts about models: base models, training data, fine-tuned checkpoints, policies trained by
RL."""

from collections.abc import Mapping
from pathlib import Path

from swelab.configs import experiment, kinds, recipes
from swelab.configs.experiment import local_files
from swelab.configs.recipes import recipe_file
from swelab.configs.trained_on import files_of_model, start_of, training_runs
from swelab.lineage.common_needs import POLICY, RL, SFT, base, files_at, images_of, setting, texts_of
from swelab.lineage.graph import Kind, Params, Wildcards, find, policy_files, weights_paths
from swelab.records import InputError, sha256_file


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
MODEL_ARTIFACTS = {
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
}
