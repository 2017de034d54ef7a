"""Lends the sandboxes of container hosts to clients that show the token, until it is stopped."""

import argparse
import logging
import ssl
from pathlib import Path

from swelab.console.option_types import at_least, number, whole
from swelab.console.terminal import run_script
from swelab.http.run_server import positive, run
from swelab.http.sockets import address, listen
from swelab.pool.lease_store import LeaseStore
from swelab.pool.node_client import Link
from swelab.pool.pool import Pool, PoolLimits
from swelab.pool.pool_server import pool_app, take_in
from swelab.records import InputError
from swelab.sandbox.remote_protocol import find_token, find_tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=at_least(0), default=18090, help="port to listen on; 0: a free port")
    parser.add_argument("--token", type=Path, help="file with the clients' tokens, one per line (mode 600)")
    parser.add_argument("--node-token", type=Path, required=True, help="file with the exec servers' token")
    parser.add_argument("--state", type=Path, default=Path("pool.sqlite"), help="database of leases")
    parser.add_argument(
        "--node", action="append", default=[], help="URL of an exec server; added to those in --state"
    )
    parser.add_argument("--ttl", type=number, default=120, help="seconds until an unrenewed lease ends")
    parser.add_argument("--max-leases", type=whole, default=1000, help="maximum number of sandboxes")
    parser.add_argument("--max-waiting", type=whole, default=10_000, help="limit of waiting requests")
    parser.add_argument("--node-ca", type=Path, help="PEM file with the authority of the nodes' certificates")
    parser.add_argument("--certificate", type=Path, help="certificate for https, a PEM file")
    parser.add_argument("--key", type=Path, help="key of the certificate, if the PEM file lacks it")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    tokens, node_token = find_tokens(args.token), find_token(args.node_token)
    if node_token in tokens:
        raise InputError("clients have the nodes' token too", args.node_token, "a token that no client has")
    positive(args, ttl=86400, max_leases=20_000, max_waiting=1_000_000)
    trust = ssl.create_default_context(cafile=args.node_ca) if args.node_ca else True
    store = LeaseStore(args.state)
    if kept := take_in(store, args.node):
        logging.info("%s: %s", args.state, kept)
    limits = PoolLimits(args.ttl, args.max_leases, args.max_waiting)
    pool = Pool(store, limits, lambda url: Link(url, node_token, trust))
    listener = listen(args.host, args.port)
    told = f"pool server at {address(listener, bool(args.certificate))}"
    app = pool_app(pool, tokens, node_token)
    run(app, listener, args.certificate, args.key, lambda: print(told, flush=True))


if __name__ == "__main__":
    run_script(main)
