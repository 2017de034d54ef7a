"""Prepares trajectories for the report: sampled, truncated, with invisible characters made visible.

The output of a policy or a program is untrusted text. Truncated text has a note on how much is missing.
Control characters, bidirectional overrides and lone surrogates become visible marks.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping

from swelab.records import Record
from swelab.records.attempt_records import Grade, Message, Trajectory, is_refusal
from swelab.rollouts.recorded_actions import text_and_commands
from swelab.rollouts.recorded_thoughts import split_thoughts

STEPS = 160
"""Maximum number of steps shown of one trajectory: half from its start, half from its end."""
TEXT_CHARACTERS = 2400
PATCH_CHARACTERS = 8000
LOG_CHARACTERS = 4000
NOT_RUN = "action was not executed"
"""mini-swe-agent's note on a call that was not executed because an earlier call had ended the run."""
TESTS = 12
"""Maximum number of tests named in each group of a grade. Failures come first."""

_TAG = re.compile(r"<[^>]*>")
_CALL = re.compile(r"<function=\w+>")
_WRITTEN = re.compile(r"<function=[^>]*>.*?(?:</function>|\Z)", re.DOTALL)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def in_order(statuses: Iterable[Mapping[str, str]], seed: int) -> list[tuple[str, int]]:
    """Orders all attempts for the page, two failures for each success. Returns (instance id, sample) pairs.

    statuses: one map from instance id to status for each sample. Failures are ordered by a hash of seed and
    id, and so are successes. The hash of an instance does not depend on other instances. So the page shows
    the same instances for all policies, and mostly the same ones after a benchmark has grown.
    """
    drawn = sorted(
        (hashlib.sha256(f"{seed} {name}".encode()).digest(), number, name, status == "resolved")
        for number, each in enumerate(statuses)
        for name, status in each.items()
    )
    seen = {True: 0, False: 0}
    ranked: list[tuple[int, int, str, int]] = []
    for _, number, name, good in drawn:
        seen[good] += 1
        ranked.append((seen[good] * (2 if good else 1), len(ranked), name, number))
    return [(name, number) for _, _, name, number in sorted(ranked)]


def visible(text: str) -> str:
    """Makes control, zero-width, direction-changing and surrogate characters in `text` visible."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text.replace("\r\n", "\n"))


def truncate(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """Truncates `text` to `limit` characters, with a note in its middle. Makes hidden characters visible."""
    if len(text) > limit:
        head, tail = text[: limit * 2 // 3], text[-limit // 3 :]
        text = f"{head}\n[{len(text) - len(head) - len(tail):,} characters left out]\n{tail}"
    return visible(text)


def content_text(content: object) -> str:
    """Returns a message's content as text. content: a string, None, or OpenAI's list of parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content
        )
    return "" if content is None else str(content)


