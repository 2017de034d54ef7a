"""Schemas of OpenAI's chat completions and completions, as far as our servers support these requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, json

from swelab.http.refusal import Refused
from swelab.http.shapes import check_form
from swelab.models.serving.request_shapes import (
    MOST_PROMPTS,
    Alternatives,
    Limits,
    Name,
    Sampler,
    Seed,
    Shape,
    TokenId,
    Tokens,
)
from swelab.sampling_settings import EFFORTS

if TYPE_CHECKING:
    Effort = str
else:
    Effort = Literal[EFFORTS]
MOST_MESSAGES = 100_000
Bias = Annotated[dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)]


class Strict(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A part of a request. Unknown fields are rejected."""


class MessagePart(Struct, omit_defaults=True, kw_only=True):
    """A part of a conversation. Unknown fields are ignored. Clients send earlier responses back with extra
    fields (`annotations`, `provider_specific_fields`)."""


class StreamOptions(Strict, kw_only=True):
    """Options for the token counts in a stream."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Format(Strict, kw_only=True):
    """The response format.

    Only plain text is allowed, because the cost of compiling a grammar is unbounded.
    """

    type: Literal["text"]


class TextPart(MessagePart, kw_only=True):
    """A text in a message. Images and audio are rejected, because an engine would fetch any URL that a client
    sends."""

    type: Literal["text"]
    text: str


class CalledFunction(MessagePart, kw_only=True):
    """The function that a model called, and its arguments as JSON."""

    name: Name
    arguments: str


class Call(MessagePart, kw_only=True):
    """A tool call in a message of the model."""

    id: Name | None = None
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None


class Message(MessagePart, kw_only=True):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: Name | None = None
    tool_calls: Annotated[list[Call], Meta(max_length=256)] | None = None
    tool_call_id: Name | None = None
    reasoning_content: str | None = None


class Function(Strict, kw_only=True):
    """A function that a model may call."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict, kw_only=True):
    """A tool that a model may call."""

    type: Literal["function"]
    function: Function


class SamplingFields(Sampler, Shape, kw_only=True):
    """The fields that chat completions and completions share."""

    UNHEARD: ClassVar[tuple[str, ...]] = ("user",)

    model: Name | None = None
    logit_bias: Bias | None = None
    max_tokens: Tokens | None = None
    min_tokens: Tokens | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: Format | None = None
    user: str | None = None

    def check(self, limits: Limits) -> None:
        """See `Shape.check`."""
        limits.check_counts(max_tokens=self.max_tokens, min_tokens=self.min_tokens)
        if self.stop_token_ids:
            limits.check_ids(self.stop_token_ids, "stop_token_ids")
        if self.logit_bias:
            limits.check_ids(sorted(self.logit_bias), "logit_bias")


class Chat(SamplingFields, kw_only=True):
    """POST /v1/chat/completions."""

    UNHEARD: ClassVar[tuple[str, ...]] = ("user", "metadata", "store", "service_tier")

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    separate_reasoning: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[Literal["enable_thinking", "thinking"], bool] | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None

    def check(self, limits: Limits) -> None:
        """See `Shape.check`."""
        super().check(limits)
        limits.check_counts(max_completion_tokens=self.max_completion_tokens)
        for number, tool in enumerate(self.tools or ()):
            check_form(tool.function.parameters or {}, f"tools[{number}].function.parameters")
            if tool.function.strict:
                raise Refused(f"tools[{number}].function.strict: true is not supported; expected false")

    def beginning(self) -> Sequence[bytes]:
        """See `Shape.beginning`."""
        return [json.encode(message) for message in self.messages]


class Completion(SamplingFields, kw_only=True):
    """POST /v1/completions. Log-probabilities of the prompt need unbounded memory and are not supported."""

    prompt: str | list[Any]
    echo: bool | None = None
    logprobs: Alternatives | None = None

    def check(self, limits: Limits) -> None:
        """See `Shape.check`."""
        super().check(limits)
        if isinstance(self.prompt, list) and not all(isinstance(each, str) for each in self.prompt):
            limits.check_prompts(self.prompt, "prompt")
        elif len(self.prompt) > MOST_PROMPTS and not isinstance(self.prompt, str):
            raise Refused(f"prompt has {len(self.prompt)} texts; expected at most {MOST_PROMPTS}")
        elif not self.prompt or "" in self.prompt and isinstance(self.prompt, list):
            raise Refused("prompt is empty; expected a text or token ids")
        if self.echo and self.logprobs is not None:
            raise Refused(
                "logprobs with echo: log-probabilities of a prompt are not supported; expected one of the two"
            )

    def beginning(self) -> Sequence[bytes]:
        """See `Shape.beginning`."""
        return pieces(self.prompt)


def pieces(prompt: Any, size: int = 1024) -> list[bytes]:
    """Splits a prompt into pieces of `size` characters or token ids. Of several prompts, only the first is
    used."""
    while isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    parts = [prompt[at : at + size] for at in range(0, len(prompt), size)]
    return [json.encode(part) for part in parts]


OPENAI_SHAPES: dict[str, type[Shape]] = {"/v1/chat/completions": Chat, "/v1/completions": Completion}
