#!/usr/bin/env python3
"""Lends the sandboxes of several hosts: --host, --port, --exec-server-urls as there; the tokens are ours.

SWE_EXEC_SERVER_URLS, SWE_ENV_SERVER_PORT and SWE_MAX_CONTAINERS_PER_NODE mean what they meant there.
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stands_for import ROOT, at_least, fail, run  # noqa: E402


def main():
    usage = "%(prog)s [OPTION VALUE]...; --help lists the options"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="there 0.0.0.0")
    parser.add_argument("--port", default=setting("SWE_ENV_SERVER_PORT", "18090"))
    parser.add_argument(
        "--exec-server-urls", default=setting("SWE_EXEC_SERVER_URLS", "http://localhost:5000")
    )
    most = setting("SWE_MAX_CONTAINERS_PER_NODE", "16")
    parser.add_argument("--max-containers-per-node", default=most, type=at_least(1))
    args, further = parser.parse_known_args()
    urls = addresses(args.exec_server_urls)
    nodes = [word for url in urls for word in ("--node", url)]
    if not any(word.startswith("--node-token") for word in further):
        if not (token := setting("SWELAB_NODE_TOKEN_FILE", "")):
            fail("SWELAB_NODE_TOKEN_FILE is not set; expected the exec servers' token (docs/pool.md)")
        nodes += ["--node-token", token]
    most = ["--max-leases", args.max_containers_per_node * len(urls)]
    if not any(word.startswith("--state") for word in further):
        further += ["--state", state_of(urls, args.port)]
    run("scripts.pool_server", "--host", args.host, "--port", args.port, *most, *nodes, *further)


def setting(name, usual):
    """Returns a variable's value, or `usual` if the variable is unset or empty."""
    return os.environ.get(name) or usual


def addresses(text):
    """Splits a list of addresses at commas. Exits with an error if one is not an HTTP address."""
    urls = [url.strip() for url in text.split(",") if url.strip()]
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        fail(f"SWE_EXEC_SERVER_URLS={text}; expected http://host:5000, and more of them after commas")
    return urls


def state_of(urls, port):
    """Returns the path of the database of a pool with these hosts. Each list of hosts has its own pool."""
    name = hashlib.sha256("\n".join([port, *sorted(urls)]).encode()).hexdigest()[:12]
    return Path(setting("EXPORT_ROOT", ROOT / "swe-rl/output")) / "pools" / f"{name}.sqlite"


if __name__ == "__main__":
    main()
