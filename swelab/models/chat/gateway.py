"""A local OpenAI-compatible proxy of a hosted model, for programs that make their own requests (SWE-agent).

The program gets a token of ours and an OpenAI-compatible address on the loopback; keys, rates, price, budget,
cache marks and sampling are those of the policy, and each call is metered like any other (`Service`). Of
the program's settings only messages and tools count; others are refused unless the policy has the same.
"""

import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from swelab.configs.kinds.policy import Sampling
from swelab.models import BudgetSpent, ContextLimit
from swelab.models.billing.prices import TokenCounts
from swelab.models.chat.hosted import Service, Talk
from swelab.models.chat.litellm_calls import listed_price
from swelab.models.serving.server import Endpoint
from swelab.records import Fault, InputError, Record, digest, shorten

BODY_BYTES = 64 << 20
DEEPEST = 64
"""Lists and objects within each other in a request."""
TALKS = 4096
"""Conversations that are known at a time: of an older one tokens are counted anew."""
LAST_CALLS_SECONDS = 120
"""A spent budget ends the program when for so long no call went through: others may still have room."""
OFFERED = ("tools", "tool_choice", "parallel_tool_calls")
READ = ("model", "messages", "user", "metadata", *OFFERED)
"""Fields that a request may hold besides sampling: they are heeded, or change no answer."""
SAYS_NOTHING = {
    "stream": False,
    "n": 1,
    "logprobs": False,
    "store": False,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
}
"""Settings that a request may hold only with the value that they have here."""
FULL = "This model's maximum context length is reached: "
"""Words by which LiteLLM knows a full context."""


class NotACall(InputError):
    """A request that is not one of OpenAI's chat completions: its shape, its nesting."""


class NotDone(InputError):
    """A request holds a setting `name` that is not supported here."""

    def __init__(self, name: str, value: Any, expected: str):
        super().__init__(f"{name}: {shorten(json.dumps(value))} is not done here", expected=expected)
        self.name = name


STATUS = {BudgetSpent: 403, ContextLimit: 400, NotDone: 400, NotACall: 400, InputError: 401}
"""HTTP status by fault: 401 for what the service refuses, at which SWE-agent ends. Every other fault is 503,
after which SWE-agent asks again."""


class Gateway:
    """Answers a program's calls by a `Service`; safe to call from many threads."""

    def __init__(self, service: Service, name: str):
        self.service, self.name = service, name
        self.token = secrets.token_hex(16)
        self._talks: OrderedDict[str, Talk] = OrderedDict()
        self._lock = threading.Lock()
        self._last = time.monotonic()

    def alive(self) -> bool:
        """False once the budget is spent and no call has fitted into it for LAST_CALLS_SECONDS."""
        return not self.service.spent or time.monotonic() < self._last + LAST_CALLS_SECONDS

    def answer(self, body: Any) -> Record:
        """A chat completion in OpenAI's form. Raises NotACall (not a request), NotDone (a setting that is
        not supported), and what `Service.answer` does.
        """
        history, offered = asked(body, self.service.sampling)
        found = self.service.answer(history, self._talk(history, offered), lambda _: None)
        self._last = time.monotonic()
        message: Record = {"role": "assistant", "content": found.content}
        message |= {"tool_calls": found.tool_calls} if found.tool_calls else {}
        return {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.name,
            "choices": [{"index": 0, "finish_reason": found.finish_reason, "message": message}],
            "usage": openai_usage(found.usage),
        }

    def _talk(self, history: list[Record], offered: Record) -> Talk:
        """The record of the conversation that begins with the first two messages of `history`."""
        key = digest([history[:2], offered])
        with self._lock:
            talk = self._talks.setdefault(key, Talk(offered))
            self._talks.move_to_end(key)
            while len(self._talks) > TALKS:
                self._talks.popitem(last=False)
        return talk


