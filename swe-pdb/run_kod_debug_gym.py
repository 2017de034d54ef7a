#!/usr/bin/env python3
"""Has a served model debug the tasks of a KodCode file, and grades it: a thin form of scripts.evaluate."""

import argparse
import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "swe-rl"))
from stands_for import ROOT, at_least, fail, run  # noqa: E402

KEY = "SWE_PDB_API_KEY"
HERE = ROOT / "swe-pdb"


def main():
    usage = "%(prog)s [OPTION VALUE]...; --help lists the options"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    add = parser.add_argument
    add("--parquet_path", default=HERE / "data/rl_train.parquets", help="rows, or task folders")
    add(
        "--model_name", default=os.environ.get("SWE_PDB_MODEL_PATH", "Qwen/Qwen3-14B"), help="as it is served"
    )
    add(
        "--base_url",
        default="http://localhost:2331/v1",
        help="of the server; '' serves the folder --model_name",
    )
    add(
        "--api_key",
        default="None",
        help=f"better in the environment variable {KEY}: a command line is public",
    )
    add("--n_parallel", type=at_least(1), default=1, help="attempts at once")
    add("--max_problems", type=at_least(1), help="the first ones; all by default")
    add("--max_steps", type=at_least(1), default=60, help="calls of an attempt")
    add("--n_samples", type=at_least(1), default=1, help="attempts at each task, for pass@k")
    add("--output_dir", type=Path, help="folder of results; the same one goes on where a run stopped")
    args, further = parser.parse_known_args()
    if not args.parquet_path or not Path(args.parquet_path).exists():
        fail(f"{args.parquet_path or repr('')}: no such file; expected --parquet_path with KodCode rows")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", args.model_name).strip("-")
    output = args.output_dir or HERE / "output/run_kod_debug_gym" / f"{time.strftime('%Y%m%d_%H%M%S')}_{stem}"
    words = ["--data", args.parquet_path, "--output-dir", output, "--max-concurrent", args.n_parallel]
    words += ["--step-limit", args.max_steps, "--samples", args.n_samples]
    words += ["--temperature", "1.0", "--no-thinking"]
    environment = {}
    if args.base_url:
        words += ["--model", f"openai/{args.model_name}", "--api-base", args.base_url, "--api-key-env", KEY]
        environment[KEY] = os.environ.get(KEY) or args.api_key
    else:
        words += ["--model", args.model_name]
    words += ["--max-instances", args.max_problems] if args.max_problems else []
    words += [] if "--scaffold" in further else ["--scaffold", ROOT / "configs/scaffolds/debugger.yaml"]
    print(f"results are in {output}", file=sys.stderr)
    run("scripts.evaluate", *words, *further, **environment)


if __name__ == "__main__":
    main()
