"""Stores the paid turns of unfinished conversations, so that a resumed rollout does not pay for them again.

A resumed rollout runs its commands again, but gets the answers and observations of the first run. A new
observation, such as a different time in a test's output, would change the conversation. Then the paid answers
would no longer belong to the conversation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from swelab.jobs.journal import Journal
from swelab.models.billing.prices import TokenCounts
from swelab.records import Record, digest
from swelab.records.task_records import Task
from swelab.records.training_records import ToolCall
from swelab.records.typed import TypedRecord, field


class HostedAnswer(TypedRecord):
    """A turn of a hosted model, with its tokens, cost and duration."""

    content: str = field("text of the answer")
    finish_reason: str = field("reason of the end, as the service reports it")
    tool_calls: list[ToolCall] = field("tool calls of the answer", default=())
    sent_back: dict[str, Any] = field("further fields that later requests send back", default={})
    thoughts: str = field("thoughts that were a part of the text; not sent back", default="")
    usage: TokenCounts | None = field("token counts; null if the service reported none")
    cost: float = field("cost in dollars")
    cost_is: str = field("unknown, or at most; empty if the cost is exact", default="")
    seconds: float = field("duration of the call in seconds")


class PaidLine(TypedRecord):
    """A line of the journal: the answer to a conversation, or the observations after a conversation."""

    answer: HostedAnswer | None = field("the paid answer", default=None)
    seen: list[dict[str, Any]] = field("the messages that followed", default=())


class PaidTurns:
    """The journal of turns at `path`.

    Each line's key is the hash of the conversation so far. The line contains the answer to that conversation,
    or the observations after it. `replayed` counts the stored answers that were returned. `diverging` counts
    the new observations that differed from the first run's and were replaced by them. Raises InputError if
    another process uses the conversation.
    """

    def __init__(self, path: Path):
        self._journal = Journal(path)
        self.replayed = self.diverging = 0

    def answer(self, messages: list[Record]) -> HostedAnswer | None:
        """Returns the paid answer to this conversation, or None if there is none."""
        line = self._find(messages)
        self.replayed += line is not None
        return line.answer if line else None

    def record_reply(self, before: list[Record], fresh: list[Record]) -> list[Record]:
        """Returns the first run's observations after the conversation `before`, or `fresh` if there are
        none."""
        line = self._find(before)
        if line is None or [each["role"] for each in line.seen] != [each["role"] for each in fresh]:
            return fresh
        self.diverging += _content(line.seen) != _content(fresh)
        return line.seen

    def add(self, messages: list[Record], answer: HostedAnswer) -> None:
        """Writes a paid answer, and returns once the answer is on disk."""
        last = max((n for n, each in enumerate(messages) if each["role"] == "assistant"), default=-1)
        before = messages[: last + 1]
        lines: list[Record] = [{"key": _key(messages), "answer": answer}]
        if before and self._find(before) is None:
            lines.append({"key": _key(before), "seen": messages[last + 1 :]})
        self._journal.append(*lines)

    def _find(self, messages: list[Record]) -> PaidLine | None:
        key = _key(messages)
        return PaidLine.of(self._journal.get(key)) if key in self._journal else None

    def close(self) -> None:
        """Closes the journal of paid turns. The file stays on disk until its rollout is finished."""
        self._journal.close()


def request_message(message: Record) -> Record:
    """Returns a message with only the fields that a service accepts, and those of an answer that it wants
    back."""
    kept = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id")
    back = message.get("sent_back") or (message.get("extra") or {}).get("sent_back") or {}
    return {name: message[name] for name in kept if message.get(name) is not None} | back


def _content(messages: list[Record]) -> list[Record]:
    return [request_message(message) for message in messages]


def _key(messages: list[Record]) -> str:
    return digest(_content(messages))


class PaidRun:
    """The paid turns of a run, which is a policy on a subset. All shards of the run keep them in `folder`.

    The folder contains a ledger, and a file of paid turns for each unfinished conversation. The name of such
    a file is the key of the rollout.
    """

    def __init__(self, folder: Path, key_of: Callable[[Task], str]):
        self.folder, self.key_of = folder, key_of
        self.ledger = folder / "ledger.jsonl"

    def turns(self, task: Task) -> PaidTurns:
        """Opens the paid turns of a task's rollout. Raises InputError if another process uses them."""
        return PaidTurns(self._path(self.key_of(task)))

    def discard(self, key: str) -> None:
        """Deletes the paid turns of a finished rollout, because its trajectory contains them."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / "turns" / f"{key}.jsonl"
