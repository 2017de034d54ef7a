"""The observer's part in the set-up of a pytest run."""

from types import SimpleNamespace

import pytest

from swelab.grading.inside import observer


def options(**more):
    return SimpleNamespace(option=SimpleNamespace(**more))


SPREAD = {"numprocesses": 2, "dist": "load", "tx": ["popen"] * 2, "distload": True}


@pytest.mark.parametrize(
    ("watched", "found"),
    [(True, {"numprocesses": 0, "dist": "no", "tx": [], "distload": False}), (False, SPREAD)],
)
def test_tests_that_would_be_spread_run_in_the_watched_process(monkeypatch, watched, found):
    monkeypatch.setattr(observer, "OBSERVER", object() if watched else None)
    config = options(**SPREAD)
    next(observer.pytest_cmdline_main(config))
    assert vars(config.option) == found


def test_without_xdist_no_option_is_added(monkeypatch):
    monkeypatch.setattr(observer, "OBSERVER", object())
    config = options(verbose=1)
    next(observer.pytest_cmdline_main(config))
    assert vars(config.option) == {"verbose": 1}
