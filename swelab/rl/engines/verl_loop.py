"""Makes our rollouts in an agent loop of verl.

verl requests each rollout. Our code limits the number of concurrent rollouts and their duration.
"""

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from swelab.records import Record
from swelab.rl.engines.verl_samples import Row, trained_rows, validation_row
from swelab.rl.engines.verl_tokens import VerlTokens
from swelab.rl.engines.verl_workplace import workplace
from swelab.rl.rollouts import RolledOut


class SwelabLoop(AgentLoopBase):
    """Makes one rollout for verl. order: path of the file that describes the training run (see
    `verl_order`)."""

    def __init__(self, *arguments: Any, order: str, **options: Any):
        super().__init__(*arguments, **options)
        self._work = workplace(order)

    async def run(self, sampling_params: Record, **row: Any) -> Row | list[Row]:
        """Makes one rollout, and returns its row or a list of its rows. The list is empty if no row is
        trained.

        For a training rollout, waits until its whole group is finished. Raises Fault if every further rollout
        would fail too. The training run then ends.
        """
        if row["extra_info"]["held_out"]:
            found = validation_row(await self._validate(sampling_params, row), self._work.order.recipe)
        else:
            found = await self._train(sampling_params, row)
        return found[0] if len(found) == 1 else found

    async def _validate(self, sampling: Record, row: Record) -> RolledOut:
        steps = int(row["global_steps"])
        request = self._work.request_of(int(row["extra_info"]["index"]), 0, True)
        journal = self._work.order.validation_journal(request, steps)
        engine = self._engine(sampling, steps)
        return await self._work.roll_out(request, journal, engine, sampling["temperature"], False)

    async def _train(self, sampling: Record, row: Record) -> list[Row]:
        session, name, done = int(row["session_id"]), str(row["uid"]), None
        version = max(0, int(row["global_steps"]) - 1)
        request = self._work.request_of(int(row["extra_info"]["index"]), session, False)
        group = self._work.group(name)
        try:
            engine, journal = self._engine(sampling, version), self._work.order.journal(request)
            done = await self._work.roll_out(request, journal, engine, sampling["temperature"], True)
        finally:
            group.close(session, done)
        rollouts = await group.whole()
        self._work.forget(name)
        return trained_rows(rollouts, self._work.order.recipe, version)[session]

    def _engine(self, sampling: Record, version: int) -> VerlTokens:
        most = self._work.order.recipe.rollouts.context_length
        return VerlTokens(self.server_manager, sampling, most, version)
