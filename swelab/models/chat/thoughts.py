"""A model's thoughts: which fields of an answer hold them, and which of these go back to which service."""

import json
from typing import Any

from swelab.records import Record

SENT_BACK = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Fields of an answer, besides its text and calls, that some services want back in later requests."""
CALL_BACK = "extra_content"
"""Such a field of a tool call. It may have a signature of the model's thoughts."""

_ANTHROPIC = ("anthropic", "bedrock", "bedrock_converse", "vertex_ai", "azure_ai", "databricks")
_OPENAI = ("deepseek", "moonshot", "zai", "dashscope", "together_ai", "hosted_vllm")
BACK_THROUGH_LITELLM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_ANTHROPIC, ("thinking_blocks",)),
    **dict.fromkeys(_OPENAI, ("reasoning_content",)),
    "openai": SENT_BACK,
    "openrouter": ("reasoning_details", "reasoning"),
}
"""Maps LiteLLM's name of a service to the fields that go back to it. Other services get none through LiteLLM,
because some refuse unknown fields. A request that LiteLLM does not form takes back all fields that came."""


def fields_to_send_back(message: Any) -> Record:
    """Returns the fields SENT_BACK of a service's answer as plain JSON, unchanged and under the service's own
    names. LiteLLM keeps fields that it renamed in `provider_specific_fields`."""
    told = getattr(message, "provider_specific_fields", None)
    own = told if isinstance(told, dict) else {}
    found = {name: own.get(name) or getattr(message, name, None) for name in SENT_BACK}
    if own.get("reasoning") and not own.get("reasoning_content"):
        found["reasoning_content"] = None
    return {name: json.loads(json.dumps(value, default=vars)) for name, value in found.items() if value}


def keep_fields(message: Record, fields: tuple[str, ...]) -> Record:
    """Returns a message of a request without CALL_BACK, and without those fields of SENT_BACK that are not in
    `fields`."""
    found = {name: value for name, value in message.items() if name not in SENT_BACK or name in fields}
    if calls := found.get("tool_calls"):
        found["tool_calls"] = [{k: v for k, v in call.items() if k != CALL_BACK} for call in calls]
    return found
