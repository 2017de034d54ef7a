"""Snakemake that checks its cluster jobs every second. (By default it checks less and less often.)"""

import asyncio
import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def _sleep(executor):
    await asyncio.sleep(1)


if __name__ == "__main__":
    RemoteExecutor.sleep = _sleep
    sys.exit(main())
