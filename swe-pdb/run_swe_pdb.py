#!/usr/bin/env python3
"""Scores DeepSWE-Preview on SWE-bench Verified, without a debugger: a thin form of scripts.evaluate."""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "swe-rl"))
from stands_for import ROOT, at_least, run  # noqa: E402

KEY = "SWE_PDB_API_KEY"
MODEL, DATA, URL = (
    "agentica-org/DeepSWE-Preview",
    "princeton-nlp/SWE-bench_Verified",
    "http://localhost:30000/v1",
)
"""Values that are constants in the original."""


def main():
    usage = "%(prog)s [OPTION VALUE]...; --help lists the options"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    add = parser.add_argument
    add("--model_name", default=MODEL, help="as it is served")
    add("--base_url", default=URL, help="of the server")
    add("--data", default=DATA, help="rows, or a set on the hub")
    add("--n_parallel", type=at_least(1), default=1, help="attempts at once")
    add("--output_dir", type=Path, help="folder of results; the same one goes on where a run stopped")
    args, further = parser.parse_known_args()
    output = args.output_dir or ROOT / "swe-pdb/output/run_swe_pdb" / time.strftime("%Y%m%d_%H%M%S")
    words = ["--model", f"openai/{args.model_name}", "--api-base", args.base_url, "--api-key-env", KEY]
    words += ["--data", args.data, "--output-dir", output, "--max-concurrent", args.n_parallel]
    words += ["--temperature", "1.0"]
    print(f"results are in {output}", file=sys.stderr)
    run("scripts.evaluate", *words, *further, **{KEY: os.environ.get(KEY) or "None"})


if __name__ == "__main__":
    main()
