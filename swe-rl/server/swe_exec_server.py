#!/usr/bin/env python3
"""Lends sandboxes of this machine's engine: --host, --port (5000) as there; the token is ours."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stands_for import run  # noqa: E402

if __name__ == "__main__":
    most = os.environ.get("SWE_MAX_CONTAINERS_PER_NODE")
    run("scripts.exec_server", *(["--max-containers", most] if most else []), *sys.argv[1:])
