"""The interface of an inference engine, which is the program that serves weights.

`server.py` starts an engine, waits until it is ready, and stops it. `fleet.py` keeps it running, on this node
or on other nodes. Neither module depends on the kind of engine. To add an engine, write a class like
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
"""Default cache size of a server on a CPU, in tokens."""
DEFAULT_ENGINE = "sglang"
ENGINES = {"sglang": "swelab.models.serving.sglang_engine:Sglang"}


@dataclass(frozen=True)
class ServerSettings:
    """The validated settings of a model server.

    folder: a complete checkpoint in Hugging Face layout. config: the folder's config.json. context_length,
    max_total_tokens: in tokens. If max_total_tokens is None, the engine's default is used. key: needed for
    requests. admin_key: needed to replace weights. Clients have neither key (see `gate`). adapters: maps
    names to LoRA folders. extra_args: further options of the engine. python: interpreter of the environment
    in which the engine is installed. reasoning_parser: the engine's parser that separates thoughts from a
    turn's text; '' leaves them in the text.
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
    reasoning_parser: str = ""


@dataclass(frozen=True)
class Program:
    """The command that starts an engine.

    arguments: makes the command line from the path of a private folder, which contains `files`. The access
    token is in one of these files, because every user can read a command line.
    """

    arguments: Callable[[str], list[str]]
    environment: dict[str, str]
    files: dict[str, bytes]


@dataclass(frozen=True)
class Weights:
    """Weights of a running server: their folder and their version label."""

    folder: Path
    version: str


class Engine(Protocol):
    """A program that serves a model at /v1 as OpenAI does. On SIGINT it finishes its running requests and
    ends."""

    listens: str
    """Path that returns 200, even without a token, as soon as the server listens."""
    generates: str
    """Path that returns 200 while the server generates tokens."""
    refused_options: tuple[str, ...]
    """Options that a user may not set: the library sets them, or they contain a secret."""
    shapes: Mapping[str, type[Shape]]
    """Maps each allowed path to the schema of its requests. The gate rejects all other requests."""

    def program(self, settings: ServerSettings, port: int) -> Program:
        """Returns the command that starts a server at `port`. Raises InputError for an unusable adapter, and
        ServingError if the engine is not installed."""
        ...

    def gpu_options(self, count: int, first: int) -> tuple[str, ...]:
        """Returns options that spread the weights over `count` GPUs of the node, starting with GPU number
        `first`."""
        ...

    def adapter_model(self, name: str, adapter: str) -> str:
        """Returns the model name by which a request selects an adapter of the model `name`."""
        ...

    def weights(self, url: str, key: str) -> Weights:
        """Returns the weights that the server at `url` (without /v1) serves now. Raises ServingError."""
        ...

    def token_request(self, prompt: Sequence[int], sampling: Record) -> tuple[str, Record]:
        """Returns (path, body) of a generation request with token ids. sampling: as for a chat completion."""
        ...

    def read_tokens(self, prompt: Sequence[int], answer: Any) -> TokenTurn:
        """Parses the response to a request of `token_request`. Raises ModelLost if the response is
        malformed."""
        ...

    def replace_weights(self, url: str, admin_key: str, weights: Weights, in_turns: bool = False) -> None:
        """Makes the server at `url` (without /v1) serve new weights. Raises ServingError. in_turns: whether
        running turns continue with the new weights. Otherwise they first finish with the old weights."""
        ...


def open_engine(name: str = DEFAULT_ENGINE) -> Engine:
    """Returns the engine called `name`. Raises InputError if there is none."""
    if name not in ENGINES:
        raise InputError(f"no inference engine is called {name!r}", expected=" or ".join(ENGINES))
    module, _, made = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), made)()
    return engine
