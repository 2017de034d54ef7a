"""Rejection sampling: resolved trajectories become training rows, and dropped ones are counted by reason.

With `selection.unresolved`, trajectories whose patch failed become rows, too. The first pass reads the
trajectories one by one and writes the conversations that qualify to a temporary file, the spool. Only their
lengths stay in memory. The second pass chooses among them and reads the chosen ones back, in order of their
instance. The order of the input does not change the output.

A conversation that is longer than the limit is dropped, truncated or split. Every row keeps the head: the
system prompt and the task. Exchanges follow, each one assistant turn and the observations after it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple

from swelab.configs.kinds.sft import Selection
from swelab.jobs.shards import attempt_name
from swelab.outcomes import FAILED_GRADES, TRAINABLE_ROLLOUTS, GradeEnd
from swelab.records import InputError, Record, line, read_records
from swelab.records.attempt_records import UNASKED, Grade, Message, Trajectory
from swelab.records.training_records import RowMessage, SftRow, Tool
from swelab.rollouts.recorded_thoughts import thoughts_of
from swelab.sft.rows.chat_template import ChatTemplate, needs_template, stripped_thoughts
from swelab.sft.rows.lengths import ChatTokenizer, Length, canonical, distribution, is_trained, teaches
from swelab.sft.rows.selection import CHOSEN, FATE_GATES, Candidate, DropCounts, choose, exclusion_reason
from swelab.sft.rows.styles import (
    Conversation,
    Style,
    Thoughts,
    Unfit,
    choose_thoughts,
    failed_turns,
    write_conversation,
)
from swelab.tasks.patch_application import encode_patch

DROP, LEFT, SPLIT, KEEP = "drop", "truncate_left_of_last_turn", "split", "keep_truncate"
Span = tuple[int, int]
"""(first, end): the range of exchanges from `first` to `end` - 1."""


def exchanges(messages: Sequence[RowMessage]) -> list[list[int]]:
    """Returns the message indexes of the head, then of each exchange."""
    head = list(takewhile(lambda number: messages[number].role != "assistant", range(len(messages))))
    groups = [head]
    for number in range(len(head), len(messages)):
        if messages[number].role == "assistant":
            groups.append([])
        groups[-1].append(number)
    return groups


def spans(sizes: Sequence[int], spoken: Sequence[int], policy: str, limit: int) -> list[Span]:
    """Divides an over-long conversation into rows. Returns the range of exchanges of each row.

    sizes: tokens of the head, then of each exchange. spoken: tokens of the assistant turn in each exchange.
    The policy `drop` makes no row. `truncate_left_of_last_turn` makes one row, with as many of the last
    exchanges as fit. `split` makes rows with all exchanges, or no row if an exchange is too long.
    `keep_truncate` makes one row, with as many of the first exchanges as fit. Of its last exchange, only the
    assistant turn needs to fit.
    """
    head, costs = sizes[0], sizes[1:]
    if policy == KEEP:
        kept = _fitting(costs, limit - head)
        more = kept < len(costs) and sum(costs[:kept]) + spoken[kept] <= limit - head
        return [(0, kept + more)] if kept + more else []
    if policy == LEFT:
        kept = _fitting(costs[::-1], limit - head)
        return [(len(costs) - kept, len(costs))] if kept else []
    result: list[Span] = []
    start = 0
    while policy == SPLIT and start < len(costs):
        count = _fitting(costs[start:], limit - head)
        if not count:
            return []
        result.append((start, start + count))
        start += count
    return result


def _fitting(costs: Sequence[int], room: int) -> int:
    """Returns the largest n such that the sum of the first n costs is at most `room`."""
    for count, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return count
    return len(costs)


def select_span(
    messages: Sequence[RowMessage], groups: Sequence[Sequence[int]], span: Span
) -> list[RowMessage]:
    """Returns the messages of the head and of the exchanges in `span`. groups: result of `exchanges`."""
    chosen = [*groups[0], *(number for group in groups[1:][slice(*span)] for number in group)]
    return [messages[number] for number in chosen]


ROLES = ("system", "user", "assistant")


class GradeFacts(NamedTuple):
    """The fields of a grade that the dataset needs.
    patch_sha256: None if the grade has none. evidence: how the grader knows that a patch is correct."""

    status: str
    resolved: bool
    patch_sha256: str | None
    evidence: str = UNASKED


Verdicts = Mapping[tuple[str, str, str], GradeFacts]
"""Maps (policy, subset, attempt_name) to a grade.
The policy or subset is '' if the grade's row does not have that field."""


