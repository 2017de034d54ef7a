"""A request body is either refused in one line or has the fields that its path allows."""

import json

import pytest

from swelab.http.refusal import Refused
from swelab.pool import request_schemas
from swelab.pool.request_schemas import read_request

EXEC = request_schemas.acts("lease_id")["exec"]
FEW = {"lease_id": "x", "command": "true"}
WRONG = [
    (json.dumps({**FEW, "env": {"A": 1}}), "Expected `str`, got `int` - at `$.env[...]`"),
    (json.dumps({**FEW, "env": dict.fromkeys(map(str, range(1001)), "")}), "length <= 1000 - at `$.env`"),
    (json.dumps({**FEW, "env": dict.fromkeys(map(str, range(300_000)), "")}), "expected at most 524288"),
    ('{"env": ' + "[" * 2_000_000, "nested too deeply"),
    ('{"command": ' + "[" * 900 + "]" * 900 + ', "lease_id": "x"}', "Expected `str`, got `array`"),
    ('{"command": [' + "[]," * 1_000_000 + "[]]}", "command has 3000004 bytes"),
    ('{"env": [' + "[]," * 1_000_000 + '[]], "env": {}}', "what is between fields has"),
    ('{"command": "' + '\\"' * 2_000_000, "not JSON"),
    ('{"command": "x", "command": "y"}', "names a field twice"),
    ('{"command": NaN}', "not JSON"),
    ('{"lease_id": "x", "command": "a", "timeout": 1e999}', "<= 86400.0 - at `$.timeout`"),
    (json.dumps({**FEW, "limits": {"\ud800": 1}}), "not allowed"),
    (json.dumps({"command": "true"}), "missing required field `lease_id`"),
    (json.dumps({**FEW, "privileged": True}), "unknown field `privileged`"),
    (b'{"lease_id": "x", "command": "\xff"}', "not JSON"),
]


@pytest.mark.parametrize(("body", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_in_one_line(body, words):
    with pytest.raises(Refused) as caught:
        read_request(body if isinstance(body, bytes) else body.encode(), EXEC)
    text = str(caught.value)
    assert words in text and "\n" not in text and len(text) < 500 and caught.value.status == 400


@pytest.mark.parametrize("command", ["x" * (1 << 20), "\udcff\ud800é\\ud800\U0001f600", "\\\\\ud83d"])
def test_a_text_is_read_as_it_was_written_also_where_it_is_not_unicode(command):
    asked = {**FEW, "command": command, "env": {"\udcfe": "\udcfd"}}
    assert read_request(json.dumps(asked).encode(), EXEC) == asked


def test_null_is_no_value():
    assert read_request(json.dumps({**FEW, "env": None}).encode(), EXEC) == FEW
    with pytest.raises(Refused, match=r"got `null` - at `\$.timeout`"):
        read_request(json.dumps({**FEW, "timeout": None}).encode(), EXEC)


def test_of_values_that_are_no_text_few_bytes_are_parsed(monkeypatch):
    """json needs up to a microsecond for three bytes of them, during which a server's loop waits."""
    monkeypatch.setattr(request_schemas.json, "loads", lambda *_, **__: pytest.fail("parsed"))
    for name, body in (
        ("lease_ids", b'{"lease_ids": [' + b"[]," * 200_000 + b"1]}"),
        ("lease_id", b'{"lease_id": [' + b"{}," * 200_000 + b"1]}"),
    ):
        with pytest.raises(Refused, match=f"{name} has 60000. bytes; expected at most 524288"):
            read_request(body, request_schemas.HEARTBEAT)
