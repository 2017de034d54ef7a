"""Lends sandboxes of this machine's container engine over HTTP, until it is stopped."""

import argparse
import logging
from pathlib import Path

from swelab.console.option_types import at_least, number, whole
from swelab.console.terminal import run_script
from swelab.http.run_server import positive, run
from swelab.http.sockets import address, listen
from swelab.pool.container_host import Host
from swelab.pool.exec_server import node_app
from swelab.pool.host_sandbox import HostLimits
from swelab.pool.image_allowlist import AllowedImages
from swelab.sandbox.docker_backend import DockerBackend
from swelab.sandbox.remote_protocol import find_token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=at_least(0), default=5000, help="port to listen on; 0: a free port")
    parser.add_argument("--token", type=Path, help="token file (mode 600); default $SWELAB_POOL_TOKEN_FILE")
    parser.add_argument("--images", type=Path, help="file of allowed image patterns, one per line")
    parser.add_argument("--max-containers", type=whole, default=16, help="maximum number of sandboxes")
    parser.add_argument("--memory-gib", type=number, default=16, help="memory of all sandboxes together, GiB")
    parser.add_argument("--ttl", type=number, default=600, help="seconds until an unrenewed sandbox ends")
    parser.add_argument("--certificate", type=Path, help="certificate for https, a PEM file")
    parser.add_argument("--key", type=Path, help="key of the certificate, if the PEM file lacks it")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    positive(args, max_containers=10_000, memory_gib=1 << 20, ttl=86400)
    token, allowed = find_token(args.token), AllowedImages(args.images)
    limits = HostLimits(args.max_containers, int(args.memory_gib * (1 << 30)), args.ttl)
    host = Host(DockerBackend(), limits, allowed)
    listener = listen(args.host, args.port)
    told = f"exec server at {address(listener, bool(args.certificate))}"
    run(node_app(host, token), listener, args.certificate, args.key, lambda: print(told, flush=True))


if __name__ == "__main__":
    run_script(main)
