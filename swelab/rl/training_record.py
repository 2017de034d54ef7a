"""Records the settings and files on which the weights of a training depend."""

from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import learning_slice, rollout_slice, scaffold_slice
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.jobs.provenance import Paths, Stage
from swelab.lineage import policy_sources
from swelab.records import Record


def stage_of(path: Path, recipe: Rl, **inputs: Paths) -> Stage:
    """Returns the stage of a training, with the recipes of the training, its scaffold and its judge.

    Settings that only place the training are excluded. path: the recipe's file. inputs: the files of each
    role; those of the judge's weights are added. Raises InputError.
    """
    scaffold = recipes.load_named(SCAFFOLD, recipe.scaffold)
    judges = {name: recipes.load_named(POLICY, name) for name in recipe.judges}
    used: dict[str | Path, Record] = {path: {**learning_slice(recipe), "engine": recipe.engine}}
    used[recipes.path_of("scaffold", recipe.scaffold)] = scaffold_slice(scaffold)
    used |= {recipes.path_of("policy", name): rollout_slice(judge) for name, judge in judges.items()}
    sources = [source for judge in judges.values() for source in policy_sources(judge)]
    return Stage("train_rl", used, **inputs, judge=sources)
