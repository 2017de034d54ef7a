"""Loads an experiment with every recipe that it names, and checks that they fit together."""

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
from swelab.configs.trained_on import learned, subsets_behind, trained, training_runs, training_subsets
from swelab.records import InputError, Record

NO_RESULT = (
    "api_base",
    "api_key_env",
    "budget_dollars",
    "cache_last_messages",
    "endpoint",
    "job",
    "max_lost",
    "price",
    "rates",
    "samples",
    "shards",
)
"""Settings of a policy that do not affect results, such as payment and addresses."""
SELECTION = ("selection", "rows", "pairs")
"""Parts of an SFT recipe that its dataset depends on."""


def rollout_slice(policy: Policy) -> Record:
    """The fields of a policy's recipe that its rollouts depend on."""
    return without(policy, *NO_RESULT)


def tasks_slice(subset: Subset) -> Record:
    """The fields of a subset's recipe that its tasks depend on, without the fields for validation and
    grading."""
    return without(subset, "validate", "guard", "scorer", "service")


def validation_slice(subset: Subset) -> Record:
    """The fields of a subset's recipe that validation depends on. Empty for a part of another subset, because
    its tasks are validated with that subset."""
    if subset.source == "attempted":
        return {}
    return subset.validation.plain() | ({"guard": subset.guard} if subset.guard != "whole" else {})


def selection_slice(sft: Sft) -> Record:
    """The fields of an SFT recipe that its dataset depends on. The learning rate, for example, is not among
    them."""
    return {key: getattr(sft, key).plain() for key in SELECTION}


def training_slice(sft: Sft) -> Record:
    """The fields of an SFT recipe that its training depends on, besides the dataset."""
    return without(sft, *SELECTION, "sources", "job", "wandb")


def without(recipe: Recipe, *names: str) -> Record:
    """The dump of a recipe, without some of its keys."""
    return {key: value for key, value in recipe.plain().items() if key not in names}


def key_variables(policy: Policy) -> list[str]:
    """The environment variables that hold a policy's keys."""
    named = (policy.api_key_env if policy.kind in ("hosted", "checkpoint") else None) or []
    return [named] if isinstance(named, str) else list(named)


def check_keys(name: str, policy: Policy) -> None:
    """Raises InputError if a variable for a policy's key is not set."""
    for variable in key_variables(policy):
        if not os.environ.get(variable, "").strip(" :"):
            what = f"api_key_env: the environment variable {variable} is not set"
            raise InputError(what, f"policy {name}", f"the key of {service_of(policy)} in it")


def service_of(policy: Policy) -> str:
    """Names the service that serves a policy's model; '' for a policy without a model."""
    if policy.kind == "hosted":
        return f"{policy.model} at {policy.api_base}" if policy.api_base else policy.model
    if policy.kind == "checkpoint":
        return policy.endpoint or f"the server of {policy.weights}"
    return ""


def load_experiment(name: str, configs: Path = recipes.CONFIGS) -> Experiment:
    """Loads the experiment `name`, and checks it and all recipes that it names.

    Raises InputError: an unknown name in any of these recipes, a compared policy that is not scored, a subset
    that is both trained on and scored, or a subset that is made from itself.
    """
    path = recipes.path_of("experiment", name, configs)
    experiment = recipes.load(EXPERIMENT, path)
    for policy in experiment.acting:
        check_policy(policy, configs)
    for sft in trained(experiment, configs):
        for policy, _ in training_runs(sft, configs):
            check_policy(policy, configs)
    train, benchmarks = training_subsets(experiment, configs), experiment.benchmarks
    for subset in [*train, *benchmarks]:
        check_subset(subset, configs)
    for policy in experiment.compare:
        if policy not in experiment.policies:
            hint = recipes.nearest(policy, experiment.policies)
            raise InputError(f"compare: {policy!r} is not among policies{hint}", path)
    validated = [each.held_out for name in learned(experiment, configs)
                 for each in [recipes.named(RL, name, configs)]]  # fmt: skip
    for subset in [*train, *(name for names in validated for name in names)]:
        _check_no_evaluation(subset, configs, path)
    for subset in train:
        if both := sorted(set(parts_of(subset, configs)) & set(benchmarks)):
            part = f" in part, as {subset!r}," * (both[0] != subset)
            raise InputError(f"subset {both[0]!r} is trained on{part} and scored", path, "disjoint subsets")
    return experiment


