"""Serves a checkpoint by hand, OpenAI-compatible, until Ctrl-C."""

import argparse
import os
import signal
import time
from pathlib import Path

from swelab.console import run_script
from swelab.models import ServingError
from swelab.models.serving import serve
from swelab.records import InputError
from swelab.weights import check_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="folder in Hugging Face layout")
    parser.add_argument("--name", help="model name that requests give; the folder's name by default")
    parser.add_argument("--port", type=int, help="of 127.0.0.1; a free one by default")
    parser.add_argument("--token", type=Path, default=Path("server.token"), help="file for the access token")
    parser.add_argument("--log", type=Path, default=Path("server.log"), help="the server's own output")
    parser.add_argument("--max-total-tokens", type=int, default=65536, help="tokens in the cache")
    parser.add_argument("--max-running-requests", type=int, default=32, help="requests at once")
    args = parser.parse_args()
    longest = check_weights(args.weights)["max_position_embeddings"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serve(
        args.weights,
        name=args.name or args.weights.resolve().name,
        context_length=min(longest, args.max_total_tokens),
        max_total_tokens=args.max_total_tokens,
        max_running_requests=args.max_running_requests,
        port=args.port,
        log=args.log,
    ) as endpoint:
        try:
            write_private(args.token, endpoint.api_key + "\n")
            print(f"{endpoint.url} serves {endpoint.model}; its token is in {args.token}", flush=True)
            while endpoint.alive():
                time.sleep(0.5)
            raise ServingError(f"the model server has ended; log: {args.log}")
        except KeyboardInterrupt:
            print("stopped", flush=True)
        finally:
            args.token.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(text)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path, "a file for the token") from None


if __name__ == "__main__":
    run_script(main)
