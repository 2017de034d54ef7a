"""Checks this machine, and on a login node also the cluster of configs/site.yaml. Prints what to fix."""

import argparse
import sys
from pathlib import Path

try:
    from swelab.checks.checkup import look
    from swelab.checks.finding import refusal, show
    from swelab.cluster.doctor import at_cluster, examine
    from swelab.cluster.site import SITE_FILE
    from swelab.configs import recipes
    from swelab.configs.experiment import load_experiment
    from swelab.configs.kinds import CONFIG, RL
    from swelab.console.option_types import at_least
    from swelab.console.terminal import run_script
    from swelab.rl.machine_check import check_recipe
except ModuleNotFoundError as error:
    fix = "run make setup, then .venv/bin/python -m scripts.doctor"
    sys.exit(f"error: no package {error.name} in {sys.prefix}; {fix}")


def main() -> int:
    """Returns 0 if everything required exists, or 1 if something is missing. Prints what to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--site", type=Path, help=f"site file; by default {SITE_FILE} if SLURM is available")
    add("--experiment", default="", help="check the needs of this experiment instead of the default one")
    add("--rl", metavar="NAME", help="also check the needs of configs/rl/NAME.yaml on this machine")
    add("--wait", type=at_least(0), default=120, help="seconds to wait for a free node")
    args = parser.parse_args()
    cluster = args.site is not None or at_cluster(SITE_FILE)
    site_file = args.site or SITE_FILE
    settings = recipes.load(CONFIG, site_file if cluster else Path("configs/config.yaml"))
    experiment = args.experiment or settings.experiment
    print(f"This machine, for experiment {experiment}:", flush=True)
    fixes = show(look(settings, load_experiment(experiment), sandboxes=not cluster))
    if args.rl:
        print(f"What configs/rl/{args.rl}.yaml needs of this machine:", flush=True)
        fixes += show(check_recipe(recipes.load_named(RL, args.rl)))
    if cluster:
        print(f"The cluster of {site_file}:", flush=True)
        fixes += show(examine(site_file, args.wait, args.experiment))
    else:
        print(f"No SLURM controller answers here: {SITE_FILE} was not looked at (--site asks for it).")
    if fixes:
        print(f"error: {refusal(fixes)}", file=sys.stderr)
    return min(fixes, 1)


if __name__ == "__main__":
    run_script(main)
