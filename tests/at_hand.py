"""What only some machines have: real rows and trajectories, and the reference program."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SWELAB_DATA", ROOT.parent / "shared" / "data"))
TRAJECTORIES = DATA / "sweagent_trajs"
PEER = Path(os.environ.get("SWELAB_PEER_PYTHON", ROOT / ".venv-peer" / "bin" / "python"))

needs_rows = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real rows at {DATA} (SWELAB_DATA names them)")
needs_trajectories = pytest.mark.skipif(
    not TRAJECTORIES.is_dir(), reason=f"no real trajectories at {TRAJECTORIES} (SWELAB_DATA names them)"
)
needs_peer = pytest.mark.skipif(
    not PEER.is_file(), reason=f"no swesmith 0.0.9 at {PEER}: `make peer` installs it"
)
