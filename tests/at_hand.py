"""Finds what only some machines have: real rows and trajectories, and the reference program."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SWELAB_DATA", ROOT.parent / "shared" / "data"))
TRAJECTORIES = DATA / "sweagent_trajs"
PEER = Path(os.environ.get("SWELAB_PEER_PYTHON", ROOT / ".venv-peer" / "bin" / "python"))
HARBOR = Path(os.environ.get("SWELAB_HARBOR_PYTHON", ROOT / ".venv-harbor" / "bin" / "python"))
VERL = Path(os.environ.get("SWELAB_VERL_PYTHON", ROOT / ".venv-verl" / "bin" / "python"))

needs_rows = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real rows at {DATA} (SWELAB_DATA names them)")
needs_trajectories = pytest.mark.skipif(
    not TRAJECTORIES.is_dir(), reason=f"no real trajectories at {TRAJECTORIES} (SWELAB_DATA names them)"
)
needs_peer = pytest.mark.skipif(
    not PEER.is_file(), reason=f"no swesmith 0.0.9 at {PEER}: `make peer` installs it"
)
needs_harbor = pytest.mark.skipif(
    not HARBOR.is_file(),
    reason=f"no harbor 0.26.0 at {HARBOR}: it wants Python 3.12 (SWELAB_HARBOR_PYTHON names one that has it)",
)
needs_verl = pytest.mark.skipif(
    not VERL.is_file(), reason=f"no verl 0.9.1 at {VERL}: `make verl` installs it"
)
