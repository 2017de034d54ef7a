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
from swelab.sft.rows.lengths import ChatTokenizer, RenderedMessage, is_trained
from swelab.sft.rows.preferences import sides_of
from swelab.sft.train.token_rows import RowFile


class WeightedMessages(Transform):
    """Converts a row to torchtune's messages."""

    def __init__(self, base: str):
        """base: folder with the tokenizer and chat template of the rows."""
        self.plain, self.tokenizer = PlainRows(base), ChatTokenizer(base)

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Returns {"messages"}. If the chat template marks parts of turns, also returns "trained": whether
        each token of the conversation has a loss."""
        messages = self.plain.of(SftRow.of(sample))
        found: list[Message] = OpenAIToMessages()({"messages": messages})["messages"]
        for message, source in zip(found, messages, strict=True):
            message.masked = not is_trained(source)
        if not any(isinstance(source, RenderedMessage) for source in messages):
            return {"messages": found}
        return {"messages": found, "trained": self.tokenizer.encode(messages)[1]}


def labels_of(encoded: dict[str, Any]) -> list[int]:
    """Returns a label for each token of a row that torchtune's tokenizer encoded. Removes "trained"."""
    tokens = encoded["tokens"]
    trained = encoded.pop("trained", None) or [not masked for masked in encoded["mask"]]
    return [token if loss else CROSS_ENTROPY_IGNORE_IDX for token, loss in zip(tokens, trained, strict=False)]


class ChatTransform(SFTTransform):
    """Converts a row to tokens and labels, as torchtune's recipes read them."""

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        encoded: dict[str, Any] = super().__call__(sample)
        return encoded | {"labels": labels_of(encoded)}


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
    return ChatRows(data_files, ChatTransform(WeightedMessages(base), tokenizer))


class PairTransform(Transform):
    """Converts a pair to the tokens and labels of both sides, as torchtune's DPO recipe reads them."""

    def __init__(self, to_messages: WeightedMessages, tokenizer: Any):
        self.to_messages, self.tokenizer = to_messages, tokenizer

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, list[int]]:
        fields: dict[str, list[int]] = {}
        for name, row in zip(("chosen", "rejected"), sides_of(sample), strict=True):
            encoded = self.tokenizer(self.to_messages(row))
            fields |= {f"{name}_input_ids": encoded["tokens"], f"{name}_labels": labels_of(encoded)}
        return fields


def pair_dataset(tokenizer: Any, *, data_files: str, base: str) -> ChatRows:
    """Returns the pairs of `data_files`. base: folder with the chat template that formats tool calls."""
    return ChatRows(data_files, PairTransform(WeightedMessages(base), tokenizer))
