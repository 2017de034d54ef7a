"""Chooses which thoughts of the policy a training row has (`rows.thoughts` of an SFT recipe)."""

from typing import Literal

from swelab.models.chat.turn_text import after_thoughts
from swelab.records.training_records import RowMessage
from swelab.sft.rows.lengths import is_trained

Thoughts = Literal["keep", "last", "drop"] | None


def choose_thoughts(messages: list[RowMessage], thoughts: Thoughts) -> None:
    """Removes the thoughts that are not trained from messages, in place.

    thoughts: "keep" keeps the thoughts of all turns, "last" those of the last trained turn, and "drop" none.
    None removes only thoughts that stand beside the text. A turn of which nothing is left gets the weight 0.
    """
    last = max((number for number, each in enumerate(messages) if is_trained(each)), default=-1)
    for number, message in enumerate(messages):
        if message.role != "assistant" or thoughts == "keep" or (thoughts == "last" and number == last):
            continue
        message.pop("reasoning_content", None)
        said = message.content if thoughts is None else after_thoughts(message.content)
        if said != message.content:
            message |= {"content": said.strip()}
            if not message.content and not message.tool_calls:
                message |= {"weight": 0}
