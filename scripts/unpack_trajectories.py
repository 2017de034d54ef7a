"""Writes the rows of a published trajectory data set (on the hub or local) as files in a folder."""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import is_published, rollout_slice
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.policy import RecordedPolicy
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import InputError, folder_for, write_json
from swelab.rollouts.published_trajectories import unpack_trajectories


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="policy recipe with `kind: recorded`")
    parser.add_argument("--downloads", type=Path, required=True, help="folder of downloaded files")
    parser.add_argument("--output", type=Path, required=True, help="folder of recordings to write")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: counts, drops")
    args = parser.parse_args()
    policy = recipes.load_as(RecordedPolicy, POLICY, args.recipe)
    if not is_published(policy):
        raise InputError("names a folder", args.recipe, "path or dataset: a set in rows")
    stage = Stage("unpack_trajectories", {args.recipe: rollout_slice(policy)}, rows=policy.path)
    with (
        folder_for(args.output.parent) as place,
        tempfile.TemporaryDirectory(prefix=f".{args.output.name}.", dir=place) as name,
    ):
        folder = Path(name) / "recordings"
        folder.mkdir()
        facts = unpack_trajectories(policy, args.downloads, folder)
        shutil.rmtree(args.output, ignore_errors=True)
        os.replace(folder, args.output)
    write_json(args.manifest, facts)
    stage.write([args.manifest, args.output])


if __name__ == "__main__":
    run_script(main)
