import subprocess
import sys

import pytest

from swelab.sft.train.step_log import own_peak

CODE = "from swelab.sft.train.step_log import own_peak\nprint(own_peak())"


@pytest.mark.full
def test_a_peak_is_that_of_the_process_and_not_of_its_parent():
    held = bytearray(800 << 20)
    held[:: 1 << 12] = b"1" * len(held[:: 1 << 12])
    assert own_peak() > 800 << 10
    child = int(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout)
    assert 10 << 10 < child < 700 << 10
    assert len(held)