def steps(messages: list[Message]) -> list[Record]:
    """Returns {"say", "commands", "observations"} for each assistant turn. Earlier messages are omitted.

    Optional fields: "thoughts" (the model's thoughts), "thought_tokens", "refused" (the agent took no command
    from the turn), "not_run" (indexes of commands that were not run), "tokens" [sent, written], "cost" in
    dollars, "model_seconds" and "command_seconds".
    """
    shown: list[Record] = []
    before = Message.of({})
    for number, message in enumerate(messages):
        if message.role == "assistant":
            answer: Record = messages[number + 1] if number + 1 < len(messages) else {}
            shown.append(assistant_step(message, is_refusal(answer)) | times(before, message))
        elif is_refusal(message) and before.get("role") != "assistant":
            shown.append({"say": "", "commands": [], "observations": [], "refused": True})
        if message.role in ("user", "tool") and shown:
            observe(shown[-1], message, before)
        before = message
    if len(shown) > STEPS:
        left_out = len(shown) - STEPS
        note = {"say": "", "commands": [], "observations": [], "left_out": left_out}
        shown = [*shown[: STEPS // 2], note, *shown[-STEPS // 2 :]]
    return shown


def assistant_step(message: Message, refused: bool) -> Record:
    """Converts an assistant turn to a step without observations.

    Commands are the actions that the agent recorded. If the format records no actions, the command is the
    turn's only fenced block. A turn without a command or a call in its text is marked as refused.
    """
    text, extra = content_text(message.content), message.get("extra") or {}
    thoughts, text = split_thoughts(message, text)
    actions = extra.get("actions") or []
    if actions and actions[0].get("tool"):  # the call's text would be shown twice
        text = _WRITTEN.sub("", text)
    said, commands = text_and_commands(text, message, r"[\w-]*")
    if not actions and (refused or len(commands) != 1):
        said, commands = text, []
    refused = refused or not (commands or _CALL.search(text))
    step: Record = {
        "say": truncate(text.strip() if refused else said.strip()),
        "commands": [] if refused else [truncate(command) for command in commands],
        "observations": [],
    }
    if thoughts:
        step["thoughts"] = truncate(thoughts)
    used = extra.get("usage") or (extra.get("response") or {}).get("usage") or {}
    if used:
        step["tokens"] = [used.get("prompt_tokens", 0), used.get("completion_tokens", 0)]
    if used.get("reasoning_tokens"):
        step["thought_tokens"] = used["reasoning_tokens"]
    if refused:
        step["refused"] = True
    return step | ({"cost": extra["cost"]} if extra.get("cost") else {})


def observe(step: Record, message: Message, before: Message) -> None:
    """Adds an observation to a step, with facts about the step's commands."""
    extra = message.get("extra") or {}
    if extra.get("exception_info") == NOT_RUN:
        step.setdefault("not_run", []).append(len(step["observations"]))
    step["observations"].append(truncate(content_text(message.content)))
    seconds = extra.get("seconds", seconds_between(before, message))
    if seconds is not None and not step.get("refused"):
        step["command_seconds"] = round(step.get("command_seconds", 0) + seconds, 3)


def times(before: Message, message: Message) -> Record:
    """Returns {"model_seconds": how long the model took to answer}, or {} if that was not recorded."""
    seconds = (message.get("extra") or {}).get("seconds", seconds_between(before, message))
    return {} if seconds is None else {"model_seconds": seconds}


def seconds_between(first: Message, second: Message) -> float | None:
    """Returns the seconds between the time stamps of two messages, or None if a stamp is missing."""
    stamps = [(message.get("extra") or {}).get("timestamp") for message in (first, second)]
    known = [stamp for stamp in stamps if isinstance(stamp, int | float)]
    return round(max(0.0, known[1] - known[0]), 3) if len(known) == 2 else None


def own(messages: list[Message]) -> list[Message]:
    """Returns the conversation without the demonstrations in the policy's prompt."""
    return [message for message in messages if not (message.get("extra") or {}).get("demonstration")]


def first_messages(messages: list[Message]) -> tuple[str, str]:
    """Returns the system prompt, and the last message before the policy's first turn."""
    system = prompt = ""
    for message in messages:
        if message.role == "assistant":
            break
        if message.role == "system":
            system = content_text(message.content)
        else:
            prompt = content_text(message.content)
    return truncate(system, 4 * TEXT_CHARACTERS), truncate(prompt, 4 * TEXT_CHARACTERS)


def turns(trajectory: Trajectory) -> int:
    """Returns the number of the policy's turns."""
    return sum(message.role == "assistant" for message in own(trajectory.messages))


def tokens(trajectory: Trajectory) -> int:
    """Returns the largest number of tokens at a turn, including the answer. Returns 0 if not recorded."""
    used = [(message.get("extra") or {}).get("usage") or {} for message in trajectory.messages]
    return max((each.get("prompt_tokens", 0) + each.get("completion_tokens", 0) for each in used), default=0)


def tests(grade: Grade) -> list[Record]:
    """Returns for each group of tests: its name, passed and total counts, and some tests with verdicts."""
    shown = []
    for group, verdicts in (grade.tests_status or {}).items():
        failed, passed = verdicts.failure, verdicts.success
        named = [[visible(name), False] for name in failed] + [[visible(name), True] for name in passed]
        shown.append({"group": group, "passed": len(passed), "total": len(named), "named": named[:TESTS]})
    return shown


def view(trajectory: Trajectory, grade: Grade, shown: list[Record], log: str) -> Record:
    """Returns an attempt for the page's viewer. shown: result of `tests`. log: output of the tests, or ''."""
    messages = own(trajectory.messages)
    system, prompt = first_messages(messages)
    return {
        "system": system,
        "prompt": prompt,
        "steps": steps(messages),
        "patch": truncate(trajectory.model_patch, PATCH_CHARACTERS),
        "reason": truncate(grade.reason),
        "tests": shown,
        "log": tail(log),
    }


def tail(log: str) -> str:
    """Returns the end of a log, with invisible characters made visible and a note on the missing part."""
    left_out = len(log) - LOG_CHARACTERS
    if left_out <= 0:
        return visible(log)
    return f"[{left_out:,} characters left out]\n{visible(log[-LOG_CHARACTERS:])}"


def packed_record(record: Record) -> str:
    """Returns a record as one line: JSON, compressed with zlib, in base64."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 9)).decode()


def text_of_line(line: str) -> str:
    """Returns the JSON text of a packed record, or any other line of the page unchanged."""
    try:
        return zlib.decompress(base64.b64decode(_TAG.sub("", line).strip(), validate=True)).decode()
    except (ValueError, zlib.error):
        return line
