"""Runs a local OpenAI-compatible proxy for a hosted model.

SWE-agent needs it, because it sends its own requests.

The program gets a token of this proxy and a URL on the loopback interface. The policy determines keys, rates,
price, budget, cache marks and sampling. `Service` meters each call as usual. A request may contain messages
and tools. Any other setting is rejected if its value differs from the policy's value.
"""

import asyncio
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from swelab.configs.kinds.sampling import Sampling
from swelab.http.front_door import AT_ONCE, FrontDoor
from swelab.http.refusal import Refused
from swelab.http.run_server import in_background
from swelab.http.shapes import check_form
from swelab.models import BudgetSpent, ContextLimit
from swelab.models.billing.prices import TokenCounts
from swelab.models.chat.hosted import Service, Talk
from swelab.models.chat.litellm_calls import listed_price
from swelab.models.serving.server import Endpoint
from swelab.records import Fault, InputError, Record, digest, shorten

BODY_BYTES = 64 << 20
DEEPEST, MOST_VALUES = 64, 1 << 20
"""Limits of a request: its nesting depth, and the number of values on one level."""
TALKS = 4096
"""Maximum number of conversations in memory. If a forgotten conversation continues, its tokens are counted
anew."""
LAST_CALLS_SECONDS = 120
"""Number of seconds without a possible call, after the budget is spent, before the program is ended."""
OFFERS = ("tools", "tool_choice", "parallel_tool_calls")
READ = ("model", "messages", "user", "metadata", *OFFERS)
"""Fields that a request may have besides sampling settings. Some of them have no effect."""
SAYS_NOTHING = {
    "stream": False,
    "n": 1,
    "logprobs": False,
    "store": False,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
}
"""Settings that a request may have, but only with these values."""
FULL = "This model's maximum context length is reached: "
"""The phrase in an error message by which LiteLLM recognises that the context is full."""


class NotDone(Refused):
    """A request has a setting `name` that the gateway does not support."""

    def __init__(self, name: str, value: Any, expected: str):
        super().__init__(f"{name}: {shorten(json.dumps(value))} is not done here; expected {expected}")
        self.name = name


STATUS = {BudgetSpent: 403, ContextLimit: 400, InputError: 401}
"""Maps faults to HTTP statuses. 401 means that the service refused the request, and SWE-agent ends. Faults
that are not listed become 503, and SWE-agent retries."""


class Gateway:
    """Answers a program's calls with a `Service`. Thread-safe."""

    def __init__(self, service: Service, name: str):
        self.service, self.name = service, name
        self.token = secrets.token_hex(16)
        self._talks: OrderedDict[str, Talk] = OrderedDict()
        self._lock = threading.Lock()
        self._last = time.monotonic()

    def alive(self) -> bool:
        """Returns whether the program should continue. This becomes False when the budget is spent and no
        call has been possible for LAST_CALLS_SECONDS."""
        return not self.service.spent or time.monotonic() < self._last + LAST_CALLS_SECONDS

    def answer(self, body: Any) -> Record:
        """Returns the chat completion for a request, in OpenAI's format. Raises Refused for a malformed
        request, NotDone for an unsupported setting, and the errors of `Service.answer`."""
        history, offer = read_call(body, self.service.sampling)
        turn = self.service.answer(history, self._talk(history, offer), lambda _: None)
        self._last = time.monotonic()
        message: Record = {"role": "assistant", "content": turn.content, **turn.sent_back}
        message |= {"tool_calls": turn.tool_calls} if turn.tool_calls else {}
        return {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.name,
            "choices": [{"index": 0, "finish_reason": turn.finish_reason, "message": message}],
            "usage": openai_usage(turn.usage),
        }

    def _talk(self, history: list[Record], offer: Record) -> Talk:
        """Returns the state of the conversation that begins with the first two messages of `history`."""
        key = digest([history[:2], offer])
        with self._lock:
            talk = self._talks.setdefault(key, Talk(offer))
            self._talks.move_to_end(key)
            while len(self._talks) > TALKS:
                self._talks.popitem(last=False)
        return talk


