"""Syntax trees of Python code that several threads parse at once."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.files import python_syntax

CODE = "\n".join(
    f"def f{n}(a, b=[1, 2, {{'x': (1, 2)}}]):\n    return (a + (b * ({n} - a)))" for n in range(300)
)


class Ends:
    """Garbage whose deletion lets other threads run."""

    def __init__(self):
        self.me = self

    def __del__(self):
        sum(range(3))


@pytest.fixture
def restless():
    """Makes threads switch very often."""
    old, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*old)
    sys.setswitchinterval(interval)


def test_threads_do_not_disturb_one_another(restless):
    def work(_):
        Ends()
        return len(python_syntax.parse_python(CODE).body)

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(work, range(24))) == {300}


def test_what_is_no_python_is_told():
    with pytest.raises(SyntaxError):
        python_syntax.parse_python("def")
