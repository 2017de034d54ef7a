"""Reads accounts at registries from the files that `docker login` writes."""

import json
import os
from pathlib import Path

from swelab.images.image_names import DEFAULT, Name


def account_for(name: Name) -> str:
    """Returns base64 of "user:password" for the image's registry, or "" if there is no account.

    Reads config.json in $DOCKER_CONFIG, by default ~/.docker. Does not run credential helpers, which are
    programs that store accounts.
    """
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        known = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auths"]
        for host in ("https://index.docker.io/v1/", DEFAULT) if name.registry == DEFAULT else (name.host,):
            if isinstance(account := known.get(host, {}).get("auth"), str):
                return account
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        pass
    return ""
