"""The last call of an agent's tool `eval`, read from conversations."""

import pytest

from swelab.records.attempt_records import Message
from swelab.rollouts.own_eval import own_eval


def called(*tools):
    return Message.of(
        {"role": "assistant", "content": "", "extra": {"actions": [{"tool": t} for t in tools]}}
    )


def said(code, role="tool"):
    return Message.of({"role": role, "content": "", "extra": {"returncode": code}})


def ended(status):
    return Message.of({"role": "exit", "content": "", "extra": {"exit_status": status}})


ASKED = Message.of({"role": "user", "content": "fix it"})


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([ASKED, ended("Submitted")], {}),
        ([ASKED, called("view"), said(0), called("submit"), ended("Submitted")], {}),
        ([called("eval"), said(1), called("rewrite"), said(0), ended("Submitted")], {"own_eval": "failed"}),
        ([called("eval"), said(1), called("eval"), said(0), ended("LimitsExceeded")], {"own_eval": "passed"}),
        ([called("eval"), said(0, "user"), called("eval"), said(1, "user")], {"own_eval": "failed"}),
        ([called("eval"), ended("Submitted")], {"own_eval": "passed"}),
        ([called("eval"), ended("LimitsExceeded")], {"own_eval": "failed"}),
        ([called("view", "eval"), said(0), said(1)], {"own_eval": "failed"}),
        (
            [called("eval"), Message.of({"role": "user", "content": "no call"}), said(0)],
            {"own_eval": "passed"},
        ),
        ([Message.of({"role": "assistant", "content": "x"}), Message.of({"role": "user"})], {}),
    ],
)
def test_own_eval(messages, found):
    assert own_eval(messages) == found
