"""Counts the tokens of conversations as the trainer does, and summarizes their distribution.

torchtune encodes the header, content and end of each message separately (ChatML). Its loss covers assistant
turns: header, content, end-of-turn. This module encodes the same pieces with the model's fast tokenizer. So a
dataset can be measured without torch.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.records import InputError, Record, read_json
from swelab.records.training_records import RowMessage
from swelab.records.typed import TypedRecord, field

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Length:
    """Length of a conversation. turns: number of assistant turns. turn_tokens: tokens of each assistant turn.
    assistant_tokens: number of tokens that have a loss."""

    tokens: int
    assistant_tokens: int
    turns: int = 0
    turn_tokens: tuple[int, ...] = ()


class RenderedMessage(RowMessage):
    """A turn of the policy as a chat template writes it, of which only the marked text has a loss."""

    marks: list[Any] = field("spans [start, end] of the turn's text, which starts with <|im_start|>")


def is_trained(message: RowMessage) -> bool:
    """Returns whether a message's tokens have a loss: it is an assistant turn, and its weight is not 0."""
    return message.role == "assistant" and message.weight != 0


def teaches(message: RowMessage) -> bool:
    """Returns whether a message has a loss, and contains text or a tool call."""
    return is_trained(message) and bool(message.content.strip() or message.tool_calls)


class ChatTokenizer:
    """The tokenizer of a model whose chat format is ChatML, such as Qwen."""

    def __init__(self, folder: str | Path):
        """Raises InputError if the folder's tokenizer is missing, unreadable or not ChatML."""
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise InputError("no such file", path, "the base model's tokenizer")
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for a damaged file
            raise InputError(f"not a tokenizer: {error}", path) from None
        self.special_tokens = special_tokens(folder)
        for token in (TURN_START, TURN_END):
            if token not in self.special_tokens:
                raise InputError(f"has no special token {token}", path, "a model with the ChatML format")
        self.newline = len(self._encode(["\n"])[0])

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in self._encodings(texts)]

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        try:
            found: list[Any] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        except TypeError:  # the tokenizer's error for a lone surrogate
            raise InputError(
                "a text holds half a character (surrogate)", expected="whole characters"
            ) from None
        return found

    def encode(self, messages: Sequence[RowMessage]) -> tuple[list[int], list[bool]]:
        """Returns the token ids of a conversation, and for each token whether it is trained on.

        The last turn ends with the end-of-turn token. The newline that the chat template adds after that
        token is omitted, as in torchtune.
        """
        headers = self._encode([f"{message.role}\n" for message in messages])
        contents = self._encodings([message.content for message in messages])
        newline = self._encode(["\n"])[0]
        start, end = self.special_tokens[TURN_START], self.special_tokens[TURN_END]
        ids: list[int] = []
        trained: list[bool] = []
        for number, (message, header, content) in enumerate(zip(messages, headers, contents, strict=True)):
            tail = newline if number < len(messages) - 1 else []
            turn = [start, *header, *content.ids, end, *tail]
            ids += turn
            if is_trained(message) and isinstance(message, RenderedMessage):
                trained += self._mark_tokens(message, content.offsets)[: len(turn)]
            else:
                trained += [is_trained(message)] * len(turn)
        return ids, trained

    def _mark_tokens(self, message: RenderedMessage, offsets: Sequence[tuple[int, int]]) -> list[bool]:
        """Returns for each token of a turn, with the newline after it, whether marked text is in it.

        offsets: first and last character of each token of the content.
        """
        header = self._encodings([f"{message.role}\n"])[0].offsets
        places, shift = [(0, len(TURN_START))], len(TURN_START)
        for part in (header, offsets):
            places += [(first + shift, last + shift) for first, last in part]
            shift += len(message.role) + 1 if part is header else len(message.content)
        places.append((shift, shift + len(TURN_END)))
        places += [(shift + len(TURN_END), shift + len(TURN_END) + 1)] * self.newline
        return [any(first < end and start < last for start, end in message.marks) for first, last in places]

    def sizes(self, messages: Sequence[RowMessage]) -> list[int]:
        """Returns the tokens of each message, with header, end and the newline after the message."""
        headers = self._encode([f"{message.role}\n" for message in messages])
        contents = self._encode([message.content for message in messages])
        return [2 + len(h) + len(c) + self.newline for h, c in zip(headers, contents, strict=True)]

    def measure(self, messages: Sequence[RowMessage], sizes: Sequence[int] | None = None) -> Length:
        """Returns the conversation's length. sizes: number of tokens of each message, if known."""
        sizes = self.sizes(messages) if sizes is None else sizes
        spoken = [size for size, m in zip(sizes, messages, strict=True) if m.role == "assistant"]
        trained = [size for size, m in zip(sizes, messages, strict=True) if is_trained(m)]
        last = self.newline if messages and is_trained(messages[-1]) else 0
        marked = any(isinstance(message, RenderedMessage) for message in messages)
        return Length(
            tokens=max(0, sum(sizes) - self.newline),
            assistant_tokens=sum(self.encode(messages)[1]) if marked else sum(trained) - last,
            turns=len(spoken),
            turn_tokens=tuple(spoken),
        )

    def has_special_token(self, messages: Sequence[RowMessage]) -> bool:
        """Returns whether a message's text contains the name of a special token.
        The tokenizer would encode the name as that token."""
        texts = [text for message in messages for text in (message.content, message.reasoning_content)]
        texts += [call.function.arguments for message in messages for call in message.tool_calls]
        return any(token in text for text in texts for token in self.special_tokens)


