#!/usr/bin/env python3
"""Lends the sandboxes of several hosts: --host, --port, --exec-server-urls as there; the tokens are ours.

SWE_EXEC_SERVER_URLS, SWE_ENV_SERVER_PORT and SWE_MAX_CONTAINERS_PER_NODE mean what they meant there.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stands_for import fail, run  # noqa: E402

PLACES = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    env = os.environ.get
    parser.add_argument("--host", default="127.0.0.1", help="there 0.0.0.0")
    parser.add_argument("--port", default=env("SWE_ENV_SERVER_PORT", "18090"))
    parser.add_argument("--exec-server-urls", default=env("SWE_EXEC_SERVER_URLS", "http://localhost:5000"))
    most = env("SWE_MAX_CONTAINERS_PER_NODE", PLACES)
    parser.add_argument("--max-containers-per-node", type=int, default=most)
    args, further = parser.parse_known_args()
    urls = [url.strip() for url in args.exec_server_urls.split(",") if url.strip()]
    nodes = [word for url in urls for word in ("--node", url)]
    if "--node-token" not in further:
        if not env("SWELAB_NODE_TOKEN_FILE"):
            fail("SWELAB_NODE_TOKEN_FILE is not set; expected the exec servers' token (docs/pool.md)")
        nodes += ["--node-token", env("SWELAB_NODE_TOKEN_FILE")]
    most = ["--max-leases", args.max_containers_per_node * len(urls)]
    run("scripts.pool_server", "--host", args.host, "--port", args.port, *most, *nodes, *further)


if __name__ == "__main__":
    main()
