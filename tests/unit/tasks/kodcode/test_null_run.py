"""The stand-in for code that cannot be imported."""

from unittest.mock import MagicMock

from swelab.tasks.kodcode.null_run import stand_in


def test_a_stand_in_has_every_name():
    names = {}
    exec(stand_in("LIMIT = 3\ndef one():\n    pass\nclass Two:\n    pass\n_hidden = 1\n"), names)  # noqa: S102
    assert names["__all__"] == ["one", "Two", "LIMIT"]
    assert isinstance(names["__getattr__"]("anything"), MagicMock)
    exec(stand_in("def broken(:\nasync def two(): pass\n"), names)  # noqa: S102
    assert names["__all__"] == ["broken", "two"]
