"""What SLURM's programs are asked before jobs are sent."""

import pytest

from swelab.cluster.slurm import SlurmError, require_controller


def test_jobs_are_sent_only_where_a_controller_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="no SLURM controller answers here .no program scontrol.*nothing"):
        require_controller()
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho Slurmctld is DOWN >&2\nexit 1\n")
    scontrol.chmod(0o755)
    with pytest.raises(SlurmError) as fault:
        require_controller()
    assert "Slurmctld is DOWN" in str(fault.value) and "\n" not in str(fault.value)
    scontrol.write_text("#!/bin/sh\nexit 0\n")
    require_controller()