def _check_no_evaluation(subset: str, configs: Path, where: Path) -> None:
    """Raises InputError if a subset to train or validate on is an evaluation set by its recipe."""
    whole = recipes.named(SUBSET, parts_of(subset, configs)[-1], configs)
    if whole.source == "kodcode" and whole.evaluation_set:
        what = f"subset {subset!r} is the evaluation set {whole.evaluation_set}, trained or validated on"
        raise InputError(what, where, "other tasks: this one may only be a benchmark")


def subset_parents(subset: Subset) -> list[str]:
    """Names of the subsets that a recipe refers to: the subset that is attempted or rated, and excluded
    subsets."""
    if subset.source == "attempted":
        return [subset.subset]
    if subset.source != "dataset":
        return []
    rated = subset.ratings.subset if subset.ratings else None
    return [*subset.exclude, *([rated] if rated is not None else [])]


def check_subset(name: str, configs: Path = recipes.CONFIGS, below: tuple[str, ...] = ()) -> None:
    """Checks a subset and all behind it. Raises InputError: an unknown name, a circle of subsets."""
    subset = recipes.named(SUBSET, name, configs)
    if name in below:
        circle = " -> ".join([*below[below.index(name) :], name])
        raise InputError(f"made from itself: {circle}", recipes.path_of("subset", name, configs))
    for repo in repos_of(subset):
        recipes.named(REPO, repo, configs)
    if subset.source == "attempted":
        check_attempts(name, subset, configs, (*below, name))
    if subset.source == "dataset" and subset.ratings and subset.ratings.rater:
        check_policy(recipes.named(RATER, subset.ratings.rater, configs).policy, configs)
    for parent in subset_parents(subset):
        check_subset(parent, configs, (*below, name))


