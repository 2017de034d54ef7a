"""Errors that reach the guard's code from outside: signals, and the handlers that tested code sets."""

import json
import signal
import threading

import pytest

from swelab.grading.inside import channel


@pytest.fixture
def faults(tmp_path, monkeypatch):
    stream = tmp_path / "stream"
    stream.touch()
    monkeypatch.setattr(channel, "STREAM", str(stream))
    made = channel.Faults({"nonce": "n", "key": "00" * 32, "root": "/r", "changed": []})
    made.text = stream.read_text
    before = signal.getsignal(signal.SIGUSR1)
    yield made
    signal.signal(signal.SIGUSR1, before)


def send():
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)


def test_signals_wait_until_the_guard_has_finished(faults):
    steps = []
    signal.signal(signal.SIGUSR1, lambda number, frame: steps.append("handler"))
    with faults:
        send()
        steps.append("guard")
    assert steps == ["guard", "handler"] and not faults.text()


def test_a_handler_in_c_raises_outside_of_the_guard(faults):
    signal.signal(signal.SIGUSR1, int)
    with pytest.raises(TypeError), faults:
        send()
    assert not faults.text()
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize(
    ("handler", "patched"),
    [
        (int, f"a handler of signal {int(signal.SIGUSR1)}"),
        (json.loads, f"a handler of signal {int(signal.SIGUSR1)}"),
        (eval(compile("lambda number, frame: None", "handlers", "eval")), ""),  # noqa: S307
        (signal.SIG_IGN, ""),
    ],
    ids=["C", "Python with other arguments", "Python", "ignored"],
)
def test_an_error_that_a_handler_may_have_raised_is_none_of_the_guards(faults, handler, patched):
    signal.signal(signal.SIGUSR1, handler)
    with faults:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # too late: the handler was there
    with pytest.raises(ValueError, match="mine"), faults:
        raise ValueError("mine")
    assert f'"patched": "{patched}"' in faults.text()


def test_an_error_without_a_handler_is_the_guards(faults):
    with pytest.raises(ValueError, match="mine"), faults:
        raise ValueError("mine")
    assert '"patched": ""' in faults.text()
