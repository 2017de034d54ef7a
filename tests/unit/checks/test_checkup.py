"""Messages about missing parts of a machine."""

from swelab.checks import checkup
from swelab.checks.finding import fix


def test_a_machine_without_torch(monkeypatch):
    monkeypatch.setattr(checkup, "package_version", lambda name: None)
    assert checkup.check_torch() == fix("torch: not installed; run make setup")
