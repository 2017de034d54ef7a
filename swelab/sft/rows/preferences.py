"""Pairs a resolved with an unresolved trajectory of the same task, for preference learning.

Both sides begin with the same messages. The rejected side is a trajectory whose patch failed. A trajectory
that was lost, or whose patch could not be graded, is counted as dropped, because it says nothing about the
model.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from swelab.configs.kinds.sft import PairChoice, Sft
from swelab.outcomes import FAILED_GRADES, TRAINABLE_ROLLOUTS
from swelab.records import Record, read_jsonl
from swelab.records.attempt_records import Trajectory
from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import ChatTemplate
from swelab.sft.rows.dataset import DROP, RowWriter, Verdicts, read_spooled, why_unresolved
from swelab.sft.rows.lengths import ChatTokenizer, Length, canonical
from swelab.sft.rows.selection import Candidate, exclusion_reason
from swelab.sft.rows.styles import Style, Unfit

SIDES = ("chosen_conversations", "rejected_conversations")


@dataclass(frozen=True)
class Side:
    """A trajectory that may be one side of a pair.
    status: '' if resolved. prompt: hash of the messages before the first assistant turn."""

    status: str
    prompt: str
    candidate: Candidate


@dataclass
class Pairs:
    """Chosen pairs in order, and the number of dropped trajectories for each reason."""

    chosen: list[tuple[str, Side, Side]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    trajectories: int = 0

    def lengths(self) -> list[Length]:
        """Returns the length of each pair's longer side."""
        return [
            max(good.candidate.length, bad.candidate.length, key=lambda each: each.tokens)
            for _, good, bad in self.chosen
        ]

    def rows(self, spool: IO[bytes]) -> Iterator[Record]:
        """Yields `sft_pair` records, with both conversations, the instance and the policies."""
        for name, good, bad in self.chosen:
            rows = [read_spooled(spool, side.candidate.rows[0][0]) for side in (good, bad)]
            tools = {"tools": rows[0].tools} if rows[0].tools else {}
            yield {
                **{side: row.messages for side, row in zip(SIDES, rows)},
                "instance_id": name,
                "policies": [row.policy for row in rows],
                "rejected_status": bad.status,
                **tools,
            }

    def facts(self) -> Record:
        """Returns counts. Every trajectory is counted as in a pair or as dropped."""
        used = {(side.status, side.candidate.digest, name) for name, *sides in self.chosen for side in sides}
        return {
            "trajectories": self.trajectories,
            "kept": len(self.chosen),
            "in_pairs": {"chosen": sum(not s for s, *_ in used), "rejected": sum(bool(s) for s, *_ in used)},
            "rejected_for": dict(sorted(Counter(bad.status for _, _, bad in self.chosen).items())),
            "dropped": dict(sorted((+self.dropped).items())),
            "notes": dict(sorted(self.notes.items())),
        }


def build_pairs(
    trajectories: Iterable[Trajectory],
    grades: Verdicts,
    recipe: Sft,
    tokenizer: ChatTokenizer,
    spool: IO[bytes],
    style: Style | None = None,
    template: ChatTemplate | None = None,
) -> Pairs:
    """Makes pairs as the sections `selection` and `pairs` of the SFT recipe request.

    A conversation longer than `selection.max_tokens` is dropped, because a pair compares how conversations
    end. spool: an empty file, open to read and write.
    """
    uncut = recipe.selection.model_copy(update={"over_long": DROP})
    writer = RowWriter(uncut, tokenizer, spool, style, template, recipe.rows.thoughts)
    pairs = Pairs()
    tasks: dict[tuple[str, str], list[Side]] = {}
    for trajectory in trajectories:
        pairs.trajectories += 1
        try:
            side = _side(trajectory, grades, writer)
        except Unfit as unfit:
            pairs.dropped[str(unfit)] += 1
            continue
        tasks.setdefault((trajectory.instance_id, trajectory.subset), []).append(side)
    for (name, _), sides in sorted(tasks.items()):
        for good, bad in _pair_up(sides, recipe.pairs, name, pairs.dropped):
            pairs.chosen.append((name, good, bad))
    pairs.notes = writer.notes
    return pairs


def _side(trajectory: Trajectory, grades: Verdicts, writer: RowWriter) -> Side:
    """Converts a trajectory to one side of a pair. Raises Unfit with the reason if that is impossible."""
    status = why_unresolved(trajectory, grades, writer.selection.evidence)
    if trajectory.outcome not in TRAINABLE_ROLLOUTS or (status and status not in FAILED_GRADES):
        raise Unfit(status)
    if reason := exclusion_reason(trajectory, writer.selection):
        raise Unfit(reason)
    candidate = writer.write(trajectory)
    if not candidate.rows:
        raise Unfit("too_long")
    messages = read_spooled(writer.spool, candidate.rows[0][0]).messages
    first = next(number for number, each in enumerate(messages) if each.role == "assistant")
    prompt = hashlib.sha256(canonical(messages[:first]).encode()).hexdigest()
    return Side(status, prompt, candidate)


def _pair_up(
    sides: Sequence[Side], settings: PairChoice, name: str, dropped: Counter[str]
) -> Iterator[tuple[Side, Side]]:
    """Yields at most `per_instance` pairs (resolved, failed) of a task. Both sides have the same prompt.
    Trajectories are reused in turn if one side has fewer trajectories than the other."""
    prompts: dict[str, tuple[dict[str, Side], dict[str, Side]]] = {}
    for side in sides:
        same = prompts.setdefault(side.prompt, ({}, {}))[bool(side.status)]
        dropped["duplicate"] += side.candidate.digest in same
        same.setdefault(side.candidate.digest, side)
    left = settings.per_instance
    for prompt in sorted(prompts):
        resolved, failed = prompts[prompt]
        good, bad = (_draw(found, settings.seed, name) for found in (resolved, failed))
        count = min(left, max(len(good), len(bad))) if good and bad else 0
        left -= count
        yield from ((good[i % len(good)], bad[i % len(bad)]) for i in range(count))
        if not good or not bad:
            wanting = "no_resolved_one_to_pair_with" if bad else "no_unresolved_one_to_pair_with"
            dropped[wanting] += len(good or bad)
        else:
            dropped["over_per_instance"] += max(0, len(good) - count) + max(0, len(bad) - count)


def _draw(sides: dict[str, Side], seed: int, name: str) -> list[Side]:
    def rank(side: Side) -> str:
        return hashlib.sha256(f"{seed} {name} {side.candidate.digest}".encode()).hexdigest()

    return sorted(sides.values(), key=rank)


def conversations(dataset: Path) -> Iterator[SftRow]:
    """Yields the conversations of a dataset: its rows, or both sides of its pairs, each with `messages`."""
    for row in read_jsonl(dataset):
        yield from sides_of(row)


def sides_of(row: Mapping[str, Any]) -> list[SftRow]:
    """Returns the conversations of a row: one conversation, or both sides of a pair."""
    if SIDES[0] not in row:
        return [SftRow.of(row)]
    return [SftRow.of({**row, "messages": row[side]}) for side in SIDES]
