"""Samples turns, as token ids, on verl's servers."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import TimeoutError as Late
from typing import Any
from uuid import uuid4

from swelab.models import ContextLimit, ModelLost
from swelab.models.token_turn import TokenTurn
from swelab.records import Record, shorten

ANSWER_SECONDS = 900.0
"""Maximum duration of one turn, including the wait for a server."""
OURS = ("top_p", "top_k", "min_p", "stop")
"""Settings of the recipe that verl's sampling parameters do not have, or have for training alone."""
ABORTED = ("abort", "aborted")


class VerlTokens:
    """The engine of one rollout. `generate` must not be called in the thread of verl's event loop.

    client: verl's `LLMServerClient`. All turns of a rollout have the same request id, so that they go to the
    server that has the rollout's earlier tokens. sampling: verl's sampling parameters. most: maximum number
    of tokens of a conversation. version: version of the weights, used if a server reports no version.
    """

    def __init__(self, client: Any, sampling: Record, most: int, version: int):
        self._client, self._sampling, self._most, self._version = client, sampling, most, version
        self._loop, self._request = asyncio.get_running_loop(), uuid4().hex

    def generate(self, prompt: Sequence[int], sampling: Record) -> TokenTurn:
        """See `TokenEngine.generate`. Any exception from a server's process is raised as ModelLost."""
        room = self._most - len(prompt) - 1
        if room < 1:
            raise ContextLimit(f"no room for an answer after {len(prompt)} tokens of {self._most}")
        asked = {**self._sampling, "max_tokens": min(int(sampling["max_tokens"]), room)}
        asked |= {name: sampling[name] for name in OURS if name in sampling}
        call = self._client.generate(self._request, prompt_ids=list(prompt), sampling_params=asked)
        answer = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            output = answer.result(ANSWER_SECONDS)
        except Late:
            answer.cancel()
            raise ModelLost(f"no answer in {ANSWER_SECONDS:g} s") from None
        except Exception as error:
            raise ModelLost(f"{type(error).__name__}: {shorten(str(error))}") from None
        return self._turn(prompt, output)

    def _turn(self, prompt: Sequence[int], answer: Any) -> TokenTurn:
        if answer.stop_reason in ABORTED or answer.log_probs is None:
            raise ModelLost(
                f"an answer that ended as {answer.stop_reason} after {len(answer.token_ids)} tokens"
            )
        told = answer.extra_fields
        newest = told.get("max_global_steps", told.get("global_steps"))
        newest = self._version if newest is None else int(newest)
        oldest = told.get("min_global_steps")
        oldest = newest if oldest is None else int(oldest)
        finish = "length" if answer.stop_reason == "length" else "stop"
        count = len(answer.token_ids)
        return TokenTurn(
            tuple(prompt),
            tuple(answer.token_ids),
            tuple(answer.log_probs),
            finish,
            spans(count, oldest, newest),
        )


def spans(count: int, oldest: int, newest: int) -> tuple[tuple[int, str], ...]:
    """Divides `count` sampled tokens into spans. Returns (first token, version of the weights) for each span.

    verl reports the oldest and the newest version, but not where the version changed. If the two versions
    differ, the last token is assigned to the newest version, and all other tokens to the oldest.
    """
    if not count:
        return ()
    if oldest == newest or count == 1:
        return ((0, str(newest)),)
    return ((0, str(oldest)), (count - 1, str(newest)))
