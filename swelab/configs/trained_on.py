"""Finds the data on which policies were trained: SFT recipes, their start recipes, and the rollouts that gave
the rows."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import EXPERIMENT, MODEL, POLICY, RL, SFT
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.model import Model
from swelab.configs.kinds.policy import weights_of
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.sft import Source
from swelab.records import InputError


def lineage(sft: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns the SFT recipe, then the SFT recipe that made its start checkpoint, and so on.

    The last recipe starts from a model. Raises InputError if a recipe does not exist or the recipes form a
    circle.
    """
    chain = [sft]
    while True:
        kind, _, name = recipes.load_named(SFT, chain[-1], configs).base.rpartition(":")
        if kind != "sft":
            files_of_model(recipes.load_named(MODEL, name, configs))
            return chain
        if name in chain:
            raise InputError("starts from itself", recipes.path_of("sft", name, configs), "a model below it")
        chain.append(name)


def files_of_model(model: Model) -> list[str]:
    """Returns the sorted files of this machine that a model is made from: the user's folder, or a GGUF file.

    Raises InputError if the file or folder does not exist, or if the folder has no config.json.
    """
    if model.source == "gguf" and not (model.wheel or model.hub):
        path = Path(model.file).expanduser()
        if not path.is_file():
            raise InputError("no such file", path, "a GGUF file, as `file` of the model's recipe")
        return [str(path)]
    if model.source != "folder":
        return []
    folder = Path(model.path).expanduser()
    _require_model(folder, str(folder), "a model in Hugging Face layout, as `path` of its recipe")
    return sorted(str(path) for path in folder.iterdir() if path.is_file())


def _require_model(folder: Path, where: str, expected: str) -> None:
    if not (folder / "config.json").is_file():
        raise InputError("holds no config.json" if folder.is_dir() else "no such folder", where, expected)


def start_of(rl: str, find: Callable[[str], object], configs: Path = recipes.CONFIGS) -> str:
    """Returns the weights from which an RL recipe starts: its field `start`.

    find: `lineage.find`. A folder that a rule makes need not exist yet. Raises InputError if the recipe or
    folder that `start` names does not exist, or if the folder has no config.json.
    """
    start, path = recipes.load_named(RL, rl, configs).start, recipes.path_of("rl", rl, configs)
    kind, _, name = start.partition(":")
    where = f"start {start} of {path}"
    if name and kind in recipes.FOLDERS:
        try:
            recipes.path_of(kind, name, configs)
        except InputError as fault:
            raise InputError(str(fault), where) from None
    elif not find(start):
        expected = "sft:<recipe>, model:<recipe>, rl:<recipe> or a folder with weights in Hugging Face layout"
        _require_model(Path(start).expanduser(), where, expected)
    return start


def sft_recipes(experiment: Experiment, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns all SFT recipes of an experiment: its own, those of its scored policies, and the recipes from
    which these start."""
    named = [experiment.sft]
    for weights in _scored_weights(experiment, configs):
        start = [weights, *(each.start for each in rl_recipes_behind(weights, configs).values())][-1]
        named += [start.partition(":")[2]] * start.startswith("sft:")
    return list(dict.fromkeys(name for sft in named for name in lineage(sft, configs)))


def rl_recipes_behind(weights: str, configs: Path = recipes.CONFIGS) -> dict[str, Rl]:
    """Returns the RL recipes that made weights, keyed by name. Each recipe starts from the next one. Raises
    InputError if they form a circle."""
    by_name = dict[str, Rl]()
    while weights.startswith("rl:"):
        name = weights.partition(":")[2]
        if name in by_name:
            where = recipes.path_of("rl", name, configs)
            raise InputError("starts from itself", where, "other weights")
        by_name[name] = recipes.load_named(RL, name, configs)
        weights = by_name[name].start
    return by_name


def rl_recipes(experiment: Experiment, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns all RL recipes that made the weights of an experiment's scored policies."""
    found = (rl_recipes_behind(weights, configs) for weights in _scored_weights(experiment, configs))
    return list(dict.fromkeys(name for each in found for name in each))


def _scored_weights(experiment: Experiment, configs: Path) -> list[str]:
    scored = (recipes.load_named(POLICY, policy, configs) for policy in experiment.policies)
    return [weights for policy in scored for weights in weights_of(policy)]


def training_runs(sft: str, configs: Path = recipes.CONFIGS) -> list[tuple[str, str]]:
    """Returns (policy, subset) of the rollouts that give an SFT recipe its rows, in any experiment.

    These are the recipe's `sources`. Without `sources`, they are the expert's rollouts in experiments whose
    `sft` is this recipe. If there are none, they are the expert's rollouts in experiments whose `sft` starts
    from this recipe. If there are none, they are the rollouts for the recipe from which this recipe starts.
    Raises InputError if there is no expert, or if experiments name different experts.
    """
    recipe = recipes.load_named(SFT, sft, configs)
    sources = recipe.sources or _experts(sft, configs)
    if not sources and recipe.base.startswith("sft:"):
        return training_runs(lineage(sft, configs)[1], configs)
    if len(sources) != 1 and not recipe.sources:
        found = "experiments name different experts for it" if sources else "no experiment has it as `sft`"
        what = f"no run to take rows from: it has no `sources`, and {found}"
        raise InputError(what, recipes.path_of("sft", sft, configs), "`sources`, or a recipe of another name")
    pairs = [(source.policy, subset) for source in sources for subset in source.subsets]
    return list(dict.fromkeys(pairs))


def _experts(sft: str, configs: Path) -> list[Source]:
    """Returns the distinct experts of the experiments whose `sft` is this recipe. Without such experiments,
    uses those whose `sft` starts from this recipe."""
    own, below = list[Source](), list[Source]()
    for name in recipes.names("experiment", configs):
        with contextlib.suppress(InputError):  # loading that experiment reports the error
            experiment = recipes.load_named(EXPERIMENT, name, configs)
            found = own if experiment.sft == sft else below
            if sft in lineage(experiment.sft, configs) and experiment.expert not in found:
                found.append(experiment.expert)
    return own or below


def subsets_behind(weights: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns all subsets on which weights were trained, with rewards from tests or with trajectories. Raises
    InputError."""
    learned = rl_recipes_behind(weights, configs)
    found = [recipe.subset for recipe in learned.values()]
    kind, _, start = [weights, *(recipe.start for recipe in learned.values())][-1].partition(":")
    for sft in lineage(start, configs) if kind == "sft" else ():
        found += [subset for _, subset in training_runs(sft, configs)]
    return list(dict.fromkeys(found))


def training_subsets(experiment: Experiment, configs: Path = recipes.CONFIGS) -> list[str]:
    """Returns all subsets on which a scored policy was trained, or on which the expert makes attempts."""
    found = [*experiment.expert.subsets]
    for sft in sft_recipes(experiment, configs):
        found += [subset for _, subset in training_runs(sft, configs)]
    for weights in _scored_weights(experiment, configs):
        found += [recipe.subset for recipe in rl_recipes_behind(weights, configs).values()]
    return list(dict.fromkeys(found))