def parts_of(name: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """A subset, then the subset whose tasks it chooses by attempts, and so on up to a whole subset.

    Raises InputError: a circle of subsets.
    """
    found = [name]
    while (subset := recipes.named(SUBSET, found[-1], configs)).source == "attempted":
        if subset.subset in found:
            circle = " -> ".join([*found, subset.subset])
            raise InputError(f"made from itself: {circle}", recipes.path_of("subset", name, configs))
        found.append(subset.subset)
    return found


def in_images(name: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """A list of the whole subset that a subset is part of, if its tasks may be in images; otherwise [].
    Raises InputError: a circle of subsets.
    """
    whole = parts_of(name, configs)[-1]
    return [whole] if recipes.named(SUBSET, whole, configs).source in ("dataset", "harbor") else []


def attempts(name: str, configs: Path = recipes.CONFIGS) -> list[dict[str, str]]:
    """[{"policy", "subset"}] of the run whose grades choose a subset's tasks; [] if no run chooses them.

    Raises InputError as `check_subset`.
    """
    subset = recipes.named(SUBSET, name, configs)
    if subset.source != "attempted":
        return []
    check_subset(name, configs)
    return [{"policy": subset.policy, "subset": subset.subset}]


def check_attempts(name: str, subset: AttemptedSubset, configs: Path, below: tuple[str, ...]) -> None:
    """Raises InputError: an unknown policy, one that is trained on these tasks, too few samples for the
    bounds."""
    check_policy(subset.policy, configs)
    policy, path = recipes.named(POLICY, subset.policy, configs), recipes.path_of("subset", name, configs)
    if not subset.allows(policy.samples or 1):
        count, bounds = policy.samples or 1, f"from {subset.at_least} to {subset.at_most}"
        what = f"no pass rate is {bounds}: policy {subset.policy} attempts a task {count} times"
        raise InputError(what, path, "more `samples` of the policy, or other bounds")
    whole = recipes.named(SUBSET, parts_of(name, configs)[-1], configs)
    if getattr(whole, "scorer", "local") != "local":
        raise InputError(f"tasks of {subset.subset} are judged by a service", path, "tasks with tests")
    for weights in weights_of(policy):
        for each in subsets_behind(weights, configs):
            check_subset(each, configs, below)


def check_policy(name: str, configs: Path = recipes.CONFIGS) -> None:
    """Checks a policy, its scaffold and the recipes behind its weights. Raises InputError."""
    policy = recipes.named(POLICY, name, configs)
    if policy.kind == "recorded":
        is_published(policy)
    scaffold_of(policy, configs)
    for named in weights_of(policy):
        kind, _, weights = named.partition(":")
        if kind in ("sft", "model") and weights:
            recipes.named(kind, weights, configs)


def scaffold_of(policy: Policy, configs: Path = recipes.CONFIGS) -> Record:
    """A policy's scaffold, with the content of the configuration that it names; {} for a recorded policy.

    Raises InputError: no such scaffold or configuration.
    """
    return (
        {} if policy.kind == "recorded" else scaffold_slice(recipes.named(SCAFFOLD, policy.scaffold, configs))
    )


def scaffold_slice(scaffold: Scaffold) -> Record:
    """A scaffold's recipe, with the content of the configuration that it names. Raises InputError."""
    used = scaffold.plain()
    return used | {"config": recipes.read_yaml(scaffold.config)} if scaffold.agent == "swe-agent" else used


PLACING = ("wandb", "job", "listen", "verl")
"""Keys of an RL recipe that determine where it runs. They do not affect its results."""


def learning_slice(rl: Rl) -> Record:
    """The fields of an RL recipe that the trained weights depend on; the engine only if it is not the
    default."""
    used = without(rl, *PLACING)
    if rl.engine == "embedded":
        del used["engine"]
    else:
        used |= {key: getattr(rl.cluster, key) for key in ("mode", "resume_from")}
    return used


def rl_slice(rl: Rl, configs: Path = recipes.CONFIGS) -> Record:
    """The fields that an RL training depends on, from its recipe, its scaffold's recipe and its judge's
    recipe."""
    judge = recipes.named(POLICY, rl.judge.policy, configs) if rl.judge else None
    return {
        "recipe": learning_slice(rl),
        "scaffold": scaffold_slice(recipes.named(SCAFFOLD, rl.scaffold, configs)),
        **({"judge": rollout_slice(judge)} if judge else {}),
    }


def local_files(path: str | None) -> list[str]:
    """The user's file, or all files below the user's folder, as inputs of a rule; [] if there are none.

    Snakemake reads braces as wildcards, so a file with braces in its path is replaced by the nearest folder
    without them.
    """
    found = Path(path or os.devnull).expanduser()
    listed = found.rglob("*") if found.is_dir() else [found]
    return sorted({_without_braces(each) for each in listed if each.is_file()})


def _without_braces(path: Path) -> str:
    named = (each for each in (path, *path.parents) if not {"{", "}"} & set(str(each)))
    return str(next(named, path))


def is_published(policy: RecordedPolicy) -> bool:
    """Whether a recorded policy's trajectories are rows of a published set, and not a folder.

    Raises InputError unless the policy names exactly one place of trajectories.
    """
    named = [name for name in ("folder", "path", "dataset") if getattr(policy, name)]
    if len(named) != 1:
        what = f"names {' and '.join(named) or 'no place of trajectories'}"
        raise InputError(what, "recorded policy", "one of folder, path and dataset")
    if named == ["dataset"] and not policy.revision:
        what = f"{policy.dataset} without revision"
        raise InputError(what, "recorded policy", "its commit of 40 digits")
    return named != ["folder"]
