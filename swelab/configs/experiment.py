"""Loads an experiment with every recipe that it names, and checks that the recipes fit together."""

import os
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import EXPERIMENT, POLICY, RATER, REPO, RL, SCAFFOLD, SUBSET
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.policy import Policy, RecordedPolicy, weights_of
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.scaffold import Scaffold
from swelab.configs.kinds.sft import Sft
from swelab.configs.kinds.subset import AttemptedSubset, Subset, repos_of
from swelab.configs.recipe_model import Recipe
from swelab.configs.trained_on import rl_recipes, sft_recipes, subsets_behind, training_runs, training_subsets
from swelab.records import InputError, Record

NO_RESULT = tuple(
    """
api_base api_key_env budget_dollars cache_last_messages endpoint job max_lost price rates samples shards
""".split()
)
"""Settings of a policy that do not affect results, such as payment and addresses."""
PAIRED = "full_dpo_distributed"
"""The `recipe` of an SFT recipe whose rows are pairs."""
SELECTION = ("selection", "rows", "pairs")
"""Sections of an SFT recipe that affect its dataset."""


def rollout_slice(policy: Policy) -> Record:
    """Returns the settings of a policy that affect its rollouts."""
    return without(policy, *NO_RESULT)


def tasks_slice(subset: Subset) -> Record:
    """Returns the settings of a subset that affect its tasks. Settings for validation and grading are
    excluded."""
    return without(subset, "validate", "guard", "scorer", "service")


def validation_slice(subset: Subset) -> Record:
    """Returns the settings of a subset that affect its validation. Returns {} for a part of a larger subset,
    because its tasks are validated with the larger subset."""
    if subset.source == "attempted":
        return {}
    return subset.validation.plain() | ({"guard": subset.guard} if subset.guard != "whole" else {})


def selection_slice(sft: Sft) -> Record:
    """Returns the settings of an SFT recipe that affect its dataset, with `recipe` if the rows are pairs. The
    learning rate, for example, is not included."""
    used = {key: getattr(sft, key).plain() for key in SELECTION}
    return used | ({"recipe": PAIRED} if sft.recipe == PAIRED else {})


def training_slice(sft: Sft) -> Record:
    """Returns the settings of an SFT recipe that affect the training. Settings that only affect the dataset
    are excluded."""
    return without(sft, *SELECTION, "sources", "job", "wandb")


def without(recipe: Recipe, *names: str) -> Record:
    """Returns the recipe as a dictionary without the keys `names`."""
    return {key: value for key, value in recipe.plain().items() if key not in names}


def key_variables(policy: Policy) -> list[str]:
    """Returns the names of the environment variables that contain a policy's API keys."""
    named = (policy.api_key_env if policy.kind in ("hosted", "checkpoint") else None) or []
    return [named] if isinstance(named, str) else list(named)


def check_keys(name: str, policy: Policy) -> None:
    """Raises InputError if an environment variable for one of the policy's API keys is not set."""
    for variable in key_variables(policy):
        if not os.environ.get(variable, "").strip(" :"):
            what = f"api_key_env: the environment variable {variable} is not set"
            raise InputError(what, f"policy {name}", f"the key of {service_of(policy)} in it")


def service_of(policy: Policy) -> str:
    """Returns the service that serves a policy's model, or '' for a policy without a model."""
    if policy.kind == "hosted":
        return f"{policy.model} at {policy.api_base}" if policy.api_base else policy.model
    if policy.kind == "checkpoint":
        return policy.endpoint or f"the server of {policy.weights}"
    return ""


