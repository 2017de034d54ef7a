"""Rejection sampling: resolved trajectories become training conversations, and every other one is counted.

Two passes. The first reads the trajectories one by one, and spools the conversations that qualify;
only their measures stay in memory. The second chooses among them and reads the chosen ones back in
order of their instance. Equal inputs make equal bytes, in whatever order they come.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from swelab.records import InputError, Record, check, line, read_jsonl
from swelab.sft.lengths import ChatTokenizer, Length, canonical, distribution
from swelab.tasks.checkout import encode_patch

LOST = ("sandbox_lost", "model_lost", "not_recorded")
ROLES = ("system", "user", "assistant")
KEPT = "kept"

Verdicts = Mapping[tuple[str, str], Record]
"""Grades by (policy, instance id): what is needed of each."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A resolved conversation in the spool; candidates order as the dataset does."""

    instance_id: str
    tokens: int
    policy: str
    digest: str
    offset: int = field(compare=False)
    length: Length = field(compare=False)


@dataclass
class Dataset:
    """Chosen candidates in order, all candidates with their fate, and what was dropped for which reason."""

    chosen: list[Candidate]
    fates: list[tuple[Candidate, str]]
    dropped: Counter[str]
    trajectories: int
    spool: IO[bytes]

    def rows(self) -> Iterator[Record]:
        """The training rows: {"messages", "instance_id", "policy", "resolved"}."""
        for candidate in self.chosen:
            self.spool.seek(candidate.offset)
            yield json.loads(self.spool.readline())

    def table(self) -> list[tuple[str, Length, str]]:
        """Instance, length and fate of every resolved conversation."""
        return [(candidate.instance_id, candidate.length, fate) for candidate, fate in self.fates]

    def facts(self, limit: int) -> Record:
        """Counts that add up: trajectories = kept + all that was dropped; and token lengths."""
        lengths = [candidate.length for candidate in self.chosen]
        return {
            "trajectories": self.trajectories,
            KEPT: len(self.chosen),
            "dropped": dict(sorted(self.dropped.items())),
            "tokens": sum(length.tokens for length in lengths),
            "assistant_tokens": sum(length.assistant_tokens for length in lengths),
            "turns": sum(length.turns for length in lengths),
            "lengths_of_resolved": distribution([c.length.tokens for c, _ in self.fates], limit),
            "lengths_of_kept": distribution([length.tokens for length in lengths], limit),
        }


def load_verdicts(paths: Iterable[Path]) -> dict[tuple[str, str], Record]:
    """What the dataset needs of each grade. Raises InputError on a bad row or one graded twice."""
    found: dict[tuple[str, str], Record] = {}
    for path in paths:
        for grade in read_jsonl(path):
            check(grade, "grade", path)
            key = (grade.get("policy", ""), grade["instance_id"])
            if key in found:
                raise InputError(f"{grade['instance_id']} is graded twice", path, "one grade a trajectory")
            found[key] = {name: grade.get(name) for name in ("status", "resolved", "patch_sha256")}
    return found


def build_dataset(
    trajectories: Iterable[Record],
    grades: Verdicts,
    selection: Record,
    tokenizer: ChatTokenizer,
    spool: IO[bytes],
) -> Dataset:
    """Chooses training conversations among `trajectories`; `spool` is an empty file open for both ways.

    `selection` holds max_tokens, per_instance and malformed_turns. A grade is looked up under
    (policy, instance) and, where grades name no policy, under ("", instance).
    """
    dropped: Counter[str] = Counter()
    candidates: list[Candidate] = []
    count = 0
    for trajectory in trajectories:
        count += 1
        reason = verdict(trajectory, grades)
        messages = conversation(trajectory["messages"])
        reason = reason or defect(trajectory["messages"], messages, selection, tokenizer)
        if reason:
            dropped[reason] += 1
        else:
            candidates.append(_spool(trajectory, messages, tokenizer, spool))
    fates = sorted(choose(candidates, selection), key=lambda pair: pair[0])
    dropped.update(fate for _, fate in fates if fate != KEPT)
    chosen = [candidate for candidate, fate in fates if fate == KEPT]
    return Dataset(chosen, fates, dropped, count, spool)


def verdict(trajectory: Record, grades: Verdicts) -> str:
    """Why a trajectory is not resolved: its loss, or the status of its grade; '' when it is."""
    if trajectory["outcome"] in LOST:
        return trajectory["outcome"]
    name = trajectory["instance_id"]
    grade = grades.get((trajectory["policy"], name)) or grades.get(("", name))
    if grade is None:
        return "not_graded"
    if not grade["resolved"]:
        return grade["status"] if grade["status"] != "resolved" else "unresolved"
    patch = hashlib.sha256(encode_patch(trajectory["model_patch"])).hexdigest()
    if grade.get("patch_sha256", patch) not in (patch, None):
        return "grade_of_another_patch"
    return ""


def conversation(messages: list[Record]) -> list[Record]:
    """Roles and contents up to the last assistant turn; mini-swe-agent's `exit` message is left out."""
    turns = [{"role": m["role"], "content": m.get("content")} for m in messages if m["role"] != "exit"]
    while turns and turns[-1]["role"] != "assistant":
        turns.pop()
    return turns


def defect(messages: list[Record], turns: list[Record], selection: Record, tokenizer: ChatTokenizer) -> str:
    """Why a resolved conversation cannot be trained on; '' when it can."""
    if not turns:
        return "no_assistant_turn"
    if any(turn["role"] not in ROLES or not isinstance(turn["content"], str) for turn in turns):
        return "not_plain_text"
    malformed = any(m.get("extra", {}).get("interrupt_type") == "FormatError" for m in messages)
    if malformed and selection["malformed_turns"] == "drop":
        return "malformed_turn"
    if tokenizer.has_special_token(turns):
        return "special_token_in_text"
    return ""


def choose(candidates: Iterable[Candidate], selection: Record) -> Iterator[tuple[Candidate, str]]:
    """Each candidate with its fate: kept, duplicate, too_long or over_per_instance; shortest first."""
    seen: set[str] = set()
    kept: Counter[str] = Counter()
    for candidate in sorted(candidates):
        if candidate.digest in seen:
            fate = "duplicate"
        elif candidate.tokens > selection["max_tokens"]:
            fate = "too_long"
        elif kept[candidate.instance_id] >= selection["per_instance"]:
            fate = "over_per_instance"
        else:
            fate = KEPT
            kept[candidate.instance_id] += 1
        seen.add(candidate.digest)
        yield candidate, fate


def _spool(
    trajectory: Record, messages: list[Record], tokenizer: ChatTokenizer, spool: IO[bytes]
) -> Candidate:
    row = {
        "messages": messages,
        "instance_id": trajectory["instance_id"],
        "policy": trajectory["policy"],
        "resolved": True,
    }
    length = tokenizer.measure(messages)
    digest = hashlib.sha256(canonical(messages).encode()).hexdigest()
    offset = spool.tell()
    spool.write(line(row))
    return Candidate(row["instance_id"], length.tokens, row["policy"], digest, offset, length)
