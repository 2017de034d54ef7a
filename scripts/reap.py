"""Removes containers of killed runs from a container engine.

With --images, also removes unused prepared images.
"""

import argparse

from swelab.console.terminal import run_script
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.reap import reap, remove_prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", action="store_true", help="also remove unused prepared images")
    args = parser.parse_args()
    engine = DockerEngine()
    print(f"removed {len(reap(engine))} containers")
    if args.images:
        print(f"removed {len(remove_prepared(engine))} prepared images")


if __name__ == "__main__":
    run_script(main)
