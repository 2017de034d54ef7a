"""Writes tasks as folders of Harbor, the framework of Terminal-Bench 2 (docs/harbor.md)."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.records import read_record
from swelab.records.image_records import Images
from swelab.sharing.harbor_export import BASE_IMAGE, Export, write_folders
from swelab.tasks.datasets_source import named_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--tasks", required=True, help="subset JSON, or owner/set[@commit] on the hub")
    add("--split", default="test", help="split of a set on the hub")
    add("--to", type=Path, required=True, help="new folder to write; each task becomes a folder in it")
    add("--repos-dir", type=Path, default=Path("results/repos"), help="folder of repository archives")
    add("--images", type=Path, help="record of pulled images, which has their digests")
    add("--base-image", default=BASE_IMAGE, help="base image for tasks that are made from an archive")
    add("--network", action="store_true", help="allow containers to use the network, as agents may need")
    args = parser.parse_args()
    images = read_record(args.images, Images) if args.images else None
    export = Export(args.repos_dir, images, args.base_image, args.network)
    found = write_folders(named_rows(args.tasks, args.split), args.to, export)
    reasons = Counter(found["left_out"].values())
    print(f"{len(found['written'])} task folders in {args.to}, {len(found['left_out'])} tasks left out")
    for reason, count in reasons.most_common():
        print(f"left out: {count}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
