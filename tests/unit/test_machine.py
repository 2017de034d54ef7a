"""A machine's resources within its control group and CUDA_VISIBLE_DEVICES, and free disk space."""

import pytest

from swelab import machine

LISTED = "0, 80000, 81559, NVIDIA H100 80GB HBM3\n1, 10, 81559, NVIDIA H100 80GB HBM3\n"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Writes a stand-in for the GPU driver's program, which prints its answer to the query."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{LISTED.replace(chr(10), chr(92) + 'n')}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("shown", "free"),
    [
        (None, [80000, 10]),
        ("1", [10]),
        ("0,1", [80000, 10]),
        ("", []),
        ("-1", []),
        ("GPU-5ebe9", [80000, 10]),
    ],
)
def test_gpus_are_those_that_are_not_hidden(driver, monkeypatch, shown, free):
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    found = machine.gpus()
    assert [gpu.free >> 20 for gpu in found] == free
    assert all(gpu.name == "NVIDIA H100 80GB HBM3" and gpu.total == 81559 << 20 for gpu in found)


def test_without_a_driver_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() == ()


def test_a_control_group_bounds_memory_and_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    free, total = machine.memory()
    assert 0 < free <= total and machine.cores() >= 1
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory()[0] > 3000
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.memory()[0] == 3000 and machine.cores() == 0.5


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_the_nearest_one_above(tmp_path):
    (tmp_path / "results").symlink_to(tmp_path / "elsewhere/results")
    (tmp_path / "elsewhere").mkdir()
    free, folder = machine.disk(tmp_path / "results/sft/demo")
    assert free > 0 and folder == (tmp_path / "elsewhere").resolve()
    assert machine.disk(tmp_path)[1] == tmp_path.resolve()
