"""Serves a checkpoint from several servers behind one address, until Ctrl-C (docs/cluster-eval.md).

.venv/bin/python -m scripts.serve_fleet --weights W --servers 4 --gpus 8            # on this machine
.venv/bin/python -m scripts.serve_fleet --weights W --nodes 4 --servers 2 --gpus 8  # in a SLURM job of 4
.venv/bin/python -m scripts.serve_fleet --weights W --behind http://a:30001 http://b:30001 --api-key-env KEY
"""

import argparse
import signal
from pathlib import Path

from swelab.configs.kinds.policy import Job
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.models.serving.complete_checkpoint import longest_context
from swelab.models.serving.fleet_by_hand import Front, gate_by_hand, serve_fleet_by_hand
from swelab.models.serving.serve_by_hand import CONTEXT, further_options


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--weights", type=Path, required=True, help="folder of weights, in Hugging Face layout")
    add("--base", type=Path, help="folder of the base model, for files that the weights lack")
    add("--name", default="", help="name of the model; by default the folder's name")
    add("--nodes", type=at_least(1), default=1, help="number of nodes of the SLURM job")
    add("--servers", type=at_least(1), default=1, help="number of servers per node")
    add("--gpus", type=at_least(0), default=0, help="number of GPUs per node, divided among its servers")
    add("--behind", nargs="+", default=[], help="addresses of running servers (scripts.serve), not new ones")
    add("--host", default="127.0.0.1", help="address to listen on; by default only this machine can connect")
    add("--port", type=at_least(0), default=30000, help="port to listen on")
    add("--api-key-env", default="", help="environment variable with the access token; default: random")
    add("--token", type=Path, default=Path("server.token"), help="file to write the access token to")
    add("--log", type=Path, default=Path("server.log"), help="file for the servers' output")
    add("--context-length", type=at_least(1), help=f"tokens; default {CONTEXT}, or the model's limit")
    add("--max-total-tokens", type=at_least(1), help="a server's cache size in tokens; default: all that fit")
    add("--max-running-requests", type=at_least(1), default=32, help="limit of requests at once per server")
    add("--sglang-args", default="", help="further options of sglang, as one argument")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    length = args.context_length or longest_context(args.weights, args.base, CONTEXT)
    settings = {"base": args.base, "context_length": length, "max_total_tokens": args.max_total_tokens}
    settings["max_running_requests"] = args.max_running_requests
    name = args.name or args.weights.resolve().name
    where = {"host": args.host, "port": args.port, "key_env": args.api_key_env}
    if args.behind:
        front = Front(name, **where, token=args.token, log=args.log, settings=settings)
        gate_by_hand(args.weights, args.behind, front)
    else:
        settings["extra_args"] = further_options(args.sglang_args)
        front = Front(name, **where, token=args.token, log=args.log, settings=settings)
        job = Job(nodes=args.nodes, servers=args.servers, gpus=args.gpus)
        serve_fleet_by_hand(args.weights, job, front)


if __name__ == "__main__":
    run_script(main)
