#!/usr/bin/env python3
"""Runs a model on task rows and grades it, with eval_swe.py's options: a thin form of scripts.evaluate."""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stands_for import ROOT, at_least, fail, run  # noqa: E402

SCAFFOLD = ROOT / "configs/scaffolds/swe-rl.yaml"
KEY = "SWE_EVAL_API_KEY"


def main():
    usage = "%(prog)s --data ROWS --model MODEL [OPTION VALUE]...; --help lists the options"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    add = parser.add_argument
    add("--data", required=True, help="slime JSONL, or rows of a published set")
    add("--model", required=True, help="such as openai/Qwen/Qwen3-32B; or a folder of weights")
    add("--api-base", help="address of the service")
    add("--api-key", help="better in the environment variable OPENAI_API_KEY: a command line is public")
    add("--output-dir", default=f"output/eval_runs/{time.strftime('%Y-%m-%d_%H%M%S')}")
    env = os.environ.get
    add("--env-server-url", default=env("SWE_ENV_SERVER_URL"), help="a pool's address")
    add("--swe-config", default=env("SWE_CONFIG_PATH") or SCAFFOLD, help="a scaffold's recipe")
    add("--data-source", default="swe-gym", help="whose images rows mean that name none")
    add("--max-concurrent", default=env("SWE_MAX_CONCURRENT") or "4", type=at_least(1))
    add("--max-instances", type=at_least(0), help="the first ones; 0 for all")
    add("--shuffle", action="store_true", help="with a fixed seed")
    add("--step-limit", default="20", type=at_least(1))
    add("--max-tokens", default="4096", type=at_least(1))
    add("--temperature", default="0")
    args, further = parser.parse_known_args()
    for name in ("data", "model", "output_dir"):
        if not getattr(args, name):
            fail(f"--{name.replace('_', '-')} is empty; expected a value")
    words = ["--scaffold", args.swe_config]
    for name in ("data", "model", "output_dir", "max_concurrent", "step_limit", "max_tokens", "temperature"):
        words += [f"--{name.replace('_', '-')}", getattr(args, name)]
    words += ["--image-convention", "swe-bench" if "swe-bench" in args.data_source.lower() else "swe-gym"]
    words += ["--api-base", args.api_base] if args.api_base else []
    words += ["--max-instances", args.max_instances] if args.max_instances else []
    words += ["--shuffle"] if args.shuffle else []
    environment = {}
    if args.api_key:
        environment[KEY] = args.api_key
        words += ["--api-key-env", KEY]
    if args.env_server_url:
        environment |= {"SWELAB_BACKEND": "remote", "SWELAB_POOL": args.env_server_url}
    run("scripts.evaluate", *words, *further, **environment)


if __name__ == "__main__":
    main()
