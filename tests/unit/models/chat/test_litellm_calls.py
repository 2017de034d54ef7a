"""Errors in responses with status 200, from services that LiteLLM calls."""

import pytest

from swelab.models.chat.litellm_calls import complete
from swelab.models.chat.litellm_errors import CallFault, read_fault
from swelab.models.service_words import Kind, final_fault
from tests.json_service import json_service

SERVICES = """amazon_nova anthropic anthropic_text azure_ai bedrock_mantle cloudflare cohere cohere_chat
cometapi compactifai databricks datarobot deepseek fireworks_ai gemini groq heroku hosted_vllm huggingface/x
lemonade maritalk minimax mistral ollama ollama_chat oobabooga openrouter/x ovhcloud snowflake together_ai/x
xai"""
"""Services for which LiteLLM has its own clients."""
MODELS = [
    *("openai/gpt-4o", "azure/gpt-4o", "perplexity/sonar", "deepinfra/x/y", "moonshot/kimi-k2"),
    *(f"{service}/y" for service in SERVICES.split()),
]


def fault_of(model, url):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011  each library has its own
        complete(model, [{"role": "user", "content": "a"}], "secret", url, {"max_tokens": 5})
    return read_fault(caught.value, "secret")


@pytest.mark.parametrize("model", MODELS)
def test_an_error_inside_an_answer_is_the_services_own(model, monkeypatch):
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    for error, kind, status in (
        ({"message": "Insufficient credits", "code": 402}, Kind.QUOTA, 402),
        ({"message": "No auth credentials found", "code": 401}, Kind.KEY, 401),
        ({"message": "Rate limit reached", "code": "rate_limit_exceeded"}, Kind.BUSY, 429),
    ):
        with json_service(lambda path, headers, body, error=error: (200, {"error": error})) as service:
            fault = fault_of(model, service.url)
        assert (fault.kind, fault.text, fault.status) == (kind, error["message"], status)


@pytest.mark.parametrize("model", ["cohere/y", "cohere_chat/y", "anthropic/y", "ollama/y"])
def test_a_service_s_own_words_tell_the_kind(model):
    for status, body, kind in (
        (400, "too many tokens: size limit exceeded by 11326 tokens", Kind.OVERFLOWED),
        (401, "invalid api token", Kind.KEY),
        (429, "You are using a Trial key, which is limited to 10 API calls / minute", Kind.BUSY),
        (500, "internal server error", Kind.PASSING),
    ):
        told = {"message": body}
        with json_service(lambda path, headers, _, answer=(status, told): answer) as service:
            fault = fault_of(model, service.url)
        assert (fault.kind, fault.text, fault.status) == (kind, body, status)


@pytest.mark.parametrize(
    ("kind", "helps"),
    [
        (Kind.WRONG, "another try does not help"),
        (Kind.FILTERED, "another try does not help"),
        (Kind.BUSY, "the same command tries it again"),
        (Kind.UNSURE, "the same command tries it again"),
    ],
)
def test_the_line_has_the_services_words_its_code_and_whether_a_new_try_helps(kind, helps):
    line = str(final_fault(kind, CallFault(kind, "not today", False, None, 418).words, "here"))
    assert "not today (HTTP 418); " in line and helps in line
