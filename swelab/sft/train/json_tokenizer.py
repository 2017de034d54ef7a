"""A tokenizer for torchtune that reads tokenizer.json.

torchtune's own tokenizer for Qwen2 reads vocab.json and merges.txt, which transformers 5 does not write. It
also has a splitting pattern of its own, so its tokens can differ from those that the server reads.
"""

from collections.abc import Sequence
from typing import Any

from torchtune.data import Message
from torchtune.modules.transforms import Transform

from swelab.records import Record
from swelab.records.training_records import RowMessage
from swelab.sft.rows.lengths import TURN_END, ChatTokenizer

PADDING = "<|endoftext|>"


class JsonTokenizer(Transform):
    """Encodes conversations in the ChatML format with the tokenizer of a model's folder."""

    def __init__(self, folder: str):
        self._tokenizer = ChatTokenizer(folder)
        special = self._tokenizer.special_tokens
        self.pad_id = special.get(PADDING, special[TURN_END])

    def tokenize_messages(self, messages: Sequence[Message], **_: Any) -> tuple[list[int], list[bool]]:
        """Returns the tokens of a conversation, and for each token whether it is masked."""
        rows = [
            RowMessage(role=each.role, content=each.text_content, weight=0 if each.masked else 1)
            for each in messages
        ]
        tokens, trained = self._tokenizer.encode(rows)
        return tokens, [not each for each in trained]

    def __call__(self, sample: Record, inference: bool = False) -> Record:
        """Replaces the `messages` of a sample by `tokens` and `mask`."""
        tokens, mask = self.tokenize_messages(sample["messages"])
        rest = {name: value for name, value in sample.items() if name != "messages"}
        return {**rest, "tokens": tokens, "mask": mask}
