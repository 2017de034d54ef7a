"""Looks up the current commit of a repository on the Hugging Face hub."""

import json
import os
import re

import httpx

from swelab.files.hf_hub import ENDPOINT, HubError, hub_token
from swelab.records import InputError, shorten


def newest_commit(name: str, kind: str) -> str:
    """Returns the current commit of a repository's main branch. kind: model or dataset. Raises InputError if
    there is no such repository, and HubError if the hub does not answer with a commit."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
    token = hub_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(
            f"{endpoint}/api/{kind}s/{name}", headers=headers, timeout=30, follow_redirects=True
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise HubError(f"{kind} {name}: {endpoint} does not answer: {shorten(str(error))}") from None
    if answer.status_code in (401, 403, 404):
        raise InputError(
            f"the hub refuses it ({answer.status_code})",
            f"{kind} {name}",
            "its name; HF_TOKEN if it is gated",
        )
    try:
        commit = str(json.loads(answer.content)["sha"])
    except (ValueError, KeyError, TypeError):
        commit = ""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise HubError(f"{kind} {name}: {endpoint} answers {answer.status_code} without a commit")
    return commit
