"""Reads a dataset's rows one at a time as tokens and labels, for any trainer."""

import json
from pathlib import Path
from typing import NamedTuple

from swelab.records import Record
from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import PlainRows
from swelab.sft.rows.lengths import ChatTokenizer

IGNORED = -100
"""Label of a token without loss, for torch's cross-entropy."""


class RowFile:
    """Reads rows of a JSON Lines file by index, without holding them in memory."""

    def __init__(self, path: str | Path):
        self.path = path
        self.offsets: list[int] = []
        offset = 0
        with open(path, "rb") as stream:
            for text in stream:
                if text.strip():
                    self.offsets.append(offset)
                offset += len(text)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Record:
        with open(self.path, "rb") as stream:
            stream.seek(self.offsets[row])
            found: Record = json.loads(stream.readline())
        return found


class Sample(NamedTuple):
    """A row for a trainer: token ids, and one label per token. Labels are not shifted."""

    tokens: list[int]
    labels: list[int]


class TokenRows:
    """The rows of a file as samples."""

    def __init__(self, path: str | Path, base: str | Path):
        """base: folder with the tokenizer and chat template of the rows. Raises InputError."""
        self.rows = RowFile(path)
        self.plain, self.tokenizer = PlainRows(base), ChatTokenizer(base)

    def __getitem__(self, row: int) -> Sample:
        tokens, trained = self.tokenizer.encode(self.plain.of(SftRow.of(self.rows[row])))
        labels = [token if loss else IGNORED for token, loss in zip(tokens, trained, strict=True)]
        labels[0] = IGNORED  # in a pack, it would be predicted from the previous row
        return Sample(tokens, labels)
