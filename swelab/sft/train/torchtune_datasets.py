"""Datasets for torchtune that support weight 0 and tool calls.

torchtune 0.6 reads only the role and text of a message. It would train on a turn of weight 0, and refuses
messages with the role tool. Here, turns of weight 0 have no loss, and tool calls are formatted as text. Rows
are read from the file one at a time.
"""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset
from torchtune.data import CROSS_ENTROPY_IGNORE_IDX, Message, OpenAIToMessages
from torchtune.datasets._sft import SFTTransform
from torchtune.modules.transforms import Transform

from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import PlainRows
from swelab.sft.rows.lengths import is_trained
from swelab.sft.rows.preferences import sides_of
from swelab.sft.train.token_rows import RowFile


class WeightedMessages(Transform):
    """Converts a row to torchtune's messages."""

    def __init__(self, plain: PlainRows):
        self.plain = plain

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, list[Message]]:
        messages = self.plain.of(SftRow.of(sample))
        found: list[Message] = OpenAIToMessages()({"messages": messages})["messages"]
        for message, source in zip(found, messages, strict=True):
            message.masked = not is_trained(source)
        return {"messages": found}


class ChatRows(Dataset[dict[str, Any]]):
    """The rows of a JSON Lines file, each converted by `transform`."""

    def __init__(self, path: str, transform: Transform):
        self.rows, self.transform = RowFile(path), transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample: dict[str, Any] = self.transform(self.rows[index])
        return sample


def chat_dataset(tokenizer: Any, *, data_files: str, base: str, packed: bool = False) -> ChatRows:
    """Returns the rows of `data_files`. base: folder with the chat template that formats tool calls."""
    return ChatRows(data_files, SFTTransform(WeightedMessages(PlainRows(base)), tokenizer))


class PairTransform(Transform):
    """Converts a pair to the tokens and labels of both sides, as torchtune's DPO recipe reads them."""

    def __init__(self, to_messages: WeightedMessages, tokenizer: Any):
        self.to_messages, self.tokenizer = to_messages, tokenizer

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, list[int]]:
        fields: dict[str, list[int]] = {}
        for name, row in zip(("chosen", "rejected"), sides_of(sample), strict=True):
            encoded = self.tokenizer(self.to_messages(row))
            pairs = zip(encoded["tokens"], encoded["mask"], strict=True)
            labels = [CROSS_ENTROPY_IGNORE_IDX if masked else token for token, masked in pairs]
            fields |= {f"{name}_input_ids": encoded["tokens"], f"{name}_labels": labels}
        return fields


def pair_dataset(tokenizer: Any, *, data_files: str, base: str) -> ChatRows:
    """Returns the pairs of `data_files`. base: folder with the chat template that formats tool calls."""
    return ChatRows(data_files, PairTransform(WeightedMessages(PlainRows(base)), tokenizer))
