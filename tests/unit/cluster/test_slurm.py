"""Questions to SLURM's programs before jobs are sent."""

import pytest

from swelab.cluster.slurm import UNLIMITED, SlurmError, gpus_of, minutes_of, require_controller


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


def test_what_the_controller_says_is_understood():
    assert gpus_of("gpu:h100:8(S:0-1),nvme:1") == {"h100": 8}
    assert gpus_of("gpu:4") == {"": 4}
    assert gpus_of("gpu:a100:4,gpu:a100_3g.20gb:2") == {"a100": 4, "a100_3g.20gb": 2}
    assert gpus_of("(null)") == {}
    assert minutes_of("infinite") == UNLIMITED
    assert [minutes_of(text) for text in ("30", "30:00", "1:30:00", "2-00:00:00", "1-12")] == [
        30, 30, 90, 2880, 2160,
    ]  # fmt: skip
