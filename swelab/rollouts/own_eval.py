"""Reads the result of an agent's last call of its tool `eval`. Published rewards depend on this result."""

from collections.abc import Iterable

from swelab.records import Record
from swelab.records.attempt_records import Message


def own_eval(messages: Iterable[Message]) -> Record:
    """Returns {"own_eval": "passed" or "failed"} for the last `eval` in a conversation, or {} if there is
    none. An `eval` that ends the rollout has no observation. Its tests passed if the patch was submitted."""
    result, waiting = "", list[str]()
    for message in messages:
        extra = message.get("extra") or {}
        if message.role == "assistant":
            waiting = [str(action.get("tool", "")) for action in extra.get("actions", ())]
        elif message.role == "exit":
            if waiting and waiting[0] == "eval":
                result = "passed" if extra.get("exit_status") == "Submitted" else "failed"
        elif waiting and "returncode" in extra and waiting.pop(0) == "eval":
            result = "passed" if extra["returncode"] == 0 else "failed"
    return {"own_eval": result} if result else {}
