"""Records about training data: training conversations, and pairs of a better and a worse conversation."""

from typing import Any, Literal

from swelab.records.attempt_records import Message
from swelab.records.typed import Count, TypedRecord, field


class Called(TypedRecord):
    """The function name and the arguments of a tool call."""

    name: str = field("which tool")
    arguments: str = field("its arguments, a JSON object as text")


class ToolCall(TypedRecord):
    """A tool call in the format of the chat-completion API."""

    id: str = field("its name, by which a message of the role tool answers it", default="")
    type: str = field("always function", default="function")
    function: Called = field("what is called")


class ToolFunction(TypedRecord):
    """The name and the parameters of a tool."""

    name: str = field("which tool")
    parameters: dict[str, Any] = field("JSON Schema of its arguments", default={})


class Tool(TypedRecord):
    """The definition of a tool in the format of the chat-completion API."""

    function: ToolFunction = field("its name and parameters")


class RowMessage(Message):
    """One message of a training sample, with OpenAI roles."""

    role: Literal["system", "user", "assistant", "tool"] = field("who speaks")
    content: str = field("what is said")
    weight: Literal[0, 1] = field("0 leaves a turn of the policy out of the loss", default=1)
    tool_calls: list[ToolCall] = field("calls in the chat-completion API's form", default=())
    tool_call_id: str = field("the call that is answered", default="")


class SftRow(TypedRecord):
    """One training sample: a conversation with OpenAI roles."""

    messages: list[RowMessage] = field("system, user, assistant, user, assistant ...", minItems=2)
    instance_id: str = field("the task")
    policy: str = field("who acted", default="")
    sample: Count = field("which of the policy's attempts at the task; 0 when not there", default=0)
    tools: list[Tool] = field("definitions of the tools that are called", default=())
    part: list[Any] = field(
        "number of this row and count of the rows that a conversation was split into", default=()
    )
    resolved: bool = field("false only where the recipe has selection.unresolved")


class LossRow(TypedRecord):
    """One optimizer step of a loss curve."""

    step: int = field("number, from 1")
    loss: float = field("mean over the step's tokens with loss")


class SftPair(TypedRecord):
    """One sample for preference learning: two conversations about the same task, with the same beginning."""

    chosen_conversations: list[RowMessage] = field("of a resolved trajectory", minItems=2)
    rejected_conversations: list[RowMessage] = field("of one that did not resolve it", minItems=2)
    instance_id: str = field("the task")
    tools: list[Tool] = field("definitions of the tools that are called", default=())
