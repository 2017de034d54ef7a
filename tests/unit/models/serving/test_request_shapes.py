"""Any bytes are either refused in one line or are a request that an engine may get."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swelab.http.refusal import Refused
from swelab.models.serving.request_shapes import Limits, engine_body, read_request
from swelab.models.serving.sglang_shapes import SHAPES

LIMITS = Limits(64, 100)
NAMES = sorted(
    {name for shape in SHAPES.values() for name in shape.__struct_fields__}
    | set("role content type text function name parameters arguments max_new_tokens 0".split())
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["", "user", "text", "function", "\ud800", "a" * 2000]),
    st.text(max_size=5),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
SAID = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]}, "/generate": {"text": "a"}}
SAID["/v1/completions"] = {"prompt": "a"}


def read(path, body):
    """Returns the request for the engine, or None if it is refused."""
    try:
        return engine_body(read_request(body, SHAPES[path], LIMITS))
    except Refused as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 600
        return None


@settings(max_examples=300)
@given(st.sampled_from(sorted(SHAPES)), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_any_fields_are_refused_or_read(path, fields):
    sent = read(path, json.dumps({**SAID[path], **fields}).encode())
    assert sent is None or json.loads(sent).keys() <= {*SHAPES[path].__struct_fields__}


def test_an_answer_may_have_all_tokens_but_one():
    body = {**SAID["/v1/chat/completions"], "max_tokens": 63}
    assert read("/v1/chat/completions", json.dumps(body).encode())


@settings(max_examples=100)
@given(st.sampled_from(sorted(SHAPES)), st.binary(max_size=50))
def test_any_bytes_are_refused_or_read(path, body):
    assert read(path, body) is None


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 30, "1" + "0" * 5000, "-1" + "0" * 30])
def test_numbers_beyond_all_bounds_are_refused_or_written(number):
    tool = f'{{"type": "function", "function": {{"name": "a", "parameters": {{"a": [{number}]}}}}}}'
    body = f'{{"messages": [{{"role": "user", "content": "a"}}], "tools": [{tool}]}}'
    sent = read("/v1/chat/completions", body.encode())
    assert sent is None or json.loads(sent)["tools"]
    for name in ("temperature", "seed", "max_tokens", "n"):
        body = f'{{"messages": [{{"role": "user", "content": "a"}}], "{name}": {number}}}'
        assert read("/v1/chat/completions", body.encode()) is None
