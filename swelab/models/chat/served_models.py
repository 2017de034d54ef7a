"""Models on our own or a site's servers, with mini-swe-agent's Model protocol (mini-swe-agent 2.4).

`ChatModel` uses an OpenAI-compatible endpoint. A request with a temporary fault is retried. After the last
attempt, ModelLost is raised. If the context is too long, ContextLimit is raised. If the service refuses,
InputError is raised. Models that cost money are in `hosted`.
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import ModelLost, ServingError
from swelab.models.billing.paid_turns import request_message
from swelab.models.billing.prices import TokenCounts, read_usage
from swelab.models.chat.error_bodies import broke_off, message_in, refused_setting, show_refusal
from swelab.models.chat.text_model import TextModel
from swelab.models.chat.thoughts import fields_to_send_back
from swelab.models.chat.tool_calls import plain_calls
from swelab.models.chat.turn_text import with_texts
from swelab.models.service_words import Ends, Kind, final_fault, judge, was_answered
from swelab.models.serving.server import Endpoint
from swelab.patience import SERVED, Patience, repeat, retry_after
from swelab.records import Record, shorten
from swelab.records.training_records import ToolCall
from swelab.sampling_settings import chat_fields

if TYPE_CHECKING:
    import openai  # takes a second of CPU to load; scripted policies do not need it

ANSWER_SECONDS = 900
Given = TypeVar("Given")


class Answer(NamedTuple):
    """One assistant turn, its token counts, and the fields that later requests send back."""

    content: str
    finish_reason: str
    usage: TokenCounts
    tool_calls: list[ToolCall]
    sent_back: Record


class ChatModel(TextModel):
    """A model behind an OpenAI-compatible endpoint. sampling, origins: see `TextModel`."""

    def __init__(
        self,
        endpoint: Endpoint,
        scaffold: MiniLoop,
        sampling: Record,
        origins: Mapping[str, str] = MappingProxyType({}),
    ):
        super().__init__(scaffold, endpoint.model, sampling, origins)
        self.endpoint = endpoint

    def ask(self, messages: list[Record]) -> Answer:
        """Sends one request. Raises openai.OpenAIError."""
        chat: Any = client(self.endpoint.url, self.endpoint.api_key).chat.completions
        fields = chat_fields(self.sampling)
        return read(chat.create(model=self.name, messages=messages, extra_body=fields, **self.offered))

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the next assistant message. `extra` has its command, tokens, finish reason, cost and
        seconds.

        Raises FormatError if the answer does not contain one command, and ContextLimit, ModelLost,
        ServingError, InputError.
        """
        sent = [request_message(message) for message in messages if message["role"] != "exit"]
        history = with_texts(sent)
        began = time.monotonic()
        again = was_answered(history)
        end = self.endpoint
        answer = persist(lambda: self.ask(history), end.alive, end.url, again, self.sampling)
        facts = {"usage": answer.usage, "finish_reason": answer.finish_reason}
        facts |= {"sent_back": answer.sent_back} if answer.sent_back else {}
        seconds = round(time.monotonic() - began, 3)
        return self.reply(answer.content, answer.tool_calls, **facts, seconds=seconds)


@cache
def client(url: str, api_key: str) -> "openai.OpenAI":
    """Returns the client for the service at `url`. All models at that URL share the client."""
    import openai

    base = url.rstrip("/")
    base = base if base.endswith("/v1") else f"{base}/v1"
    hooked = openai.DefaultHttpxClient(timeout=ANSWER_SECONDS, event_hooks={"response": [show_refusal]})
    return openai.OpenAI(base_url=base, api_key=api_key or "none", max_retries=0, http_client=hooked)


def read(response: Any) -> Answer:
    """Returns the first choice of a chat completion. Raises ModelLost if there is none."""
    if not getattr(response, "choices", None):
        raise ModelLost(f"an answer without choices: {shorten(str(response))}")
    try:
        choice, counts = response.choices[0], read_usage(response)
        if broke_off(choice.finish_reason):
            raise ModelLost(f"the answer broke off ({choice.finish_reason})")
        return Answer(
            content=choice.message.content or "",
            finish_reason=str(choice.finish_reason),
            usage=counts.record() if counts else TokenCounts(prompt_tokens=0, completion_tokens=0),
            tool_calls=plain_calls(choice.message.tool_calls),
            sent_back=fields_to_send_back(choice.message),
        )
    except (AttributeError, LookupError, TypeError):
        raise ModelLost(f"an answer in another form: {shorten(str(response))}") from None


def persist(
    ask: Callable[[], Given],
    alive: Callable[[], bool],
    address: str,
    answered: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Given:
    """Calls `ask` until a call succeeds.

    Stops at a permanent fault, after the last attempt, or if the server is not `alive`. answered: see
    `service_words.judge`. settings: the sampling settings of the request.

    Raises ServingError if our server has ended, and ModelLost if all attempts failed or the service refuses
    this conversation. Raises InputError if the service refuses the key or the model's name, and
    SettingRefused if it refuses a setting. Raises ContextLimit.
    """
    import openai

    patience = Patience(SERVED)

    def pause(error: Exception) -> float | None:
        if _kind(error, answered).ends != Ends.CALL or not alive():
            return None
        return patience.next_pause(wish=min(_wish(error), SERVED.longest))

    try:
        return repeat(ask, Exception, pause)
    except (openai.OpenAIError, json.JSONDecodeError) as error:
        text, kind = shorten(_reason(error)), _kind(error, answered)
        if not alive():
            raise ServingError(f"the model server at {address} has ended: {text}") from None
        if kind.ends == Ends.CALL:
            text = f"no answer in {SERVED.attempts} attempts: {text}"
        response = getattr(error, "response", None)
        setting = refused_setting(response.text, settings) if response is not None else ""
        raise final_fault(kind, text, address, setting) from None


def _wish(error: Exception) -> float:
    """Returns the seconds that the service asks to wait before a retry, or 0 if it does not ask."""
    response = getattr(error, "response", None)
    return (retry_after(response.headers) or 0.0) if response is not None else 0.0


def _reason(error: Exception) -> str:
    """Returns the service's error message if the response has one, otherwise the error's text."""
    response = getattr(error, "response", None)
    return message_in(response.text) if response is not None else str(error)


def _kind(error: Exception, answered: bool) -> Kind:
    """Returns the kind of a fault. Connection errors, timeouts and responses that are not JSON may pass."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return judge(error.status_code, error.response.text, answered=answered)
    passes = isinstance(error, openai.APIConnectionError | json.JSONDecodeError)
    return Kind.PASSING if passes else Kind.WRONG