def special_tokens(folder: str | Path) -> dict[str, int]:
    """Maps the text of each token added to a checkpoint's tokenizer to its id. Raises InputError."""
    path = Path(folder) / "tokenizer.json"
    try:
        return {token["content"]: token["id"] for token in read_json(path)["added_tokens"]}
    except (KeyError, TypeError):
        raise InputError("lists no added tokens", path, "a Hugging Face tokenizer") from None


def distribution(lengths: Sequence[int], limit: int | None = None) -> Record:
    """Returns the number, sum, mean, minimum, maximum and quantiles of lengths.
    If `limit` is given, also returns the number of lengths over the limit."""
    ordered = sorted(lengths)
    facts: Record = {"num_samples": len(ordered)}
    if limit is not None:
        facts[f"gt_{limit}"] = sum(length > limit for length in ordered)
    if not ordered:
        return facts
    facts |= {
        "total": sum(ordered),
        "mean": round(sum(ordered) / len(ordered), 1),
        "min": ordered[0],
        "max": ordered[-1],
    }
    return facts | {
        f"p{round(100 * q)}": ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in QUANTILES
    }


def stats(file: str | Path, lengths: Sequence[Length], limit: int, over_long: str) -> Record:
    """Returns statistics of a file of rows: {"file", "num_samples", "gt_<limit>", quantiles, ...}.

    Lengths are in tokens. "per_turn" has two distributions: tokens of an assistant turn, and turns of a row.
    over_long: the recipe's setting for conversations longer than `limit`.
    """
    turns = [tokens for length in lengths for tokens in length.turn_tokens]
    return {
        "file": str(file),
        **distribution([length.tokens for length in lengths], limit),
        "max_seq_len": limit,
        "over_long": over_long,
        "assistant_tokens": sum(length.assistant_tokens for length in lengths),
        "per_turn": {
            "tokens": distribution(turns),
            "turns_of_a_row": distribution([length.turns for length in lengths]),
        },
    }


class LengthStats(TypedRecord):
    """The fields of a dataset's statistics (see `stats`) that later stages read."""

    file: str = field("path of the file of rows")
    num_samples: int = field("number of rows")
    max: int = field("number of tokens of the longest row", default=0)
    over_long: str = field("treatment of longer conversations", default="keep_truncate")
    sha256: str = field("hash of the file of rows", default="")


def check_stats(data: Path, path: Path, limit: int) -> tuple[int, LengthStats]:
    """Checks that the statistics in `path` belong to the rows in `data`.

    Returns (number of rows over `limit`, statistics). Raises InputError if a file is missing or `data` has no
    row. Raises InputError if the statistics name another file or number of rows, or do not count rows over
    `limit`. Checks, order and messages are those of swesmith's local training scripts.
    """
    if not data.is_file():
        raise InputError(f"Data file not found: {data}")
    if not path.is_file():
        raise InputError(f"Stats file not found: {path}")
    record = read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("file"), str):
        raise InputError("Invalid stats file: missing string field `file`.", path)
    stats = LengthStats.of(record)
    theirs, ours = Path(stats.file).resolve(), data.resolve()
    if theirs != ours:
        where = f"stats.file = {theirs} data_file = {ours}"
        raise InputError(f"Stats file does not match target data file. {where}")
    _whole(record, "num_samples", path)
    with open(data, "rb") as stream:
        rows = sum(1 for text in stream if text.strip())
    if stats.num_samples != rows:
        counts = f"stats.num_samples = {stats.num_samples} data_file lines = {rows}"
        raise InputError(f"Sample count mismatch between stats and data file. {counts}")
    if not rows:
        raise InputError("holds no row", data, "training rows")
    over = _whole(record, f"gt_{limit}", path)
    return over, stats


def _whole(record: Record, name: str, path: Path) -> int:
    number = record.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise InputError(f"Invalid stats file: missing int field `{name}`.", path)
    return number


def table(rows: Sequence[tuple[str, Length, str]]) -> bytes:
    """Formats the result of `Dataset.table` as tab-separated values with a header."""
    lines = ["instance_id\ttokens\tassistant_tokens\tturns\tfate"]
    for name, length, fate in rows:
        lines.append(f"{name}\t{length.tokens}\t{length.assistant_tokens}\t{length.turns}\t{fate}")
    return ("\n".join(lines) + "\n").encode()


def canonical(messages: Iterable[Record]) -> str:
    """Returns a conversation's canonical JSON. Equal conversations have equal JSON."""
    return json.dumps(list(messages), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
