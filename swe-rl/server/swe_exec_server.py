#!/usr/bin/env python3
"""Lends sandboxes of this machine's engine: --host, --port (5000) as there; the token is ours."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
if not (HERE.parent.parent / "stands_for.py").is_file():
    print(
        f"error: {HERE} is alone; expected it in a clone of the repository, which the host needs whole",
        file=sys.stderr,
    )
    sys.exit(2)
sys.path.insert(0, str(HERE.parent.parent))
from stands_for import fail, run  # noqa: E402

if __name__ == "__main__":
    most = os.environ.get("SWE_MAX_CONTAINERS_PER_NODE")
    if most and not most.isdecimal():
        fail(f"SWE_MAX_CONTAINERS_PER_NODE={most}; expected a whole number")
    run("scripts.exec_server", *(["--max-containers", most] if most else []), *sys.argv[1:])
