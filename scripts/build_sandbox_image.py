"""Makes the image in which container engines run tasks that have no image of their own."""

import argparse
import os
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.sandbox.sandbox_image import build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    toolbox = os.environ.get("SWELAB_TOOLBOX") or ".venv-sandbox"
    parser.add_argument("--toolbox", type=Path, default=Path(toolbox), help="virtualenv with the test runner")
    parser.add_argument("--output", type=Path, required=True, help="new folder: image.json, root/, root.tar")
    args = parser.parse_args()
    record = build(args.output, args.toolbox)
    print(f"{record['name']} {record['digest']}: {record['bytes'] >> 20} MiB")


if __name__ == "__main__":
    run_script(main)
