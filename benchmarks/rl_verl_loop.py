"""An agent loop for verl with the rollouts of `rl_pace`. Only verl's processes import this module."""

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.rl_pace import run_in_journal
from swelab.jobs.journal import Journal
from swelab.rl.engines.verl_loop import SwelabLoop
from swelab.rl.engines.verl_tokens import VerlTokens
from swelab.rl.engines.verl_workplace import Workplace
from swelab.rl.rollouts import RolledOut, RolloutRequest


class PacedLoop(SwelabLoop):
    """Our agent loop with paced rollouts. All other parts of the loop are the real ones."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._work = _PacedWorkplace(self._work)


class _PacedWorkplace:
    """A workplace whose rollouts are paced."""

    def __init__(self, work: Workplace):
        self._inner = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def roll_out(self, request: RolloutRequest, path: Path, engine: VerlTokens, *_: Any) -> RolledOut:
        def work() -> RolledOut:
            with Journal(path) as journal:
                return run_in_journal(journal, request, str(engine._version))

        return await asyncio.get_running_loop().run_in_executor(self._inner._threads, work)
