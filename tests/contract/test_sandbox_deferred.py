"""Sandboxes that are removed in the background: unusable at once, and gone when the work ends."""

import threading

import pytest

from swelab.sandbox import Limits, SandboxLost
from swelab.sandbox.deferred import DeferredBackend
from tests.contract.attacks import PATIENCE

pytestmark = pytest.mark.real
BACKENDS = ("bubblewrap", "docker", "remote")


def test_none_is_left_when_the_work_ends(place, tree):
    with DeferredBackend(place, most=2) as deferred:
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
    """A place whose sandboxes stay until `helper` itself removes one."""

    def __init__(self, helper):
        self.helper, self.free, self.closed_by = helper, threading.Event(), []

    def start(self, tree, **options):
        return self

    def close(self):
        if threading.current_thread() is self.helper:
            self.free.set()
        assert self.free.wait(PATIENCE)
        self.closed_by.append(threading.current_thread())


def test_whoever_closes_too_many_waits():
    slow = Slow(threading.current_thread())
    with DeferredBackend(slow, most=2) as deferred:
        for _ in range(2):
            deferred.start(None).close()
        assert slow.closed_by == []
        deferred.start(None).close()
        assert slow.closed_by.count(slow.helper) == 1, "it has gone on before its own sandbox was removed"
    assert len(slow.closed_by) == 3
