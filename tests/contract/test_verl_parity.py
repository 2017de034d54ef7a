"""Our method and verl's on the same samples agree where both define the case. Other cases give a reason."""

import json
import os
import subprocess

import pytest

from tests.at_hand import ROOT, VERL, needs_verl

pytestmark = [pytest.mark.real, pytest.mark.full, needs_verl]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def cases():
    """The output of the program in verl's environment, by part and name."""
    words = [VERL, "-m", "tests.contract.verl_parity", "--json"]
    settings = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "VERL_USE_EXTERNAL_MODULES": "",
    }
    said = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr[-2000:]
    lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def apart(case):
    return max(abs(one - other) for one, other in zip(case["ours"], case["verl"], strict=True))


def test_they_agree_wherever_both_define_the_case(cases):
    same = [case for case in cases if not case["differs"]]
    wrong = {f"{case['part']}: {case['name']}": apart(case) for case in same if not apart(case) <= TOLERANCE}
    assert not wrong
    assert {case["part"] for case in same} == {
        "advantage", "failure", "switch", "loss", "aggregation", "divergence", "mismatch"
    }  # fmt: skip


def test_no_case_is_of_zeros(cases):
    """An empty batch would agree with everything."""
    assert all(any(abs(value) > 1e-3 for value in case["ours"] + case["verl"]) for case in cases)


def test_what_is_said_to_differ_differs(cases):
    told = {f"{case['part']}: {case['name']}": apart(case) for case in cases if case["differs"]}
    assert len(told) >= 12 and all(value > 1e-3 for value in told.values()), told