@dataclass
class Dataset:
    """The chosen conversations, and what happened to the others.
    fates: every candidate with "kept" or the reason why it was dropped."""

    chosen: list[Candidate]
    fates: list[tuple[Candidate, str]]
    dropped: DropCounts
    notes: Counter[str]
    trajectories: int
    spool: IO[bytes]

    def rows(self) -> Iterator[SftRow]:
        """Yields rows: {"messages", "instance_id", "policy", "resolved"}. "tools" and "part" are optional."""
        for candidate in self.chosen:
            for offset, _ in candidate.rows:
                yield read_spooled(self.spool, offset)

    def lengths(self) -> list[Length]:
        """Returns the length of each row."""
        return [length for candidate in self.chosen for _, length in candidate.rows]

    def table(self) -> list[tuple[str, Length, str]]:
        """Returns (instance, length, fate) of every candidate. The fate is "kept" or why it was dropped."""
        return [(candidate.instance_id, candidate.length, fate) for candidate, fate in self.fates]

    def facts(self, limit: int) -> Record:
        """Returns counts and token lengths. Every trajectory is counted as kept or as dropped."""
        lengths = self.lengths()
        return {
            "trajectories": self.trajectories,
            CHOSEN: len(self.chosen),
            "kept_unresolved": sum(not candidate.resolved for candidate in self.chosen),
            "rows": len(lengths),
            "dropped": self.dropped.reasons(),
            "gates": self.dropped.gates(self.trajectories),
            "notes": dict(sorted(self.notes.items())),
            "tokens": sum(length.tokens for length in lengths),
            "assistant_tokens": sum(length.assistant_tokens for length in lengths),
            "turns": sum(length.turns for length in lengths),
            "lengths_of_resolved": distribution([c.length.tokens for c, _ in self.fates], limit),
            "lengths_of_kept": distribution([length.tokens for length in lengths], limit),
        }


def load_verdicts(paths: Iterable[Path]) -> dict[tuple[str, str, str], GradeFacts]:
    """Reads files of grades. Maps (policy, subset, attempt_name) to a grade's facts.
    Raises InputError if a row is malformed or an attempt has two grades."""
    verdicts: dict[tuple[str, str, str], GradeFacts] = {}
    for path, grade in read_records(paths, Grade):
        key = (grade.policy, grade.subset, attempt_name(grade))
        if key in verdicts:
            raise InputError(f"{attempt_name(grade)} is graded twice", path, "one grade a trajectory")
        verdicts[key] = grade_facts(grade)
    return verdicts


def grade_facts(grade: Grade) -> GradeFacts:
    """Returns the facts of a grade that the dataset needs. An unresolved patch that could have forged tests
    counts as suspect: no dataset has it."""
    status = GradeEnd.SUSPECT if grade.doubt else grade.status
    return GradeFacts(status, grade.resolved, grade.get("patch_sha256"), grade.evidence)


def build_dataset(
    trajectories: Iterable[Trajectory],
    grades: Verdicts,
    selection: Selection,
    tokenizer: ChatTokenizer,
    spool: IO[bytes],
    style: Style | None = None,
    template: ChatTemplate | None = None,
    thoughts: Thoughts = None,
) -> Dataset:
    """Chooses training conversations among `trajectories`.

    selection: the section of an SFT recipe. grades: searched for the trajectory's (policy, subset, name),
    then for (policy, '', name), then for ('', '', name). spool: an empty file, open to read and write.
    template: formats tool calls as text, for the style `tool`, and thoughts. thoughts: the recipe's
    `rows.thoughts`.
    """
    writer = RowWriter(selection, tokenizer, spool, style, template, thoughts)
    dropped = DropCounts()
    candidates: list[Candidate] = []
    count = 0
    for trajectory in trajectories:
        count += 1
        lost = trajectory.outcome not in TRAINABLE_ROLLOUTS
        status = why_unresolved(trajectory, grades, selection.evidence)
        if status and not (selection.unresolved and status in FAILED_GRADES):
            dropped.add("rollout" if lost else "grade", status)
        elif reason := exclusion_reason(trajectory, selection):
            dropped.add("criteria", reason)
        else:
            try:
                candidates.append(writer.write(trajectory, resolved=not status))
            except Unfit as unfit:
                dropped.add("conversation", str(unfit))
    fates = sorted(choose(candidates, selection), key=lambda pair: pair[0])
    for _, fate in fates:
        if fate != CHOSEN:
            dropped.add(FATE_GATES[fate], fate)
    chosen = [candidate for candidate, fate in fates if fate == CHOSEN]
    return Dataset(chosen, fates, dropped, writer.notes, count, spool)


