"""Grades a predictions file against a subset file, as SWE-smith's harness does (options, output folder).

In an experiment, rules grade and report_grades do this. --images takes the file of `scripts.pull_images`.
"""

import argparse
import sys
from pathlib import Path

from swelab.console.option_types import at_least, whole
from swelab.console.terminal import run_script
from swelab.grading.grade_predictions import Places, evaluate, forget, gold_predictions, subset_tasks
from swelab.grading.swesmith_reports import run_folder, run_report
from swelab.records import Fault, write_json
from swelab.rollouts.predictions import load_predictions


def options() -> argparse.Namespace:
    """The command line."""
    add = (parser := argparse.ArgumentParser(description=__doc__)).add_argument
    add("-d", "--dataset_path", required=True, help="subset JSON, or owner/set[@commit] on the hub")
    add("--split", default="test", help="split of a set on the hub")
    add("-p", "--predictions_path", default="gold", help="JSON object or list, JSON Lines, or gold")
    add("--run_id", required=True, help="name of the run, a folder in --logs")
    add("-w", "--workers", "--max_workers", type=whole, default=4, help="number of sandboxes at once")
    add("-t", "--timeout", type=at_least(1), help="seconds for a task's tests; by default as the row says")
    add("-i", "--instance_ids", nargs="*", default=[], help="instance ids or shell patterns")
    add("--redo_existing", action="store_true", help="repeat finished runs")
    add("--report_only", action="store_true", help="only write the run's report from the instances' reports")
    add("--logs", type=Path, default=Path("logs/run_evaluation"), help="folder of all runs")
    add("--witness", type=Path, help="witness file of the validation, ZIP")
    add("--guard", choices=["whole", "reference"], default="whole", help="reference: judge as SWE-bench does")
    add("--images", type=Path, help="record of pulled images")
    add("--repos-dir", type=Path, default=Path("results/repos"), help="folder of repository archives")
    return parser.parse_args()


def main() -> None:
    args = options()
    folder = run_folder(args.logs, args.run_id)
    tasks = subset_tasks(args.dataset_path, args.instance_ids, args.timeout, args.split)
    gold = args.predictions_path == "gold"
    at = Places(args.repos_dir, args.images, args.witness)
    predictions = gold_predictions(tasks, at) if gold else load_predictions(args.predictions_path)
    names = {task.instance_id for task in tasks}
    predictions = {k: row for k, row in predictions.items() if k in names or not args.instance_ids}
    if args.report_only:
        record = run_report(folder, predictions, set(predictions) - names)
        write_json(folder / "report.json", record)
    else:
        if args.redo_existing:
            forget(folder)
        record = evaluate(tasks, predictions, folder, at, max(1, args.workers), args.guard)
    print(f"{record['resolved']} of {record['total']} resolved; {folder / 'report.json'}", file=sys.stderr)
    if record["ids_lost"]:
        raise Fault(f"{len(record['ids_lost'])} predictions have no verdict, such as {record['ids_lost'][0]}")


if __name__ == "__main__":
    run_script(main)
