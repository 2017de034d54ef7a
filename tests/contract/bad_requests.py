"""Requests that every server of a pool must refuse: pairs of a name and the bytes to send."""

import json

DEEP = 100_000
ID = "0" * 64


def http(method, path, headers, body=b"", length=True):
    """Returns an HTTP request as bytes. headers: (name, value) pairs."""
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), b"Host: pool"]
    lines += [name.encode("latin-1") + b": " + value.encode("latin-1") for name, value in headers]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def without_access(path, token):
    """Returns requests for an existing path with a missing or wrong token."""
    body = b"{}"
    kind = ("Content-Type", "application/json")

    def asked(*headers):
        return http("POST", path, [kind, *headers], body)

    shown = {
        "no token": [],
        "a digest scheme": [("Authorization", f'Digest username="{token}"')],
        "half a token": [("Authorization", f"Bearer {token[: len(token) // 2]}")],
        "a token but its last letter": [("Authorization", f"Bearer {token[:-1]}")],
        "a token and a letter": [("Authorization", f"Bearer {token}x")],
        "a token in quotes": [("Authorization", f'Bearer "{token}"')],
        "two tokens in one": [("Authorization", f"Bearer {token}, Bearer {token}")],
        "two headers, wrong first": [("Authorization", "Bearer x"), ("Authorization", f"Bearer {token}")],
        "another header": [("X-Auth-Token", token)],
        "a cookie": [("Cookie", f"token={token}")],
        "the address of this machine": [("X-Forwarded-For", "127.0.0.1"), ("X-Real-IP", "127.0.0.1")],
        "a long token": [("Authorization", "Bearer " + "x" * 8000)],
        "bytes": [("Authorization", "Bearer \xff\xfe")],
    }
    found = {f"{name} at {path}": asked(*headers) for name, headers in shown.items()}
    found[f"a token in the query at {path}"] = http("POST", f"{path}?token={token}", [kind], body)
    return found


def without_sense(path, token):
    """Returns requests with a method, path, query, content type or encoding that the server refuses."""
    who = ("Authorization", f"Bearer {token}")
    kind = ("Content-Type", "application/json")
    body = json.dumps({"container_id": ID, "lease_id": ID, "command": "true"}).encode()
    found = {
        f"{method} {path}": http(method, path, [who, kind], body)
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "BREW")
    }
    wrong = (
        f"/{path}",
        f"{path}/",
        path.upper(),
        f"{path}%00",
        f"{path}/../create",
        f"/.{path}",
        "*",
        f"http://other{path}",
        f"{path};x",
        f"/%2e%2e{path}",
        "/etc/passwd",
        "/container",
        "/nothing",
    )
    found |= {f"path {each}": http("POST", each, [who, kind], body) for each in wrong}
    found |= {
        f"a query {each}": http("POST", f"{path}?{each}", [who, kind], body) for each in ("a=b", "command=id")
    }
    types = (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "application/xml",
        "application/json-patch+json",
    )
    found |= {f"type {each!r}": http("POST", path, [who, ("Content-Type", each)], body) for each in types}
    codings = (("Content-Encoding", "gzip"), ("Content-Encoding", "br"), ("Upgrade", "websocket"))
    found |= {
        f"{n} {v}": http("POST", path, [who, kind, (n, v), ("Connection", "upgrade")], body)
        for n, v in codings
    }
    return found


