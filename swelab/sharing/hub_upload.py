"""Uploads folders to the Hugging Face hub."""

import os
from pathlib import Path

from swelab.files.hf_hub import HubError, hub_token
from swelab.records import InputError, shorten


def check_push(name: str) -> None:
    """Raises InputError if `name` is not <owner>/<name>, or if there is no hub token."""
    parts = name.split("/")
    if len(parts) != 2 or not all(parts):
        raise InputError(f"--push {name!r}", expected="<owner>/<name>")
    if not hub_token():
        raise InputError("no token for the hub", "--push", "HF_TOKEN, or `hf auth login`")


def push(folder: Path, name: str, kind: str) -> str:
    """Uploads a folder as a private repository, and returns its address. kind: model or dataset. Raises
    HubError."""
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=hub_token())
    try:
        address = api.create_repo(name, repo_type=kind, private=True, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, repo_type=kind)
    except (HfHubHTTPError, httpx2.HTTPError, OSError, ValueError) as error:
        raise HubError(f"{kind} {name}: not pushed: {shorten(str(error))}; the folder is {folder}") from None
    return str(address)
