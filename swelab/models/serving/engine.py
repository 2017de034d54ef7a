"""The interface of an inference engine: the program that serves weights.

`server.py` starts an engine, waits until it is ready and stops it. `fleet.py` keeps it running, on this node
or others. Neither module depends on the kind of engine. To add an engine, write a class like
`sglang_engine.Sglang`, add it to ENGINES, and add its name to `engine` in configs/kinds/policy.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from swelab.files.model_config import ModelConfig
from swelab.models.serving.request_shapes import Shape
from swelab.models.token_turn import TokenTurn
from swelab.records import InputError, Record

CPU_CACHE = 65536
"""Default size of the cache of a server on a CPU, in tokens."""
DEFAULT_ENGINE = "sglang"
ENGINES = {"sglang": "swelab.models.serving.sglang_engine:Sglang"}


@dataclass(frozen=True)
class ServerSettings:
    """The checked settings of a model server.

    `folder` is a complete checkpoint in Hugging Face layout and `config` its config.json. Lengths are in
    tokens; if `max_total_tokens` is None, the engine's default is used. Requests need `key`, replacing
    weights needs `admin_key`; clients have neither (see `gate`). `adapters` maps names to LoRA folders.
    `extra_args` are further options of the engine. `python` is the interpreter in whose environment the
    engine is installed.
    """

    folder: Path
    config: ModelConfig
    name: str
    key: str = field(repr=False)
    admin_key: str = field(repr=False)
    host: str
    context_length: int
    max_total_tokens: int | None
    max_running_requests: int
    on_cpu: bool
    dtype: str
    adapters: Mapping[str, str]
    extra_args: Sequence[str]
    python: str


@dataclass(frozen=True)
class Program:
    """The command that starts an engine.

    `arguments` makes the command line from the path of a private folder that contains `files`. The access
    token is in such a file, since every user can read a command line.
    """

    arguments: Callable[[str], list[str]]
    environment: dict[str, str]
    files: dict[str, bytes]


@dataclass(frozen=True)
class Weights:
    """The weights that a running server serves: their folder and their version label."""

    folder: Path
    version: str


class Engine(Protocol):
    """A program that serves a model at /v1 as OpenAI does. SIGINT ends it after its running requests."""

    listens: str
    """Path that returns 200, without a token, once the server listens."""
    generates: str
    """Path that returns 200 while the server generates tokens."""
    refused_options: tuple[str, ...]
    """Options that a user may not set: the library sets them, or they contain a secret."""
    shapes: Mapping[str, type[Shape]]
    """The schemas of the allowed requests, by path. The gate rejects all others."""

    def program(self, settings: ServerSettings, port: int) -> Program:
        """The command that starts a server at a port.

        Raises InputError (adapter), ServingError (not installed).
        """
        ...

    def gpu_options(self, count: int, first: int) -> tuple[str, ...]:
        """Options that spread the weights over `count` GPUs of the node, starting with GPU number `first`."""
        ...

    def adapter_model(self, name: str, adapter: str) -> str:
        """The model name in a request that selects an adapter of the model `name`."""
        ...

    def weights(self, url: str, key: str) -> Weights:
        """The weights that the server at `url` (without /v1) serves now. Raises ServingError."""
        ...

    def token_request(self, prompt: Sequence[int], sampling: Record) -> tuple[str, Record]:
        """(path, body) of a generation request with token ids; `sampling` as for a chat completion."""
        ...

    def read_tokens(self, prompt: Sequence[int], answer: Any) -> TokenTurn:
        """Parses the response to such a request. Raises ModelLost (malformed response)."""
        ...

    def replace_weights(self, url: str, admin_key: str, weights: Weights, in_turns: bool = False) -> None:
        """Makes the server at `url` (without /v1) serve other weights. Raises ServingError.

        in_turns: running turns continue with the new weights; otherwise they finish with the old ones first.
        """
        ...


def open_engine(name: str = DEFAULT_ENGINE) -> Engine:
    """The engine of that name. Raises InputError."""
    if name not in ENGINES:
        raise InputError(f"no inference engine is called {name!r}", expected=" or ".join(ENGINES))
    module, _, made = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), made)()
    return engine
