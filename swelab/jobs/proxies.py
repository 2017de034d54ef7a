"""Makes our own servers reachable without the proxies that the environment names.

Every client here (httpx, requests, urllib, LiteLLM) and every child process reads `no_proxy`, so setting that
variable is enough.
"""

import os

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def bypass(*hosts: str) -> None:
    """Adds hosts that this process and its children reach without a proxy."""
    named = ("no_proxy", "NO_PROXY")
    listed = [each.strip() for name in named for each in os.environ.get(name, "").split(",")]
    # A single star means every host, but a star in a list with other names means nothing.
    told = "*" if "*" in listed else ",".join(dict.fromkeys(each for each in (*listed, *hosts) if each))
    os.environ.update(dict.fromkeys(named, told))
