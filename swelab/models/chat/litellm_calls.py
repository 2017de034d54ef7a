"""Calls LiteLLM (version 1.103) with limited responses and without its terminal output."""

import logging
import os
import warnings
from functools import cache
from typing import Any

import httpx

from swelab.models.chat import bounded_http, openai_calls
from swelab.models.chat.thoughts import BACK_THROUGH_LITELLM, keep_fields
from swelab.records import InputError, Record, shorten

TRIAL = "a request that is not sent"
"""The text of the message in a request whose body is only looked at."""


@cache
def quiet_litellm() -> Any:
    """Imports litellm when first used, without its notices and price downloads."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    _lend_client(litellm)
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    # `read_usage` handles token counts that are not integers; a warning would only clutter the terminal.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    return litellm


def _lend_client(litellm: Any) -> None:
    """Makes LiteLLM use our HTTP client for every service. The client limits responses and keeps error texts.

    LiteLLM reaches some services through OpenAI's library, which accepts `client_session`, and other services
    through clients that LiteLLM makes itself.
    """
    from litellm.llms.custom_httpx.http_handler import HTTPHandler

    def create_client(handler: Any) -> httpx.Client:
        handler._owns_client = False  # LiteLLM closes only clients that it owns
        return openai_calls.client()

    litellm.client_session = openai_calls.client()
    setattr(HTTPHandler, "create_client", create_client)  # noqa: B010  a method of another program


@cache
def provider(model: str) -> tuple[str, str]:
    """Splits a model name such as openai/gpt-4o into (service, the service's name for the model). Raises
    InputError."""
    if openai_calls.is_plain(model):
        return "openai", model.partition("/")[2]
    litellm = quiet_litellm()
    try:
        name, service, *_ = litellm.get_llm_provider(model)
    except litellm.exceptions.BadRequestError:
        expected = "<service>/<model> as LiteLLM knows them, such as openai/gpt-4o"
        raise InputError(f"no service is known for the model {model!r}", expected=expected) from None
    return service, name


def listed_price(model: str) -> Record:
    """Returns a model's entry in LiteLLM's price table, for the service in the name, or {} if there is no
    entry."""
    if openai_calls.is_plain(model):
        return {}
    litellm = quiet_litellm()
    try:
        found: Record = litellm.model_cost[litellm.get_model_info(model)["key"]]
        return found
    except Exception:  # LiteLLM raises bare Exception for an unknown model
        return {}


def unsupported_settings(
    model: str, sampling: Record, further: Record, base: str | None = None
) -> dict[str, str]:
    """Returns the reasons why some settings are not sent to the model, keyed by setting.

    Either LiteLLM says that the service does not take the setting, or LiteLLM's request is the same without
    it. further: fields of `extra_body`. max_tokens is not compared, because a value may be the service's
    default.
    """
    if openai_calls.is_plain(model):
        return {}
    litellm = quiet_litellm()
    service, name = provider(model)
    reasons = {}
    for key, value in sampling.items():
        try:
            litellm.utils.get_optional_params(
                model=name, custom_llm_provider=service, drop_params=False, **{key: value}
            )
        except litellm.exceptions.UnsupportedParamsError as error:
            reasons[key] = shorten(
                str(error).removeprefix("litellm.UnsupportedParamsError: ").partition(" To ")[0]
            )
    left = {name: value for name, value in sampling.items() if name not in reasons}
    whole = trial_body(model, base, left | {"extra_body": further})
    for name in [*left, *further] if whole else ():
        rest = {each: value for each, value in left.items() if each != name}
        fewer = {each: value for each, value in further.items() if each != name}
        if name != "max_tokens" and trial_body(model, base, rest | {"extra_body": fewer}) == whole:
            reasons[name] = f"LiteLLM leaves it out of requests to {service}"
    return reasons


def trial_body(model: str, base: str | None, sampling: Record) -> bytes:
    """Returns the body of the request that LiteLLM would send, but sends nothing. Returns b"" if LiteLLM
    fails before, for example without credentials."""
    with openai_calls.nothing_sent() as bodies:
        try:
            complete(model, [{"role": "user", "content": TRIAL}], "none", base, sampling)
        except Exception:  # LiteLLM wraps the exception that ends the trial
            return next((body for body in bodies if TRIAL.encode() in body), b"")
    return b""


def complete(
    model: str, messages: list[Record], secret: str | None, base: str | None, sampling: Record
) -> Any:
    """Sends one request, without retries. Raises exceptions of LiteLLM or httpx; see
    `litellm_errors.read_fault`."""
    if secret and base and openai_calls.can_send(model, messages, secret, base):
        return openai_calls.complete(model, messages, secret, base, sampling)
    litellm, service = quiet_litellm(), provider(model)[0]
    back = BACK_THROUGH_LITELLM.get(service, ())
    if service not in ("openai", "azure", "text-completion-openai", *litellm.openai_compatible_providers):
        further = sampling.get("extra_body") or {}
        named = {name: each for name, each in sampling.items() if name != "extra_body"}
        sampling = named | further | ({"allowed_openai_params": [*further]} if further else {})
    return litellm.completion(
        model=model,
        messages=[keep_fields(message, back) for message in messages],
        api_key=secret,
        api_base=base,
        timeout=bounded_http.ANSWER_SECONDS,
        max_retries=0,
        num_retries=0,
        drop_params=False,
        **sampling,
    )
