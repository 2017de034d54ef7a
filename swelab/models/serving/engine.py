"""The seam between our model servers and the program that serves weights: an inference engine.

`server.py` starts one, waits until it is ready and stops it; `fleet.py` keeps it running, on this node or on
others. None of them knows which engine it is. A further engine is a file with a class like
`sglang_engine.Sglang`, an entry in ENGINES, and its name in `engine` of configs/kinds/policy.py.
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
"""Tokens in the cache of a server on a CPU where nothing else is said."""
DEFAULT_ENGINE = "sglang"
ENGINES = {"sglang": "swelab.models.serving.sglang_engine:Sglang"}


@dataclass(frozen=True)
class ServerSettings:
    """What a server is to serve, checked.

    `folder` is a complete checkpoint in Hugging Face layout and `config` its config.json. Lengths are in
    tokens; `max_total_tokens` None: the engine's default. Requests need `key`; replacing weights needs
    `admin_key`; no client has either (see `gate`). `adapters` are LoRA folders by name. `extra_args` are
    options of this engine, `python` is the interpreter that has it.
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
    """How an engine is started.

    `arguments` makes the command line from the path of a private folder, in which `files` are: the access
    token is there, for a command line is public.
    """

    arguments: Callable[[str], list[str]]
    environment: dict[str, str]
    files: dict[str, bytes]


@dataclass(frozen=True)
class Weights:
    """Which weights a running server serves: the folder, and the version that they were loaded under."""

    folder: Path
    version: str


class Engine(Protocol):
    """A program that serves a model at /v1 as OpenAI's service does, and that SIGINT ends after what runs."""

    listens: str
    """Path that answers 200, without a token, once the server listens."""
    generates: str
    """Path that answers 200 while the server generates tokens."""
    refused_options: tuple[str, ...]
    """Options that a user may not pass on: they are set here, or hold a secret."""
    shapes: Mapping[str, type[Shape]]
    """What clients may ask: the shape of a request by path. All else is refused before the engine sees it."""

    def program(self, settings: ServerSettings, port: int) -> Program:
        """How a server is started at a port. Raises InputError (an adapter), ServingError (not installed)."""
        ...

    def gpu_options(self, count: int, first: int) -> tuple[str, ...]:
        """Options that spread the weights over `count` GPUs of the node, from the one with that number on."""
        ...

    def adapter_model(self, name: str, adapter: str) -> str:
        """The model that a request names to be answered with an adapter of the model served as `name`."""
        ...

    def weights(self, url: str, key: str) -> Weights:
        """Which weights the server at that address (without /v1) serves now. Raises ServingError."""
        ...

    def token_request(self, prompt: Sequence[int], sampling: Record) -> tuple[str, Record]:
        """Path and body of a request in token ids; `sampling` as for a chat."""
        ...

    def read_tokens(self, prompt: Sequence[int], answer: Any) -> TokenTurn:
        """The turn in the answer to such a request. Raises ModelLost (an answer in another form)."""
        ...

    def replace_weights(self, url: str, admin_key: str, weights: Weights, in_turns: bool = False) -> None:
        """Has the server at that address (without /v1) serve other weights. Raises ServingError.

        in_turns: turns that run go on with the new weights; else they end with the old ones first.
        """
        ...


def open_engine(name: str = DEFAULT_ENGINE) -> Engine:
    """The engine of that name. Raises InputError."""
    if name not in ENGINES:
        raise InputError(f"no inference engine is called {name!r}", expected=" or ".join(ENGINES))
    module, _, made = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), made)()
    return engine
