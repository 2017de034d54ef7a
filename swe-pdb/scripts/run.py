#!/usr/bin/env python3
"""CONFIG [--agent debug_agent|rewrite_agent] [OPTION...]: the offline evaluation of SWE-PDB."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "swe-rl"))
from stands_for import run  # noqa: E402

run("scripts.run_debug_gym", *sys.argv[1:])
