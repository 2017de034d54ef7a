"""Sandboxes that are removed beside the work: gone when it ends, and of no use before."""

import threading

import pytest

from swelab.sandbox import Limits, SandboxLost
from swelab.sandbox.deferred import Deferred

pytestmark = pytest.mark.real
EVERY_BACKEND = True


def test_none_is_left_when_the_work_ends(place, tree):
    with Deferred(place, most=2) as deferred:
        boxes = []
        for _ in range(4):
            with deferred.start(tree, limits=Limits()) as box:
                assert box.exec("cat a.txt").output == b"hello\n"
                boxes.append(box._sandbox)
            with pytest.raises(SandboxLost, match="closed"):
                box.exec("true")
            box.close()
    for box in boxes:
        assert place.left_of(box) == []


class Slow:
    """A place whose sandboxes take their time to go."""

    def __init__(self):
        self.free, self.closed = threading.Event(), 0

    def start(self, tree, **options):
        return self

    def close(self):
        self.free.wait(10)
        self.closed += 1


def test_whoever_closes_too_many_waits():
    slow = Slow()
    with Deferred(slow, most=2) as deferred:
        for _ in range(2):
            deferred.start(None).close()
        assert slow.closed == 0
        threading.Timer(0.3, slow.free.set).start()
        deferred.start(None).close()
        assert slow.closed >= 1
    assert slow.closed == 3