def asked(body: Any, sampling: Sampling) -> tuple[list[Record], Record]:
    """The messages of a request, each content a text, and the tools that it offers. Raises NotACall, NotDone.

    sampling: the policy's, which a request may repeat.
    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise NotACall("a request without messages", expected="OpenAI's chat completions")
    check_depth(body)
    done = SAYS_NOTHING | sampling.plain() | {"max_completion_tokens": sampling.max_tokens}
    for name in sorted(body.keys() - set(READ)):
        if (value := body[name]) not in (None, [], {}) and (
            name not in done or not is_same(value, done[name])
        ):
            expected = f"{json.dumps(done[name])}, or nothing" if name in done else "a request without it"
            raise NotDone(name, value, expected)
    for name, kind, expected in (("model", str, "a text"), ("tools", list, "a list of tools")):
        if not isinstance(body.get(name), kind | None):
            raise NotACall(f"{name} is {shorten(json.dumps(body[name]))}", expected=expected)
    history = [{**each, "content": text_of(each.get("content"))} for each in messages]
    return history, {name: body[name] for name in OFFERED if body.get(name) is not None}


def is_same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; true is no number."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def check_depth(body: Any, deepest: int = DEEPEST) -> None:
    """Raises NotACall for a value whose lists and objects lie deeper within each other."""
    level = [body]
    for _ in range(deepest + 1):
        parts = [each.values() if isinstance(each, dict) else each for each in level]
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return
    raise NotACall("a request that is nested too deeply", expected=f"at most {deepest} levels")


def text_of(content: Any) -> str:
    """A message's content as one text. Raises NotACall for anything but text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise NotACall("a message with content that is not text", expected="text")
    return "".join(part["text"] for part in parts)


def openai_usage(usage: TokenCounts | None) -> Record:
    """Token counts under OpenAI's names; zeros where the service gave none."""
    told = usage or TokenCounts(prompt_tokens=0, completion_tokens=0)
    prompt, completion = told.prompt_tokens, told.completion_tokens
    found = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    cached = {"prompt_tokens_details": {"cached_tokens": told.cached_tokens}}
    return found | (cached if told.cached_tokens else {})


def listed_as(service: Service, name: str) -> Record:
    """A registry for LiteLLM by which `openai/<name>` costs and holds what the policy's model does."""
    known = {"mode": "chat", "supports_function_calling": True, **listed_price(service.model)}
    rates = {key: value for key, value in known.items() if "cost" not in key}
    price = service.meter.price
    rates |= price.rates if price else {"input_cost_per_token": 0, "output_cost_per_token": 0}
    return {f"openai/{name}": {**rates, "litellm_provider": "openai"}}


@contextmanager
def open_gateway(service: Service, name: str) -> Iterator[Endpoint]:
    """The address of a `Gateway` on the loopback while the block runs, and its token."""
    gateway = Gateway(service, name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(gateway))
    server.daemon_threads = False  # closing waits for calls under way: they are paid
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", gateway.token, name, gateway.alive)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60
        """Seconds that a client may take to ask; a connection is one call."""

        def do_POST(self) -> None:
            """One call."""
            given = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {gateway.token}".encode()):
                return self._send(401, _fault("wrong token"))
            try:
                size = int(self.headers.get("Content-Length", ""))
            except ValueError:
                size = -1
            if not 0 < size <= BODY_BYTES or self.path != "/v1/chat/completions":
                return self._send(404, _fault("not a call of /v1/chat/completions"))
            return self._send(*reply(gateway, self.rfile.read(size)))

        def _send(self, status: int, record: Record) -> None:
            data = json.dumps(record).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # it did not wait; the call is paid and counted

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return Handler


def reply(gateway: Gateway, text: bytes) -> tuple[int, Record]:
    """(status, answer) to the body of a call."""
    try:
        body = json.loads(text)
    except ValueError:
        return 400, _fault("not JSON")
    except RecursionError:
        return 400, _fault(f"nested too deeply; expected at most {DEEPEST} levels")
    try:
        return 200, gateway.answer(body)
    except Fault as error:
        status = next((STATUS[kind] for kind in STATUS if isinstance(error, kind)), 503)
        told = (FULL if isinstance(error, ContextLimit) else "") + str(error)
        return status, _fault(told, status, error.name if isinstance(error, NotDone) else None)


def _fault(text: str, status: int = 400, name: str | None = None) -> Record:
    code = "context_length_exceeded" if text.startswith(FULL) else str(status)
    code = "unsupported_parameter" if name else code
    return {"error": {"message": text, "type": "swelab", "param": name, "code": code}}
