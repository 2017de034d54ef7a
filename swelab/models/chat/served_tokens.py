"""Samples turns, as token ids, from a model server that we run."""

from collections.abc import Sequence
from typing import Any

from swelab.models.chat.served_models import client, persist
from swelab.models.serving.engine import open_engine
from swelab.models.serving.server import Endpoint
from swelab.models.token_turn import TokenTurn
from swelab.records import Record


class ServedTokens:
    """Our model servers behind their gate, as a `TokenEngine` of `swelab.rl.token_model`."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint, self._engine = endpoint, open_engine(endpoint.engine)

    def generate(self, prompt: Sequence[int], sampling: Record) -> TokenTurn:
        """Samples one turn. Retries requests with temporary faults. Raises ServingError if our server has
        ended, and ModelLost, ContextLimit, InputError."""
        path, body = self._engine.token_request(prompt, sampling)
        address = self._endpoint.url.removesuffix("/v1") + path
        service: Any = client(self._endpoint.url, self._endpoint.api_key)

        def ask() -> TokenTurn:
            return self._engine.read_tokens(prompt, service.post(address, body=body, cast_to=object))

        return persist(ask, self._endpoint.alive, self._endpoint.url, settings=sampling)