def load_experiment(name: str, configs: Path = recipes.CONFIGS) -> Experiment:
    """Loads the experiment `name`, and checks it and all recipes that it names.

    Raises InputError if a recipe does not exist, or if a compared policy is not scored. Raises InputError if
    a subset is both trained on and scored, or is made from itself. Raises InputError if an evaluation set is
    used in training.
    """
    path = recipes.path_of("experiment", name, configs)
    experiment = recipes.load(EXPERIMENT, path)
    for policy in experiment.acting:
        check_policy(policy, configs)
    for sft in sft_recipes(experiment, configs):
        for policy, _ in training_runs(sft, configs):
            check_policy(policy, configs)
    train, benchmarks = training_subsets(experiment, configs), experiment.benchmarks
    for subset in [*train, *benchmarks]:
        check_subset(subset, configs)
    for policy in experiment.compare:
        if policy not in experiment.policies:
            hint = recipes.nearest(policy, experiment.policies)
            raise InputError(f"compare: {policy!r} is not among policies{hint}", path)
    validated = [
        each.held_out
        for name in rl_recipes(experiment, configs)
        for each in [recipes.load_named(RL, name, configs)]
    ]
    for subset in [*train, *(name for names in validated for name in names)]:
        _check_no_evaluation(subset, configs, path)
    for subset in train:
        if both := sorted(set(parts_of(subset, configs)) & set(benchmarks)):
            part = f" in part, as {subset!r}," * (both[0] != subset)
            raise InputError(f"subset {both[0]!r} is trained on{part} and scored", path, "disjoint subsets")
    return experiment


def _check_no_evaluation(subset: str, configs: Path, where: Path) -> None:
    """Raises InputError if a subset for training or validation is an evaluation set."""
    whole = recipes.load_named(SUBSET, parts_of(subset, configs)[-1], configs)
    if whole.source == "kodcode" and whole.evaluation_set:
        what = f"subset {subset!r} is the evaluation set {whole.evaluation_set}, trained or validated on"
        raise InputError(what, where, "other tasks: this one may only be a benchmark")


def subset_parents(subset: Subset) -> list[str]:
    """Returns the subsets that a recipe names: the attempted or rated subset, and the excluded subsets."""
    if subset.source == "attempted":
        return [subset.subset]
    if subset.source != "dataset":
        return []
    rated = subset.ratings.subset if subset.ratings else None
    return [*subset.exclude, *([rated] if rated is not None else [])]


def check_subset(name: str, configs: Path = recipes.CONFIGS, below: tuple[str, ...] = ()) -> None:
    """Checks a subset and all recipes from which it is made. Raises InputError if a recipe does not exist or
    subsets form a circle."""
    subset = recipes.load_named(SUBSET, name, configs)
    if name in below:
        circle = " -> ".join([*below[below.index(name) :], name])
        raise InputError(f"made from itself: {circle}", recipes.path_of("subset", name, configs))
    for repo in repos_of(subset):
        recipes.load_named(REPO, repo, configs)
    if subset.source == "attempted":
        check_attempts(name, subset, configs, (*below, name))
    if subset.source == "dataset" and subset.ratings and subset.ratings.rater:
        check_policy(recipes.load_named(RATER, subset.ratings.rater, configs).policy, configs)
    for parent in subset_parents(subset):
        check_subset(parent, configs, (*below, name))


