"""Makes a policy's attempts at one shard of a subset's tasks. Can be resumed."""

import argparse
from pathlib import Path

from swelab.configs import kinds, recipes
from swelab.configs.experiment import rollout_slice, scaffold_slice, service_of
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.jobs.shards import belongs_to, sample_of, with_sample
from swelab.lineage import policy_sources
from swelab.models.model_values import sampling_facts, with_model_values
from swelab.models.policy_models import of_sample, print_note
from swelab.records import InputError, write_jsonl
from swelab.rollouts.rollout_stage import recorded_trajectories, roll_out
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--policy", type=Path, required=True, help="policy recipe")
    parser.add_argument("--scaffold", type=Path, nargs="?", help="scaffold recipe, if any")
    parser.add_argument("--recordings", type=Path, nargs="?", help="manifest of unpacked trajectories")
    parser.add_argument("--subset", required=True, help="name of the subset")
    parser.add_argument("--shard", default="000of001", help="<number>of<count>; a sample adds s<sample>")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=at_least(1), default=2, help="number of rollouts at once")
    parser.add_argument("--output", type=Path, required=True, help="trajectories to write, JSON Lines")
    args = parser.parse_args()
    policy = recipes.load(kinds.POLICY, args.policy)
    scaffold = recipes.load(kinds.SCAFFOLD, args.scaffold) if args.scaffold else None
    used = {args.policy: rollout_slice(policy), args.scaffold: scaffold_slice(scaffold) if scaffold else {}}
    inputs = {name: getattr(args, name) for name in ("tasks", "images", "recordings")}
    stage = Stage("rollout", used, **inputs, sources=policy_sources(policy))
    print_note(policy := with_model_values(policy), args.policy.stem)
    named = {"policy_name": args.policy.stem, "subset": args.subset, "shard": args.shard}
    if policy.kind == "recorded":
        folder = str(args.recordings.with_suffix("") if args.recordings else policy.folder)
        names = [task.instance_id for task in read_tasks(args.tasks)]
        rows = recorded_trajectories(names, folder=folder, runs=policy.samples or 1, **named)
    elif scaffold is None:
        raise InputError("--scaffold is missing", args.policy, "the recipe that the policy acts by")
    else:
        named |= {"policy": of_sample(policy, sample_of(args.shard)), "scaffold": scaffold}
        named |= {"progress": args.progress, "workers": args.workers, "images_path": args.images}
        tasks = list(read_tasks(args.tasks, belongs_to(args.shard)))
        batch = scaffold.agent == "swe-agent"
        rows = roll_out_batch(tasks, **named) if batch else roll_out(tasks, repos_dir=args.repos_dir, **named)
    write_jsonl(args.output, with_sample(rows, args.shard))
    facts = {"place": {"service": service_of(policy)}, **sampling_facts(policy)}
    stage.write([args.output], journal=args.progress, **facts)


if __name__ == "__main__":
    run_script(main)
