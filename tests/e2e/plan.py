"""Snakemake that runs nothing and prints one line per job: rule, whether it runs here, resources.

A dry run does not show where a job would run.
"""

import json
import sys

from snakemake.cli import main
from snakemake.executors.dryrun import Executor


def _say(executor, job):
    asked = {name: value for name, value in job.resources.items() if isinstance(value, str | int)}
    print("job " + json.dumps([job.rule.name, job.rule.name in executor.workflow._localrules, asked]))


if __name__ == "__main__":
    Executor.printjob = _say
    sys.exit(main())
