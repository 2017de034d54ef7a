"""Serves a checkpoint with an OpenAI-compatible API until Ctrl-C (docs/serving.md)."""

import argparse
import signal
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.models.serving.complete_checkpoint import longest_context
from swelab.models.serving.lora import named_adapters
from swelab.models.serving.serve_by_hand import CONTEXT, further_options, serve_by_hand


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--weights", "--checkpoint", type=Path, required=True, help="folder in Hugging Face layout")
    add("--base", "--tokenizer", type=Path, help="folder of the base model, for files that the weights lack")
    add("--name", "--served-model-name", help="name of the model; by default the folder's name")
    add("--lora", action="append", default=[], metavar="NAME=FOLDER", help="adapter, named MODEL:NAME")
    add("--tp", "--tp-size", type=at_least(1), default=1, help="number of GPUs that share the weights")
    add("--context-length", type=at_least(1), help=f"tokens; default {CONTEXT}, or the model's limit")
    add("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto", help="data type")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="device of the engine")
    add("--port", type=at_least(0), help="port to listen on; by default a free port")
    add("--host", default="127.0.0.1", help="address to listen on; by default only this machine can connect")
    add("--api-key-env", default="", help="environment variable with the access token; default: random")
    add("--token", type=Path, default=Path("server.token"), help="file to write the access token to")
    add("--log", type=Path, default=Path("server.log"), help="file for the server's output")
    add("--max-total-tokens", type=at_least(1), help="cache size in tokens; by default all that fit on a GPU")
    add("--max-running-requests", type=at_least(1), default=32, help="maximum number of requests at once")
    add("--sglang-args", default="", help="further options of sglang, as one argument")
    return parser.parse_args()


def main() -> None:
    args = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    serve_by_hand(
        args.weights,
        name=args.name or args.weights.resolve().name,
        base=args.base,
        adapters=named_adapters(args.lora),
        context_length=args.context_length or longest_context(args.weights, args.base, CONTEXT),
        max_total_tokens=args.max_total_tokens,
        max_running_requests=args.max_running_requests,
        host=args.host,
        port=args.port,
        device=args.device,
        dtype=args.dtype,
        token=args.token,
        key_env=args.api_key_env,
        log=args.log,
        extra_args=further_options(args.sglang_args, gpus=args.tp),
    )


if __name__ == "__main__":
    run_script(main)
