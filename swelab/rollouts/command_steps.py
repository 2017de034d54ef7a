"""Lists the commands of a conversation, each with its exit code and the beginning and end of its output."""

from collections.abc import Iterator, Sequence

from swelab.records import Record

SHOWN = 2000
"""Number of characters that are kept from the beginning and from the end of a command's output."""


def steps(messages: Sequence[Record]) -> Iterator[Record]:
    """Yields each command with its exit code (None if there is none) and the beginning and end of its
    output."""
    number = 0
    for place, message in enumerate(messages):
        actions = message.get("extra", {}).get("actions", []) if message["role"] == "assistant" else []
        for action, answer in zip(actions, messages[place + 1 :], strict=False):
            extra, output = answer.get("extra", {}), str(answer["content"])
            code = extra.get("returncode")
            yield {
                "step_idx": number,
                "action": action["command"],
                "returncode": code,
                "output_len": len(output),
                "output_head": output[:SHOWN],
                "output_tail": output[SHOWN:][-SHOWN:],
                "seconds": extra.get("seconds"),
                "ok": code == 0,
            }
            number += 1
