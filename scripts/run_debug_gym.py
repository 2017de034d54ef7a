"""Lets a model debug tasks, as a configuration in debug-gym's format says. Files have debug-gym's names.

The same `-p base.uuid=NAME` continues a run. See docs/coming-from-swe-pdb.md.
"""

import argparse
import os
import sys
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.evaluation.debug_gym_run import Force, RunRequest, list_problems, run_configuration

ROOT = Path(__file__).resolve().parents[1]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, count = parser.add_argument, at_least(1)
    add("config", type=Path, help="YAML file with a section base and a section for each agent")
    add("--agent", default="", help="debug_agent or rewrite_agent; by default the file's first")
    add("-p", "--params", nargs="+", action="extend", default=[], metavar="PART.KEY=VALUE", help="override")
    workers = os.environ.get("DEBUG_GYM_WORKERS") or "1"
    add("-n", "--num-workers", type=count, default=workers, help="attempts at once; DEBUG_GYM_WORKERS, or 1")
    add("--max-problems", type=count, default=0, help="number of problems to take from the start")
    force = parser.add_mutually_exclusive_group()
    force.add_argument("--force-all", action="store_true", help="repeat all problems")
    force.add_argument("--force-failed", action="store_true", help="repeat problems that are not resolved")
    add("-t", "--timeout", type=count, default=0, help="seconds per attempt; by default the scaffold's")
    add("--llm-name", default="", help="model instead of the file's: name in llm.yaml, folder or recipe")
    add("--llm-config-file-path", default="", help="path of llm.yaml")
    add("--max-rewrite-steps", type=at_least(0), default=-1, help="limit of rewrites; 0 for no limit")
    add("--list", action="store_true", help="only print the problems")
    return parser.parse_args()


def main() -> int:
    """Returns 0 if no problem ended in an error."""
    args = options()
    model = {"llm_name": args.llm_name, "llm_file": args.llm_config_file_path}
    limits = {"seconds": args.timeout, "max_rewrite_steps": args.max_rewrite_steps}
    asked = RunRequest(args.config, args.agent, tuple(args.params), args.num_workers, **limits, **model)
    force = Force.ALL if args.force_all else Force.FAILED if args.force_failed else Force.NONE
    if args.list:
        print("\n".join(list_problems(asked, ROOT, args.max_problems)), flush=True)
        return 0
    lines, errors = run_configuration(asked, ROOT, force, args.max_problems)
    print("\n".join(lines), flush=True)
    if errors:
        print(f"error: {errors} problems ended in an error; the same run tries them again", file=sys.stderr)
    return 2 if errors else 0


if __name__ == "__main__":
    run_script(main)
