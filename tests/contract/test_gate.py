"""The gate of model servers with unauthenticated, rude and many clients. The engines are stand-ins."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from swelab.models.serving import gate_process
from swelab.models.serving.gate_process import GateProcess, GateSettings
from tests.contract.attacks import PATIENCE, until
from tests.contract.standin_engine import KEY, StandinEngine

pytestmark = pytest.mark.alone

TOKEN = "the clients' token"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
SAID = [{"role": "user", "content": "Mend it."}]
CONTEXT, VOCABULARY = 512, 320
CLIENT = httpx.Client(timeout=PATIENCE, trust_env=False)


class Front:
    """A gate process and the engines behind it."""

    def __init__(self, folder):
        self.engines = [StandinEngine("a"), StandinEngine("b")]
        self.log = folder / "gate.log"
        settings = GateSettings(
            host="127.0.0.1",
            port=None,
            token=TOKEN,
            engine="sglang",
            engine_key=KEY,
            urls=[engine.url for engine in self.engines],
            names=["toy", "toy:tuned"],
            context_length=CONTEXT,
            vocabulary=VOCABULARY,
            drain_seconds=5,
        )
        self.gate = GateProcess(settings, self.log)
        self.url = self.gate.url

    def seen(self):
        return [each for engine in self.engines for each in engine.seen]

    def ask(self, path=CHAT, body=None, **settings):
        body = {"messages": SAID} if body is None else body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return CLIENT.post(self.url + path, content=content, **{"headers": SHOWN, **settings})

    def raw(self, text, seconds=PATIENCE):
        """Sends a text on a new connection and returns the response."""
        address = ("127.0.0.1", int(self.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=seconds) as client:
            client.sendall(text)
            return client.recv(65536)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_process, "READY_SECONDS", 10 * PATIENCE)
        front = Front(tmp_path_factory.mktemp("gate"))
    yield front
    front.gate.stop()
    for engine in front.engines:
        engine.stop()


@pytest.fixture
def front(served):
    for engine in served.engines:
        engine.seen.clear()
        engine.cut = engine.most = 0
        engine.seconds, engine.sound, engine.status = 0.0, True, 200
        engine.begun.clear()
    assert until(lambda: served.gate.generating() == 2)
    return served


OTHERS = (
    *({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"X-Api-Key": TOKEN}),
    *({"Authorization": f"Bearer {KEY}"}, [("Authorization", f"Bearer {TOKEN}")] * 2),
)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE, "/v1/models", "/health", "/nothing"])
def test_every_path_wants_the_token(front, path):
    for headers in OTHERS:
        for method in ("GET", "POST"):
            assert CLIENT.request(method, front.url + path, headers=headers).status_code == 401, headers
    assert not front.seen()


ADMINS = """/update_weights_from_disk /update_weights_from_tensor /pause_generation /continue_generation
/abort_request /start_profile /stop_profile /configure_logging /flush_cache /set_internal_state /server_info
/get_server_info /model_info /get_model_info /metrics /release_memory_occupation /load_lora_adapter
/open_session /add_worker /workers /v1/responses /v1/embeddings /v1/messages /v1/models/toy /invocations
/dump_expert_distribution_record /encode /docs /openapi.json / /v1/chat/completions/ //generate /generate/..
/v1/../update_weights_from_disk /v1/%2e%2e/generate /GENERATE /generate%00""".split()


def test_what_is_not_on_the_list_is_not_there(front):
    for path in ADMINS:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            text = (
                f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close"
            )
            said = front.raw(f"{text}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            assert said.split()[1] in (b"404", b"400"), (method, path, said)
    assert not front.seen()
    for method, path in (("GET", CHAT), ("PUT", GENERATE), ("POST", "/health"), ("DELETE", "/v1/models")):
        assert CLIENT.request(method, front.url + path, headers=SHOWN).status_code == 405
    assert front.ask("/generate?url=http://127.0.0.1:1").status_code == 400
    assert not front.seen()


def nested_tool(levels):
    return tool('{"a":' * levels + "1" + "}" * levels)


def broad_tool(count):
    return tool(json.dumps({str(number): {} for number in range(count)}))


def tool(inner):
    tool = f'{{"type": "function", "function": {{"name": "a", "parameters": {inner}}}}}'
    return f'{{"messages": [{{"role": "user", "content": "a"}}], "tools": [{tool}]}}'.encode()


def chat(**settings):
    return CHAT, {"messages": SAID, **settings}


def saying(content):
    return CHAT, {"messages": [{"role": "user", "content": content}]}


KILLS_OR_REACHES_OUT = {
    "an id beyond the vocabulary": (COMPLETIONS, {"prompt": [99999999]}, "99999999 is not a token id"),
    "one of several": (COMPLETIONS, {"prompt": [[1], [VOCABULARY]]}, r"prompt[1]: 320 is not a token id"),
    "a negative id": (GENERATE, {"input_ids": [-1]}, "-1 is not a token id; expected 0 to 319"),
    "a huge number": (GENERATE, b'{"input_ids": [1%s]}' % (b"0" * 5000), "input_ids"),
    "no ids": (GENERATE, {"input_ids": []}, "at least one"),
    "ids that are none": (GENERATE, {"input_ids": [True, "a", 1.5]}, "expected token ids"),
    "too many ids": (GENERATE, {"input_ids": [1] * 600}, "maximum context length is 512"),
    "many prompts": (COMPLETIONS, {"prompt": ["a"] * 65}, "65 texts; expected at most 64"),
    "alternatives": (*chat(logprobs=True, top_logprobs=100000), "<= 20 - at `$.top_logprobs`"),
    "alternatives of ids": (GENERATE, {"text": "a", "top_logprobs_num": 10**6}, "top_logprobs_num"),
    "a prompt's": (COMPLETIONS, {"prompt": "a", "echo": True, "logprobs": 1}, "logprobs with echo"),
    "many answers": (*chat(n=10**6), "<= 64 - at `$.n`"),
    "a biased id": (*chat(logit_bias={"99999999": 1}), "logit_bias: 99999999"),
    "a stopping id": (*chat(stop_token_ids=[-5]), "stop_token_ids"),
    "a temperature": (*chat(temperature=-1), ">= 0.0 - at `$.temperature`"),
    "no number": (CHAT, b'{"temperature": NaN}', "not JSON"),
    "a text for a number": (*chat(max_tokens="5"), "at `$.max_tokens`"),
    "a grammar": (*chat(response_format={"type": "json_schema", "json_schema": {}}), "`$.response_format"),
    "a regular expression": (*chat(regex="(a*)*b"), "unknown field `regex`"),
    "a stopping expression": (*chat(stop_regex="(a*)*b"), "unknown field `stop_regex`"),
    "another's name": (*chat(rid="theirs"), "unknown field `rid`"),
    "code": (*chat(custom_logit_processor="x"), "unknown field `custom_logit_processor`"),
    "a template": (*chat(chat_template_kwargs={"chat_template": "{{x}}"}), "chat_template_kwargs"),
    "an address": (*chat(bootstrap_host="10.0.0.1"), "unknown field `bootstrap_host`"),
    "a folder": (*chat(lora_path="/etc"), "unknown field `lora_path`"),
    "a picture": (*saying([{"type": "image_url", "image_url": {"url": "http://10.0.0.1"}}]), "content[0]"),
    "a file": (GENERATE, {"text": "a", "image_data": "/etc/passwd"}, "unknown field `image_data`"),
    "a call by force": (*chat(tool_choice="required"), "`$.tool_choice`"),
    "a nested list": (CHAT, b"[" * 100_000 + b"]" * 100_000, "expected"),
    "a nested tool": (CHAT, nested_tool(200), "nested too deeply"),
    "a broad tool": (CHAT, broad_tool(20_000), "parameters has too many values; expected at most 10000"),
    "a very nested tool": (CHAT, nested_tool(100_000), "nested too deeply"),
    "no messages": (CHAT, {"messages": []}, "`$.messages`"),
    "nothing": (CHAT, b"", "not JSON"),
    "no object": (CHAT, b"null", "expected"),
    "no text": (CHAT, b"\xff\xfe", "not JSON"),
    "an empty text": (GENERATE, {"text": ""}, "text is empty"),
    "both": (GENERATE, {"text": "a", "input_ids": [1]}, "one of text and input_ids"),
}  # fmt: skip


@pytest.mark.parametrize("name", KILLS_OR_REACHES_OUT)
def test_what_ends_an_engine_or_makes_it_reach_out_never_gets_there(front, name):
    path, body, told = KILLS_OR_REACHES_OUT[name]
    answer = front.ask(path, body)
    said = answer.json()["error"]["message"]
    assert answer.status_code == 400 and told.lower() in said.lower(), said
    assert "\n" not in said and len(said) < 500
    assert not front.seen()


def test_a_request_is_sent_on_as_it_was_meant(front):
    body = {"model": "toy", "messages": SAID, "temperature": 0, "seed": 3, "stop": None, "user": "me", "n": 2}
    answer = front.ask(CHAT, body)
    meant = {"model": "toy", "messages": SAID, "temperature": 0, "seed": 3, "n": 2}
    assert answer.status_code == 200 and answer.json()["asked"] == meant
    asked = {"input_ids": [1, 2], "return_logprob": True, "sampling_params": {"max_new_tokens": 3}}
    assert front.ask(GENERATE, asked).json()["asked"] == asked
    assert TOKEN not in json.dumps(front.seen())
    for engine in front.engines:
        engine.status = 400
    assert front.ask(CHAT).status_code == 400 and front.ask(CHAT).json()["asked"] == {"messages": SAID}


def test_messages_may_hold_what_clients_leave_in_them_and_engines_see_none_of_it(front):
    call = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call | {"index": 0, "by": "me"}]}
    more = {"refusal": None, "annotations": [], "provider_specific_fields": {"lora_path": "/etc"}, "rid": "x"}
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    shown = {"role": "tool", "tool_call_id": "a", "content": [part]}
    seen = front.ask(CHAT, {"messages": [*SAID, said | more, shown | more]}).json()["asked"]["messages"]
    assert seen[1:] == [
        {"role": "assistant", "tool_calls": [call | {"index": 0}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "a"}]},
    ]


@pytest.mark.full
def test_a_stream_comes_piece_by_piece(front):
    for engine in front.engines:
        engine.seconds = 0.3
    body = {"messages": SAID, "stream": True}
    with CLIENT.stream("POST", front.url + CHAT, headers=SHOWN, json=body) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        came = [(time.monotonic(), piece) for piece in answer.iter_bytes()]
    assert b"".join(piece for _, piece in came) == b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert came[-1][0] - came[0][0] > 0.5


@pytest.mark.full
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_ends_its_request_at_the_engine(front, stream):
    for engine in front.engines:
        engine.seconds = 30
    with pytest.raises(httpx.ReadTimeout):
        front.ask(CHAT, {"messages": SAID, "stream": stream}, timeout=0.5)
    assert until(lambda: sum(engine.cut for engine in front.engines) == 1)


@pytest.mark.full
def test_a_dead_engine_is_skipped_and_taken_in_again(front):
    first, second = front.engines
    first.stop()
    try:
        assert [front.ask().json()["by"] for _ in range(6)] == ["b"] * 6
        second.stop()
        try:
            answer = front.ask()
            assert answer.status_code == 503 and "no model server is up" in answer.text
            assert until(lambda: front.gate.generating() == 0)
            assert CLIENT.get(f"{front.url}/health", headers=SHOWN).status_code == 503
        finally:
            second.start()
    finally:
        first.start()
    assert until(lambda: front.gate.generating() == 2)


@pytest.mark.full
def test_a_request_that_an_engine_takes_down_with_it_is_repeated(front):
    for engine in front.engines:
        engine.seconds = 0.7
    answers = []
    asking = threading.Thread(target=lambda: answers.append(front.ask()))
    asking.start()
    assert until(lambda: any(engine.begun.is_set() for engine in front.engines))
    (lost,) = [engine for engine in front.engines if engine.begun.is_set()]
    lost.stop()
    asking.join()
    lost.start()
    assert answers[0].status_code == 200 and answers[0].json()["by"] != lost.name


def test_a_request_that_ends_engines_is_sent_to_no_more_of_them(front):
    for engine in front.engines:
        engine.fatal = "a curse"
    try:
        cursed = [front.ask(CHAT, {"messages": SAID, "user": "me", "stop": "a curse"}) for _ in range(3)]
        assert [answer.status_code for answer in cursed] == [503, 500, 500]
        assert "3 model servers ended" in cursed[1].text and len(front.seen()) == 3
        assert front.ask().status_code == 200
    finally:
        for engine in front.engines:
            engine.fatal = None


@pytest.mark.full
def test_an_engine_that_is_not_said_to_be_up_is_asked_nothing(front):
    """The engine may run again, but with older weights."""
    front.gate.set_up([False, True])
    try:
        assert until(lambda: front.gate.generating() == 1)
        assert {front.ask().json()["by"] for _ in range(8)} == {"b"} and not front.engines[0].seen
        front.gate.set_up([False, False])
        assert until(lambda: front.ask().status_code == 503)
    finally:
        front.gate.set_up([True, True])


def test_a_conversation_stays_where_its_beginning_is_cached(front):
    talks = [[{"role": "user", "content": f"{number} " * 50}] for number in range(8)]
    places = [front.ask(CHAT, {"messages": talk}).json()["by"] for talk in talks]
    for _ in range(3):
        for talk in talks:
            talk += [{"role": "assistant", "content": "Look."}, {"role": "user", "content": "I did."}]
        assert [front.ask(CHAT, {"messages": talk}).json()["by"] for talk in talks] == places


def test_a_body_that_is_too_long_is_a_full_context(front):
    said = saying("x" * (3 << 20))[1]
    answer = front.ask(CHAT, said)
    assert answer.status_code == 413 and "maximum context length" in answer.json()["error"]["message"]
    huge = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 99999999999"
    assert front.raw(f"{huge}\r\n\r\n".encode()).split()[1] == b"413"
    coded = {**SHOWN, "Content-Encoding": "gzip"}
    assert front.ask(CHAT, b"x", headers=coded).status_code == 415
    assert not front.seen()


@pytest.mark.full
def test_a_killed_gate_comes_back_at_its_address(front):
    (pid,) = [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/fd") if gate_of(path.parent, front.log)
    ]
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not front.gate.alive())
    front.gate.start(engines=2)
    assert front.ask().status_code == 200


def gate_of(process, log):
    try:
        command = (process / "cmdline").read_bytes()
        return (process / "fd/1").readlink() == log and b"bwrap" not in command
    except OSError:
        return False


def test_nobody_sees_the_keys(front):
    shown = [
        path.read_bytes()
        for process in Path("/proc").glob("[0-9]*")
        if gate_of(process, front.log)
        for path in (process / "cmdline", process / "environ")
    ]
    assert shown and not any(key.encode() in text for text in shown for key in (TOKEN, KEY))
    assert front.log.stat().st_mode & 0o077 == 0 and TOKEN not in front.log.read_text()
