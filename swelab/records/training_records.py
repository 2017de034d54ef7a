"""Records about training data: training conversations, and pairs of a better and a worse conversation."""

from typing import Any, Literal

from swelab.records.attempt_records import Message
from swelab.records.typed import Count, TypedRecord, field


class CalledFunction(TypedRecord):
    """The function name and the arguments of a tool call."""

    name: str = field("name of the tool")
    arguments: str = field("arguments of the call, a JSON object as text")


class ToolCall(TypedRecord):
    """A tool call in the format of the chat-completion API."""

    id: str = field("id of the call, which the answering message of the role tool repeats", default="")
    type: str = field("always function", default="function")
    function: CalledFunction = field("function that is called")


class ToolFunction(TypedRecord):
    """The name and the parameters of a tool."""

    name: str = field("name of the tool")
    parameters: dict[str, Any] = field("JSON Schema of the tool's arguments", default={})


class Tool(TypedRecord):
    """The definition of a tool in the format of the chat-completion API."""

    function: ToolFunction = field("name and parameters of the tool")


class RowMessage(Message):
    """One message of a training sample, with OpenAI roles."""

    role: Literal["system", "user", "assistant", "tool"] = field("role of the sender")
    content: str = field("text of the message")
    reasoning_content: str = field("thoughts, which the chat template writes", default="")
    weight: Literal[0, 1] = field("0 excludes a turn of the policy from the loss", default=1)
    tool_calls: list[ToolCall] = field("tool calls in the form of the chat-completion API", default=())
    tool_call_id: str = field("id of the call that this message answers", default="")


class SftRow(TypedRecord):
    """One training sample: a conversation with OpenAI roles."""

    messages: list[RowMessage] = field(
        "messages with the roles system, user, assistant, user, assistant, ...", minItems=2
    )
    instance_id: str = field("id of the task")
    policy: str = field("name of the policy", default="")
    sample: Count = field("number of the policy's attempt at the task; 0 if absent", default=0)
    tools: list[Tool] = field("definitions of the tools", default=())
    part: list[Any] = field("number of this row, and number of rows, if a conversation was split", default=())
    resolved: bool = field("false only if the recipe has selection.unresolved")


class LossRow(TypedRecord):
    """One optimizer step of a loss curve."""

    step: int = field("number of the step, from 1")
    loss: float = field("mean loss over the step's tokens with a loss weight")


class SftPair(TypedRecord):
    """One sample for preference learning: two conversations about the same task, with the same beginning."""

    chosen_conversations: list[RowMessage] = field("conversations of a resolved trajectory", minItems=2)
    rejected_conversations: list[RowMessage] = field("conversations of an unresolved trajectory", minItems=2)
    instance_id: str = field("id of the task")
    tools: list[Tool] = field("definitions of the tools", default=())