def read_call(body: Any, sampling: Sampling) -> tuple[list[Record], Record]:
    """Returns (messages with text contents, offered tools) of a request. Raises Refused, NotDone. sampling:
    settings of the policy, which a request may repeat."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refused("a request without messages; expected OpenAI's chat completions")
    check_form(body, "the request", DEEPEST, MOST_VALUES)
    accepted = SAYS_NOTHING | sampling.plain() | {"max_completion_tokens": sampling.max_tokens}
    for name in sorted(body.keys() - set(READ)):
        if (value := body[name]) not in (None, [], {}) and (
            name not in accepted or not is_same(value, accepted[name])
        ):
            expected = (
                f"{json.dumps(accepted[name])}, or nothing" if name in accepted else "a request without it"
            )
            raise NotDone(name, value, expected)
    for name, kind, expected in (("model", str, "a text"), ("tools", list, "a list of tools")):
        if not isinstance(body.get(name), kind | None):
            raise Refused(f"{name} is {shorten(json.dumps(body[name]))}; expected {expected}")
    history = [{**each, "content": text_of(each.get("content"))} for each in messages]
    return history, {name: body[name] for name in OFFERS if body.get(name) is not None}


def is_same(value: Any, other: Any) -> bool:
    """Returns whether two settings are equal. A boolean never equals a number."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def text_of(content: Any) -> str:
    """Returns a message's content as one text. Raises Refused if the content is not text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise Refused("a message with content that is not text; expected text")
    return "".join(part["text"] for part in parts)


def openai_usage(usage: TokenCounts | None) -> Record:
    """Returns token counts under OpenAI's names, or zeros if the service reported none."""
    counts = usage or TokenCounts(prompt_tokens=0, completion_tokens=0)
    prompt, completion = counts.prompt_tokens, counts.completion_tokens
    record: Record = {"prompt_tokens": prompt, "completion_tokens": completion}
    record["total_tokens"] = prompt + completion
    if counts.cached_tokens:
        record["prompt_tokens_details"] = {"cached_tokens": counts.cached_tokens}
    if counts.reasoning_tokens:
        record["completion_tokens_details"] = {"reasoning_tokens": counts.reasoning_tokens}
    return record


def litellm_registry(service: Service, name: str) -> Record:
    """Returns a LiteLLM registry that gives `openai/<name>` the prices and limits of the policy's model."""
    facts = {"mode": "chat", "supports_function_calling": True, **listed_price(service.model)}
    rates = {key: value for key, value in facts.items() if "cost" not in key}
    price = service.meter.price
    rates |= price.rates if price else {"input_cost_per_token": 0, "output_cost_per_token": 0}
    return {f"openai/{name}": {**rates, "litellm_provider": "openai"}}


@contextmanager
def open_gateway(service: Service, name: str) -> Iterator[Endpoint]:
    """Runs a `Gateway` on the loopback interface during the block, and yields its address and token. At the
    end, the block waits for running calls, because they are paid for."""
    gateway = Gateway(service, name)
    with ThreadPoolExecutor(AT_ONCE, "gateway") as threads, in_background(_door(gateway, threads)) as url:
        yield Endpoint(f"{url}/v1", gateway.token, name, gateway.alive)


def _door(gateway: Gateway, threads: ThreadPoolExecutor) -> FrontDoor:
    async def complete(request: Request) -> Response:
        bodies = request.scope["door"].bodies
        with bodies.memory() as memory:
            data = await bodies.read(request, BODY_BYTES, memory)
            answer = asyncio.get_running_loop().run_in_executor(threads, _complete, gateway, data)
            return JSONResponse(await answer)

    routes = [Route("/v1/chat/completions", complete, methods=["POST"])]
    return FrontDoor(routes, {"program": [gateway.token]}, error_answer, [Fault], body_bytes=4 * BODY_BYTES)


def _complete(gateway: Gateway, data: bytes) -> Record:
    try:
        body = json.loads(data)
    except ValueError:
        raise Refused("the body is not JSON") from None
    except RecursionError:
        raise Refused(f"the request is nested too deeply; expected at most {DEEPEST} levels") from None
    return gateway.answer(body)


def error_answer(error: Exception) -> Response:
    """Returns the error response in OpenAI's format."""
    status, text = next((STATUS[kind] for kind in STATUS if isinstance(error, kind)), 503), str(error)
    status = error.status if isinstance(error, Refused) else status if isinstance(error, Fault) else 500
    name = error.name if isinstance(error, NotDone) else None
    code = "unsupported_parameter" if name else str(status)
    if isinstance(error, ContextLimit):
        text, code = FULL + text, "context_length_exceeded"
    return JSONResponse({"error": {"message": text, "type": "swelab", "param": name, "code": code}}, status)
