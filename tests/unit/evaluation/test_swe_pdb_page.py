"""docs/coming-from-swe-pdb.md compared with the existing scripts and names."""

import yaml

from swelab.evaluation.debug_gym_run import (
    ENVIRONMENT,
    ENVIRONMENT_UNUSED,
    READ,
    UNUSED,
    RunRequest,
    read_settings,
)
from tests.conftest import ROOT

HERE = ROOT / "swe-pdb"


def test_shipped_configurations_are_read():
    known = READ | UNUSED | ENVIRONMENT | ENVIRONMENT_UNUSED
    for path in sorted((HERE / "scripts").glob("config_*.yaml")):
        for agent, tools in (("debug_agent", 5), ("rewrite_agent", 4)):
            found = read_settings(RunRequest(path, agent))
            assert len(found["tools"]) == tools and found["max_steps"] == 80
            assert found["max_rewrite_steps"] == (30 if path.stem == "config_edit" else 10)
            assert set(found) <= known and ("pdb" in found["tools"]) == (agent == "debug_agent")
        assert yaml.safe_load(path.read_text())["base"]["env_kwargs"]["run_timeout"] == 30
