"""A paid model service over real HTTP: OpenAI's chat completions, Anthropic's messages, and their faults.

The service keeps its own books of requests and charges, so that tests can compare ours with them.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PRICE = {"input": 2.0, "output": 10.0, "cached_input": 0.5, "cache_write": 2.5}
"""Dollars per million tokens."""


def tokens(text):
    """Counts tokens as a service does. The result is always below the number of bytes."""
    return len(text.encode()) // 4 + 1


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Fault:
    """A refused request. charged: whether the request is on the bill, because the work was done."""

    def __init__(self, status, message="no", kind="error", headers=(), code=None, charged=False):
        self.status, self.headers, self.charged = status, dict(headers), charged
        self.body = {"type": "error", "error": {"type": kind, "message": message, "code": code}}


class Odd:
    """A faulty response with status 200.

    what: "cut", "stall", "drip" (seconds), "huge" (bytes), "html", "error", "no usage", "lies" or "no
    choices".
    """

    def __init__(self, what, seconds=0.0):
        self.what, self.seconds = what, seconds
        self.status, self.charged = 200, what != "error"


def say(turn, history):
    """Returns the command of a turn: three commands, then the submission.

    The shell prints a random number.
    """
    commands = ["date +%N", "sed -i 's/a - b/a + b/' calc/core.py; date +%N"]
    last = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    return f"Turn {turn}.\n```bash\n{commands[turn] if turn < len(commands) else last}\n```"


class Service:
    """A service.

    `plan(number, request)` returns a Fault, an Odd, or None for a normal response; numbers start at 0.
    """

    def __init__(self, plan=lambda number, request: None, speak=say, seconds=0.0, port=0):
        self.plan, self.speak, self.seconds = plan, speak, seconds
        self.requests, self.charged, self.under_way, self.most_at_once = [], 0, 0, 0
        self.lock = threading.Lock()
        self.calls = lambda turn: None
        self.thoughts = lambda turn: {}
        """Fields of a turn's message in OpenAI's form, or {"blocks": [...]} in Anthropic's."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                service.serve(self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                """Tests kill clients, so broken connections are no error."""

        self.server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        openai = handler.path.endswith("/chat/completions")
        key = handler.headers["Authorization"] if openai else handler.headers["x-api-key"]
        request = {"path": handler.path, "key": (key or "").removeprefix("Bearer "), "body": body}
        with self.lock:
            number = len(self.requests)
            self.requests.append(request | {"at": time.monotonic()})
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            time.sleep(self.seconds)
            self.answer(handler, openai, body, self.plan(number, request))
        finally:
            with self.lock:
                self.under_way -= 1

    def answer(self, handler, openai, body, fault):
        reply = self.reply(openai, body)
        if fault is None or fault.charged:
            self.charge(reply["counts"], body)
        if isinstance(fault, Fault):
            self.send(handler, fault.status, json.dumps(fault.body).encode(), fault.headers)
            return
        what = fault.what if fault else ""
        record = reply["openai" if openai else "anthropic"]
        if what == "stall":
            time.sleep(fault.seconds)
        elif what == "no usage":
            record.pop("usage")
        elif what == "no choices":
            record["choices"] = []
        elif what == "lies":
            record["usage"] = {"prompt_tokens": -5, "completion_tokens": 10**15, "total_tokens": 0}
        elif what == "error":
            record = {"error": {"message": "the provider behind is down", "code": 502}}
        data = json.dumps(record).encode()
        if what == "huge":
            data = data.replace(b"Turn", b"x" * fault.seconds)
        if what == "html":
            data = b"<html>maintenance</html>"
        self.send(handler, 200, data, {}, cut=what == "cut", drip=what == "drip" and fault.seconds)

    def reply(self, openai, body):
        history = [*([{"content": body["system"]}] if body.get("system") else []), *body["messages"]]
        prompt = sum(tokens(text_of(each)) + 4 for each in history)
        content = self.speak(sum(each.get("role") == "assistant" for each in history), history)
        turn = sum(each.get("role") == "assistant" for each in history)
        call, thoughts = self.calls(turn), dict(self.thoughts(turn))
        blocks = thoughts.pop("blocks", [])
        counts = {"prompt": prompt, "completion": min(tokens(content), body.get("max_tokens", 10**6))}
        counts["cached"] = self.cached(history, prompt)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        choice["message"] |= thoughts
        if call:
            told = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            choice["message"]["tool_calls"] = [{"id": call["id"], "type": "function", "function": told}]
        fresh = prompt - counts["cached"]
        counts["written"] = fresh if not openai and "cache_control" in json.dumps(body) else 0
        usage = {"prompt_tokens": prompt, "completion_tokens": counts["completion"]}
        usage["total_tokens"] = sum(usage.values())
        usage["prompt_tokens_details"] = {"cached_tokens": counts["cached"]}
        usage["completion_tokens_details"] = {"reasoning_tokens": 2 if thoughts else 0}
        told = {"input_tokens": fresh - counts["written"], "output_tokens": counts["completion"]}
        told["cache_creation_input_tokens"] = counts["written"]
        told["cache_read_input_tokens"] = counts["cached"]
        head = {"id": "x", "model": body["model"]}
        ended = {"stop_reason": "end_turn", "stop_sequence": None, "usage": told}
        parts = [*blocks, {"type": "text", "text": content}]
        if call:
            parts += [
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
            ]
        return {
            "counts": counts,
            "openai": head | {"object": "chat.completion", "created": 1, "choices": [choice], "usage": usage},
            "anthropic": head | {"type": "message", "role": "assistant", "content": parts} | ended,
        }

    def cached(self, history, prompt):
        """Returns the number of cached prompt tokens: those of an earlier prompt that begins the same way."""
        return 0

    def charge(self, counts, body):
        fresh = counts["prompt"] - counts["cached"] - counts["written"]
        kinds = (fresh, counts["completion"], counts["cached"], counts["written"])
        parts = zip(PRICE.values(), kinds, strict=True)
        with self.lock:
            self.charged += sum(price * count for price, count in parts) / 1e6

    def send(self, handler, status, data, headers, cut=False, drip=0):
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if cut:
            handler.wfile.write(data[: len(data) // 2])
            handler.close_connection = True
            return
        if drip:
            for byte in data:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(drip)
        handler.wfile.write(data if not drip else b"")
