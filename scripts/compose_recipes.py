"""Lets verl compose its configurations from recipes of SWE-RL, Miles and SWE-PDB. Lists the differences."""

import argparse
import json
import os
import subprocess
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.console.terminal import run_script
from swelab.lineage import weights_paths
from swelab.records import InputError
from swelab.rl.engines.published_values import PUBLISHED, differences
from swelab.rl.engines.verl_keys import JudgeModel, RunFiles, overrides

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(os.environ.get("SWELAB_VERL_PYTHON") or ROOT / ".venv-verl/bin/python")


def main() -> int:
    """Returns 0 if verl accepts all configurations, and each difference has a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PUBLISHED), help="names of recipes; by default all")
    parser.add_argument("--python", type=Path, default=PYTHON, help="Python of verl's environment")
    parser.add_argument("--overrides", action="store_true", help="also print verl's settings")
    args = parser.parse_args()
    if not args.python.exists():
        raise InputError("no such program", args.python, "`make verl` before")
    overrides = {name: settings(name) for name in args.names}
    command = [args.python, "-m", "swelab.rl.engines.verl_compose"]
    done = subprocess.run(command, input=json.dumps(overrides), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        raise InputError(
            f"verl's checks ended with exit code {done.returncode}; its words are above", args.python
        )
    faults = json.loads(done.stdout.splitlines()[-1])
    unreasoned = 0
    for name in args.names:
        print(f"{name}: {faults[name] or 'composed'}, {len(overrides[name])} settings")
        for each in differences(name) if name in PUBLISHED else ():
            unreasoned += not each.reason
            print(f"  {each}")
        for line in overrides[name] if args.overrides else ():
            print(f"  {line}")
    bad = sum(bool(each) for each in faults.values())
    print(f"recipes_composed={len(args.names) - bad} of {len(args.names)}")
    return int(bad + unreasoned > 0)


def settings(name: str) -> list[str]:
    """Returns verl's command-line overrides for a recipe, with the paths of the recipe's run."""
    recipe, folder = recipes.load_named(RL, name), Path("results/progress/train_rl") / name
    weights, judge = Path(weights_paths(recipe.start)[0]), JudgeModel.of(recipe)
    tasks, held_out, loops = (folder / each for each in ("tasks.json", "held_out.json", "loops.yaml"))
    return overrides(recipe, RunFiles(name, weights, tasks, held_out, loops, folder / "verl", judge))


if __name__ == "__main__":
    run_script(main)
