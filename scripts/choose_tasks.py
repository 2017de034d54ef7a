"""Selects the tasks of a subset that a policy resolves at the requested rate, according to its grades."""

import argparse
import sys
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.configs.kinds.subset import AttemptedSubset
from swelab.console.terminal import run_script
from swelab.files.json_streams import RowSelection, Spool, write_list
from swelab.jobs.provenance import Stage
from swelab.records import read_records
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task
from swelab.tasks.pass_rates import choose, pass_rates
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="subset recipe with `source: attempted`")
    parser.add_argument("--attempted", type=Path, required=True, help="subset JSON that the policy attempted")
    parser.add_argument("--grades", type=Path, nargs="+", required=True, help="grades of all attempts")
    parser.add_argument("--output", type=Path, required=True, help="subset JSON to write")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest: counts, drops, origin")
    args = parser.parse_args()
    recipe = recipes.load_as(AttemptedSubset, SUBSET, args.recipe)
    used = {args.recipe: recipe.plain()}
    stage = Stage("choose_tasks", used, attempted=args.attempted, grades=args.grades)
    rates = pass_rates(grade for _, grade in read_records(args.grades, Grade))
    spool, numbers = Spool(), dict[str, int]()
    for task in read_tasks(args.attempted):
        numbers[task.instance_id] = spool.add(task)
    chosen = choose(RowSelection(spool, list(numbers.values()), Task), rates, recipe)
    write_list(args.output, RowSelection(spool, [numbers[name] for name in chosen.kept], Task))
    facts = {"kept": len(chosen.kept), "candidates": len(numbers), **chosen.facts}
    stage.write([args.output], args.manifest, **facts)
    print(f"{len(numbers)} tasks: {len(chosen.kept)} kept, {chosen.facts['drops']}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
