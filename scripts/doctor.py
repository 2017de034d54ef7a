"""Checks configs/site.yaml against the cluster it describes, from a login node; says what to fix."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.doctor import examine
from swelab.records import Fault
from swelab.site import SITE_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, default=SITE_FILE, help="site file")
    parser.add_argument(
        "--experiment", default="", help="look at this experiment's needs, not the file's own"
    )
    parser.add_argument("--wait", type=int, default=120, help="seconds to wait for a free node")
    args = parser.parse_args()
    faults = 0
    for finding in examine(args.site, args.wait, args.experiment):
        faults += not finding.good
        print(f"{'ok ' if finding.good else 'FIX'}  {finding.text}", flush=True)
    if faults:
        raise Fault(f"{faults} to fix in {args.site} or on the cluster; the lines above say how")


if __name__ == "__main__":
    run_script(main)
