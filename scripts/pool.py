"""Manages a pool by hand: lets a host join, drain or leave, or prints the pool's state."""

import argparse
import os
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.records import InputError
from swelab.sandbox.remote_client import PoolClient
from swelab.sandbox.remote_protocol import find_token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=("join", "drain", "leave", "status"))
    parser.add_argument("url", nargs="?", help="address of the host's exec server, as the pool reaches it")
    parser.add_argument("--pool", default=os.environ.get("SWELAB_POOL"), help="default $SWELAB_POOL")
    parser.add_argument(
        "--token",
        type=Path,
        help="file with the nodes' token (for status: the pool's); by default as for clients",
    )
    parser.add_argument("--force", action="store_true", help="for leave: end the leases of the host")
    args = parser.parse_args()
    if not args.pool or bool(args.url) == (args.act == "status"):
        raise InputError(
            "the arguments do not fit together", expected="--pool and the host's URL; no URL for status"
        )
    line = PoolClient(args.pool, find_token(args.token))
    if args.act == "status":
        status = line.ask("/status", {}).json()["pool"]
        for node in status.pop("nodes"):
            print(" ".join(f"{name}={value}" for name, value in node.items()))
        print(" ".join(f"{name}={value}" for name, value in status.items()))
        return
    body = {"url": args.url, **({"force": args.force} if args.act == "leave" else {})}
    status = line.ask(f"/nodes/{args.act}", body, seconds=90.0).json()
    left = f", {status['leases']} leases still there" if status.get("leases") else ""
    print(f"{args.act}: {args.url}{left}")


if __name__ == "__main__":
    run_script(main)