def require_kept(facts: Record, paths: Sequence[Path]) -> None:
    """Raises InputError with the reasons if no trajectory in the files `paths` was kept.
    facts: the result of `Dataset.facts` or `Pairs.facts`."""
    if not facts[CHOSEN]:
        where = f"{paths[0]} and {len(paths) - 1} more" if paths[1:] else paths[0]
        what = f"nothing comes of {facts['trajectories']} trajectories ({facts['dropped']})"
        raise InputError(what if facts["trajectories"] else "holds no trajectory", where, "some to train on")


def why_unresolved(trajectory: Trajectory, grades: Verdicts, evidence: str = "resolved") -> str:
    """Returns '' if a trajectory is resolved, else its outcome or its grade's status.

    evidence: the evidence that a grade must have; "resolved" accepts any evidence. For a resolved grade with
    other evidence, returns the name of that evidence.
    """
    if trajectory.outcome not in TRAINABLE_ROLLOUTS:
        return trajectory.outcome
    name = attempt_name(trajectory)
    policy, subset = trajectory.policy, trajectory.subset
    keys = ((policy, subset, name), (policy, "", name), ("", "", name))
    grade = next((grades[key] for key in keys if key in grades), None)
    if grade is None:
        return "not_graded"
    patch = hashlib.sha256(encode_patch(trajectory.model_patch)).hexdigest()
    if grade.patch_sha256 not in (patch, None):
        return "grade_of_another_patch"
    if grade.status != GradeEnd.RESOLVED:
        return grade.status
    if not grade.resolved:
        return GradeEnd.UNRESOLVED
    return grade.evidence if evidence not in ("resolved", grade.evidence) else ""


def read_spooled(spool: IO[bytes], offset: int) -> SftRow:
    """Reads the row that was written to the spool at an offset."""
    spool.seek(offset)
    row = SftRow.of(json.loads(spool.readline()))
    spool.seek(0, 2)
    return row