def broken(path, token):
    """Returns invalid HTTP, and HTTP that two parsers would read differently."""
    who = f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n".encode()
    start = f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + who
    return {
        "nothing but an end": b"\r\n\r\n\r\n\r\n\0",
        "zeros": bytes(1000),
        "a TLS hello": bytes.fromhex("160301020001fc0303") + bytes(500),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "an old HTTP": f"GET {path}\r\n".encode() + b"\r\n",
        "an unknown HTTP": f"POST {path} HTTP/9.9\r\n".encode() + who + b"\r\n",
        "no host": f"POST {path} HTTP/1.1\r\n".encode() + who + b"Content-Length: 2\r\n\r\n{}",
        "a long line": b"POST /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        "a long header": start + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        "many headers": start + b"".join(b"X-%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
        "a header without a name": start + b": x\r\n\r\n",
        "a header with a space": start + b"Content-Length : 2\r\n\r\n{}",
        "a header with a zero": start + b"X: a\0b\r\n\r\n",
        "two lengths": start + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        "a length and chunks": start + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a negative length": start + b"Content-Length: -1\r\n\r\n{}",
        "a length that is none": start + b"Content-Length: two\r\n\r\n{}",
        "a hexadecimal length": start + b"Content-Length: 0x2\r\n\r\n{}",
        "too great a length": start + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        "a coding that is none": start + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "a chunk without a size": start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "a negative chunk": start + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        "a body over the limit": start + b"Content-Length: 6000000\r\n\r\n" + b" " * 6_000_000,
        "chunks over the limit": start
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 5,
        "a line end in the path": f"POST {path}\rX HTTP/1.1\r\n".encode() + who + b"\r\n",
    }


def no_json(path, token):
    """Returns bodies that are not a JSON object, or that repeat a key."""
    headers = [("Authorization", f"Bearer {token}"), ("Content-Type", "application/json")]
    bodies = {
        "nothing": b"",
        "a word": b"hello",
        "half an object": b'{"container_id": "x", "command',
        "two objects": b"{}{}",
        "a list": b"[]",
        "a text": b'"text"',
        "a number": b"1",
        "null": b"null",
        "a field twice": b'{"container_id": "a", "container_id": "b", "command": "c"}',
        "no number": b'{"timeout": NaN}',
        "no end": b'{"timeout": Infinity}',
        "a great number": b'{"timeout": 1e999}',
        "a long number": b'{"timeout": ' + b"9" * 100_000 + b"}",
        "depth": b'{"env": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "bytes": b'{"command": "\xff"}',
        "UTF-16": '{"command": "true"}'.encode("utf-16"),
        "a comment": b'{"command": "true" /* ! */}',
        "single quotes": b"{'command': 'true'}",
        "a prototype": b'{"__proto__": {"ok": true}}',
        "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    }
    return {f"body {name}": http("POST", path, headers, body) for name, body in bodies.items()}


def wrong_fields(shapes, good, token):
    """Makes bad requests from good requests, by path: fields missing, unknown, of a wrong type, too large."""
    found = {}
    for path, body in good.items():
        shape, parts = shapes[path]["$defs"]["Request"], shapes[path]["$defs"]
        wrong = {
            "a field more": {**body, "privileged": True},
            "upper case": {k.upper(): v for k, v in body.items()},
        }
        for name in shape.get("required", ()):
            wrong[f"no {name}"] = {key: value for key, value in body.items() if key != name}
        for name, kind in shape["properties"].items():
            kind = kind.get("anyOf", [kind])[0]
            kind = parts[kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
            for label, value in _wrong_values(kind):
                wrong[f"{name} {label}"] = {**body, name: value}
        for label, each in wrong.items():
            headers = [("Authorization", f"Bearer {token}"), ("Content-Type", "application/json")]
            found[f"{path}: {label}"] = http("POST", path, headers, json.dumps(each).encode())
    return found


def _wrong_values(kind):
    others = {"string": 7, "number": "7", "integer": 1.5, "boolean": "yes", "object": [], "array": {}}
    yield "of another type", others[kind["type"]]
    yield "null", None
    if kind["type"] in ("number", "integer"):
        yield from (("negative", -1), ("true", True), ("great", 1 << 60))
    if "pattern" in kind:
        yield from (
            ("with a line", "a" * 64 + "\n"),
            ("an option", "--privileged"),
            ("a path", "../../../etc/x"),
        )
        yield from (("a shell's", "$(id)"), ("with a zero", "a\0b"), ("an emoji", "\N{PILE OF POO}" * 8))
        yield "long", "a" * 5000
    if kind["type"] == "object" and "properties" in kind:
        yield "with a field more", {"nothing": 1}
        for name in kind["properties"]:
            yield from (
                (f"{name} 0", {name: 0}),
                (f"{name} a text", {name: "1"}),
                (f"{name} great", {name: 1 << 60}),
            )