def parts_of(name: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns the subset, the subset that contains it, and so on, up to the largest subset. A part of a
    subset has the tasks that a policy's attempts selected. Raises InputError if the subsets form a circle."""
    chain = [name]
    while (subset := recipes.load_named(SUBSET, chain[-1], configs)).source == "attempted":
        if subset.subset in chain:
            circle = " -> ".join([*chain, subset.subset])
            raise InputError(f"made from itself: {circle}", recipes.path_of("subset", name, configs))
        chain.append(subset.subset)
    return chain


def in_images(name: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns a list with the largest subset that contains this subset, or [] if no task runs in an image.
    Raises InputError if the subsets form a circle."""
    whole = parts_of(name, configs)[-1]
    return [whole] if recipes.load_named(SUBSET, whole, configs).source in ("dataset", "harbor") else []


def attempts(name: str, configs: Path = recipes.CONFIGS) -> list[dict[str, str]]:
    """Returns [{"policy", "subset"}] of the rollouts whose grades select a subset's tasks. Returns [] if the
    tasks are not selected in this way. Raises InputError as `check_subset` does."""
    subset = recipes.load_named(SUBSET, name, configs)
    if subset.source != "attempted":
        return []
    check_subset(name, configs)
    return [{"policy": subset.policy, "subset": subset.subset}]


def check_attempts(name: str, subset: AttemptedSubset, configs: Path, below: tuple[str, ...]) -> None:
    """Checks a subset whose tasks are selected by a policy's attempts.

    Raises InputError if the policy does not exist or was trained on these tasks, or if a service judges the
    tasks. Raises InputError if no pass rate of the policy's samples is within the bounds.
    """
    check_policy(subset.policy, configs)
    policy = recipes.load_named(POLICY, subset.policy, configs)
    path = recipes.path_of("subset", name, configs)
    if not subset.allows(policy.samples or 1):
        count, bounds = policy.samples or 1, f"from {subset.at_least} to {subset.at_most}"
        what = f"no pass rate is {bounds}: policy {subset.policy} attempts a task {count} times"
        raise InputError(what, path, "more `samples` of the policy, or other bounds")
    whole = recipes.load_named(SUBSET, parts_of(name, configs)[-1], configs)
    if getattr(whole, "scorer", "local") != "local":
        raise InputError(f"tasks of {subset.subset} are judged by a service", path, "tasks with tests")
    for weights in weights_of(policy):
        for each in subsets_behind(weights, configs):
            check_subset(each, configs, below)


def check_policy(name: str, configs: Path = recipes.CONFIGS) -> None:
    """Checks a policy, its scaffold and the recipes that make its weights. Raises InputError."""
    policy = recipes.load_named(POLICY, name, configs)
    if policy.kind == "recorded":
        is_published(policy)
    scaffold_of(policy, configs)
    for named in weights_of(policy):
        kind, _, weights = named.partition(":")
        if kind in ("sft", "model", "rl") and weights:
            recipes.load_named(kind, weights, configs)


def scaffold_of(policy: Policy, configs: Path = recipes.CONFIGS) -> Record:
    """Returns a policy's scaffold settings, with the content of the configuration file that they name.
    Returns {} for a recorded policy. Raises InputError if the scaffold or the file does not exist."""
    if policy.kind == "recorded":
        return {}
    return scaffold_slice(recipes.load_named(SCAFFOLD, policy.scaffold, configs))


def scaffold_slice(scaffold: Scaffold) -> Record:
    """Returns the scaffold's settings, with the content of the configuration file that they name. Raises
    InputError."""
    used = scaffold.plain()
    return used | {"config": recipes.read_yaml(scaffold.config)} if scaffold.agent == "swe-agent" else used


PLACING = ("wandb", "job", "listen", "verl")
"""Settings of an RL recipe that determine where the training runs. They do not affect results."""


def learning_slice(rl: Rl) -> Record:
    """Returns the settings of an RL recipe that affect the trained weights. The engine is included only if it
    is not the default."""
    used = without(rl, *PLACING)
    if rl.engine == "embedded":
        del used["engine"]
    else:
        used |= {key: getattr(rl.cluster, key) for key in ("mode", "resume_from")}
    return used


def rl_slice(rl: Rl, configs: Path = recipes.CONFIGS) -> Record:
    """Returns the settings that affect an RL training, from its recipe, its scaffold's recipe and its judge's
    recipe."""
    judge = recipes.load_named(POLICY, rl.judge.policy, configs) if rl.judge else None
    return {
        "recipe": learning_slice(rl),
        "scaffold": scaffold_slice(recipes.load_named(SCAFFOLD, rl.scaffold, configs)),
        **({"judge": rollout_slice(judge)} if judge else {}),
    }


def local_files(path: str | None) -> list[str]:
    """Returns the user's file, or all files below the user's folder, as inputs of a rule. Returns [] if there
    are none.

    Snakemake reads braces as wildcards. A file with braces in its path is therefore replaced by the nearest
    parent folder without braces.
    """
    found = Path(path or os.devnull).expanduser()
    listed = found.rglob("*") if found.is_dir() else [found]
    return sorted({_without_braces(each) for each in listed if each.is_file()})


def _without_braces(path: Path) -> str:
    named = (each for each in (path, *path.parents) if not {"{", "}"} & set(str(each)))
    return str(next(named, path))


def is_published(policy: RecordedPolicy) -> bool:
    """Returns whether a recorded policy's trajectories are rows of a published data set. Returns False if
    they are in a folder. Raises InputError if the policy names no source of trajectories, or several."""
    named = [name for name in ("folder", "path", "dataset") if getattr(policy, name)]
    if len(named) != 1:
        what = f"names {' and '.join(named) or 'no place of trajectories'}"
        raise InputError(what, "recorded policy", "one of folder, path and dataset")
    if named == ["dataset"] and not policy.revision:
        what = f"{policy.dataset} without revision"
        raise InputError(what, "recorded policy", "its commit of 40 digits")
    return named != ["folder"]
