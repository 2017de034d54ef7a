"""Trajectories as the report shows them: sampled, cut to size, and with nothing invisible in them.

What a policy or a program printed is hostile text. It is cut (saying how much), and control
characters, bidirectional overrides and lone surrogates become visible marks.
"""

import hashlib
import re
from collections.abc import Iterable

from swelab.records import Record
from swelab.shards import attempt_name

STEPS = 40
"""Steps shown of one trajectory: the first and the last half of them."""
TEXT_CHARACTERS = 2400
PATCH_CHARACTERS = 8000
TESTS = 12
"""Tests named in each group of a grade, failures first."""

_BLOCK = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def sample(ids: Iterable[str], limit: int, seed: int) -> set[str]:
    """`limit` of the ids (all when there are fewer), drawn by a hash of seed and id.

    The draw of an id depends on no other id, so every policy shows the same instances and a grown
    benchmark keeps most of them.
    """
    return set(sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:limit])


def visible(text: str) -> str:
    """`text` with control, zero-width, direction-changing and surrogate characters made visible."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text.replace("\r\n", "\n"))


def cut(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """`text` made visible, its middle replaced by a note beyond `limit` characters."""
    if len(text) > limit:
        head, tail = text[: limit * 2 // 3], text[-limit // 3 :]
        text = f"{head}\n[{len(text) - len(head) - len(tail):,} characters left out]\n{tail}"
    return visible(text)


def content_text(content: object) -> str:
    """A message's content as text: a string, null, or OpenAI's list of parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content
        )
    return "" if content is None else str(content)


def steps(messages: list[Record]) -> list[Record]:
    """One {"say", "commands", "observations"} a turn of the policy; messages before it are not among them."""
    found: list[Record] = []
    for message in messages:
        text = content_text(message.get("content"))
        if message["role"] == "assistant":
            commands = [
                str(action.get("command", "")) for action in message.get("extra", {}).get("actions") or []
            ]
            blocks = _BLOCK.findall(text)
            found.append({
                "say": cut(_BLOCK.sub("", text).strip()),
                "commands": [cut(command) for command in commands or blocks],
                "observations": [],
            })  # fmt: skip
        elif found and message["role"] in ("user", "tool"):
            found[-1]["observations"].append(cut(text))
    if len(found) > STEPS:
        left_out = len(found) - STEPS
        note = {"say": "", "commands": [], "observations": [], "left_out": left_out}
        found = [*found[: STEPS // 2], note, *found[-STEPS // 2 :]]
    return found


def prompt(messages: list[Record]) -> str:
    """What the policy was given: the last message before its first turn."""
    given = ""
    for message in messages:
        if message["role"] == "assistant":
            break
        given = content_text(message.get("content"))
    return cut(given, 2 * TEXT_CHARACTERS)


def turns(trajectory: Record) -> int:
    """How many times the policy spoke."""
    return sum(message["role"] == "assistant" for message in trajectory["messages"])


def tokens(trajectory: Record) -> int:
    """Tokens of the conversation when the policy last spoke, its answer included; 0 where not counted."""
    used = [message.get("extra", {}).get("usage") or {} for message in trajectory["messages"]]
    return max((each.get("prompt_tokens", 0) + each.get("completion_tokens", 0) for each in used), default=0)


def tests(grade: Record) -> list[Record]:
    """Per group of tests: its name, how many passed of how many, and some of the tests with their verdict."""
    shown = []
    for group, verdicts in grade.get("tests_status", {}).items():
        failed, passed = verdicts["failure"], verdicts["success"]
        named = [[visible(name), False] for name in failed] + [[visible(name), True] for name in passed]
        shown.append({"group": group, "passed": len(passed), "total": len(named), "named": named[:TESTS]})
    return shown


def view(trajectory: Record) -> Record:
    """A trajectory as the page's viewer takes it, but for its grade."""
    sample = trajectory.get("sample", 0)
    return {
        "id": attempt_name(trajectory),
        **({"task": trajectory["instance_id"], "sample": sample} if sample else {}),
        "outcome": trajectory["outcome"],
        "prompt": prompt(trajectory["messages"]),
        "turns": turns(trajectory),
        "steps": steps(trajectory["messages"]),
        "patch": cut(trajectory["model_patch"], PATCH_CHARACTERS),
    }


def with_grade(shown: Record, grade: Record) -> Record:
    """A trajectory's view with its grade in it."""
    return {
        **shown,
        "status": grade["status"],
        "reason": cut(grade.get("reason", "")),
        "tests": tests(grade),
    }
