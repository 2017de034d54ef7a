"""Checks that transformers and the server read a model as it is trained: its configuration, the names and
shapes of its weights, and the tokens of the training rows. No check reads a tensor, so all can run before a
training.

The server formats conversations with the model's chat template, and trainers with `ChatTokenizer`. If the two
disagree on how turns begin and end, the model performs badly without any error.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swelab.files.weights import header, weight_files
from swelab.records import Fault, InputError, Record
from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import PlainRows, bare, template_message
from swelab.sft.rows.lengths import TURN_END, ChatTokenizer, RenderedMessage, is_trained

SAMPLE_ROWS = 16
"""Number of conversations that a training checks before its start and after its end. The preflight checks all
conversations."""


class ParityError(Fault):
    """Raised if trainer, transformers and server read a model differently."""


def compare_rows(folder: Path, rows: Iterable[SftRow]) -> Record:
    """Checks that the chat template in `folder` writes the text of each row as it is trained.

    If a message's content begins with a newline, the chat template may split the same text into other tokens,
    because a header precedes the content. Such conversations are only counted. Any other difference raises
    ParityError. Raises InputError if transformers cannot read the tokenizer. Returns counts for a manifest.
    """
    ours, theirs, plain = ChatTokenizer(folder), _server_tokenizer(folder), PlainRows(folder)
    newline = theirs.encode("\n", add_special_tokens=False)
    end = theirs.convert_tokens_to_ids(TURN_END)
    count, split, ended = 0, 0, True
    for row in rows:
        count += 1
        spoken = plain.of(row)
        tokens, trained = ours.encode(spoken)
        has_loss = trained[-1] == is_trained(spoken[-1])
        ended = ended and has_loss
        if tokens[-1] != end or not (has_loss or isinstance(spoken[-1], RenderedMessage)):
            raise ParityError(f"{row.instance_id}: the last end-of-turn has no loss")
        served = _served_tokens(theirs, row)
        if tokens + newline == served:
            continue
        split += 1
        if theirs.decode(tokens + newline) != theirs.decode(served):
            what = "the chat template's text is not the text that is trained on"
            raise ParityError(f"{row.instance_id}: {what}")
    if not ended:
        text = "the chat template does not mark the ends of turns, so ending a turn is not trained"
        print(f"warning: {folder}: {text}", file=sys.stderr, flush=True)
    return {
        "conversations": count,
        "split_otherwise_by_chat_template": split,
        "last_turn_end_has_loss": ended,
    }


def _server_tokenizer(folder: Path) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"transformers cannot read the tokenizer: {line}", folder) from None


def _served_tokens(tokenizer: Any, row: SftRow) -> list[int]:
    """Returns the tokens of a conversation as the server has them. Raises ParityError."""
    from jinja2 import TemplateError

    messages = [template_message(message) for message in row.messages]
    try:
        tokens: list[int] = tokenizer.apply_chat_template(
            messages, tools=bare(row.tools) or None, return_dict=False
        )
    except (TemplateError, ValueError, TypeError) as error:
        line = " ".join(str(error).split())
        raise ParityError(f"{row.instance_id}: the chat template refuses the row: {line}") from None
    return tokens


def compare_shapes(folder: Path) -> None:
    """Checks that transformers' model has the weights of a folder. Raises InputError."""
    import torch
    import transformers

    where = folder / "config.json"
    try:
        with torch.device("meta"):
            config = transformers.AutoConfig.from_pretrained(folder)
            model: Any = transformers.AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"transformers cannot make the model: {line}", where) from None
    shapes = {name: part["shape"] for path in weight_files(folder) for name, part in header(path).items()}
    wanted = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    shared = set(getattr(model, "all_tied_weights_keys", None) or ())
    faults = {
        "lacks": [name for name in wanted if name not in shapes and name not in shared],
        "has unknown": [name for name in shapes if name not in wanted],
        "has other shapes of": [name for name in wanted if name in shapes and shapes[name] != wanted[name]],
    }
    for what, names in faults.items():
        if names:
            raise InputError(
                f"{what} {len(names)} weights, such as {names[0]}", folder, f"the weights of {where}"
            )