@dataclass
class RowWriter:
    """Writes the rows of trajectories to the spool."""

    selection: Selection
    tokenizer: ChatTokenizer
    spool: IO[bytes]
    style: Style | None = None
    template: ChatTemplate | None = None
    thoughts: Thoughts = None
    notes: Counter[str] = field(default_factory=Counter)

    def write(self, trajectory: Trajectory, resolved: bool = True) -> Candidate:
        """Writes the rows of one trajectory. Raises Unfit if its conversation cannot be trained on."""
        if self.style is None:
            written = kept_text(trajectory.messages, self.selection, self.thoughts)
        else:
            written = write_conversation(trajectory, self.style, self.thoughts)
        if not any(map(teaches, written.messages)):
            raise Unfit("nothing_to_learn")
        if not is_unicode(written.messages):
            raise Unfit("half_a_character_in_text")
        if self.tokenizer.has_special_token(written.messages):
            raise Unfit("special_token_in_text")
        self.notes.update(written.notes)
        length, pieces = self._pieces(written)
        row = {"instance_id": trajectory.instance_id, "policy": trajectory.policy, "resolved": resolved}
        row |= {"sample": trajectory.sample} if "sample" in trajectory else {}
        rows = []
        for number, (messages, measured) in enumerate(pieces, 1):
            rows.append((self.spool.tell(), measured))
            part = {"part": [number, len(pieces)]} if len(pieces) > 1 else {}
            tools = {"tools": written.tools} if written.tools else {}
            self.spool.write(line({"messages": messages, **row, **tools, **part}))
        digest = hashlib.sha256(canonical(map(without_call_ids, written.messages)).encode()).hexdigest()
        named = (trajectory.instance_id, length.tokens, trajectory.policy)
        return Candidate(*named, digest, length, tuple(rows), trajectory.sample, resolved)

    def _pieces(self, written: Conversation) -> tuple[Length, list[tuple[list[RowMessage], Length]]]:
        """Returns the conversation's length, and the messages and length of each row.
        A conversation that is too long is truncated, split or dropped."""
        plain = self._plain(written.messages, written.tools)
        self.notes += Counter(thoughts_stripped=stripped_thoughts(written.messages, plain))
        sizes = self.tokenizer.sizes(plain)
        length, limit = self.tokenizer.measure(plain, sizes), self.selection.max_tokens
        if length.tokens <= limit:
            return length, [(written.messages, length)]
        parts, groups = exchanges(plain), exchanges(written.messages)
        costs = [sum(sizes[number] for number in group) for group in parts]
        spoken = [sizes[group[0]] for group in parts[1:]]
        policy = self.selection.over_long
        pieces = []
        for span in spans(costs, spoken, policy, limit + self.tokenizer.newline):
            messages = select_span(written.messages, groups, span)
            while messages and not is_trained(messages[-1]):
                messages.pop()
            if any(map(teaches, messages)):
                pieces.append((messages, self.tokenizer.measure(self._plain(messages, written.tools))))
            else:
                self.notes[f"{policy}_without_a_turn_to_learn"] += 1
        if pieces:
            self.notes[f"{policy}_rows"] += len(pieces)
        return length, pieces

    def _plain(self, messages: list[RowMessage], tools: list[Tool]) -> list[RowMessage]:
        if self.template and needs_template(messages, tools, self.template.is_marked):
            return self.template.plain(messages, tools)
        return messages


def is_unicode(messages: list[RowMessage]) -> bool:
    """Returns whether the messages can be encoded as UTF-8. Tokenizers refuse lone surrogates."""
    try:
        json.dumps(messages, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def without_call_ids(message: RowMessage) -> Record:
    """Returns the message without call ids, because the same call has another id in each run."""
    rest = {name: value for name, value in message.items() if name not in ("tool_call_id", "tool_calls")}
    calls = [call.function for call in message.tool_calls]
    return rest | ({"tool_calls": calls} if calls else {})


def kept_text(messages: list[Message], selection: Selection, thoughts: Thoughts = None) -> Conversation:
    """Returns the conversation as the policy wrote it, in plain text. Raises Unfit with the reason."""
    malformed = selection.malformed_turns
    turns = [_row_message(message) for message in messages if message.role != "exit"]
    while turns and turns[-1].role != "assistant":
        turns.pop()
    if not turns:
        raise Unfit("no_assistant_turn")
    if any(turn.role not in ROLES or not isinstance(turn.content, str) for turn in turns):
        raise Unfit("not_plain_text")
    refused = [n for n, m in enumerate(messages) if m.get("extra", {}).get("interrupt_type") == "FormatError"]
    if refused and malformed == "drop":
        raise Unfit("malformed_turn")
    notes: Counter[str] = Counter()
    masks = {
        "refused": [number - 1 for number in refused] if malformed == "mask" else [],
        "failed": sorted(failed_turns(messages)) if selection.failed_turns == "mask" else [],
    }
    for reason, numbers in masks.items():
        for number in numbers:
            if 0 <= number < len(turns) and turns[number].role == "assistant":
                turns[number] |= {"weight": 0}
                notes[f"{reason}_masked"] += 1
    choose_thoughts(turns, thoughts)
    while turns and not is_trained(turns[-1]):
        turns.pop()
    if not turns:
        raise Unfit("nothing_to_learn")
    return Conversation(turns, notes=notes)


def _row_message(message: Message) -> RowMessage:
    thoughts = thoughts_of(message) if message.role == "assistant" else ""
    beside = {"reasoning_content": thoughts} if thoughts else {}
    return RowMessage.of({"role": message.role, "content": message.content, **beside})
