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
from swelab.sft.rows.lengths import TURN_END, TURN_START, ChatTokenizer, RenderedMessage, is_trained

EVERY_TOKEN, ONE_OF = 128, 128
"""All rows are compared as texts. The first EVERY_TOKEN rows, and one of ONE_OF further rows, are also
compared token by token, since the tokens of 20,000 long rows would take more than twenty minutes."""
SAMPLE_ROWS = 16
"""Number of conversations that a training checks before its start and after its end. The preflight checks all
conversations."""


class ParityError(Fault):
    """Raised if trainer, transformers and server read a model differently."""


def compare_rows(folder: Path, rows: Iterable[SftRow]) -> Record:
    """Checks that the chat template in `folder` writes the text of each row as it is trained, and for some
    rows (EVERY_TOKEN, ONE_OF) that the server splits the text into the same tokens.

    If a message's content begins with a newline, the chat template may split the same text into other tokens,
    because a header precedes the content. Such conversations are only counted. Any other difference raises
    ParityError. Raises InputError if transformers cannot read the tokenizer. Returns counts for a manifest.
    """
    ours, theirs, plain = ChatTokenizer(folder), _server_tokenizer(folder), PlainRows(folder)
    newline = theirs.encode("\n", add_special_tokens=False)
    end = theirs.convert_tokens_to_ids(TURN_END)
    count, by_token, split, ended = 0, 0, 0, True
    for row in rows:
        spoken, text = plain.of(row), _served_text(theirs, row)
        if text != "".join(f"{TURN_START}{each.role}\n{each.content}{TURN_END}\n" for each in spoken):
            what = "the chat template's text is not the text that is trained on"
            raise ParityError(f"{row.instance_id}: {what}")
        count += 1
        if count > EVERY_TOKEN and count % ONE_OF:
            continue
        by_token += 1
        tokens, trained = ours.encode(spoken)
        has_loss = trained[-1] == is_trained(spoken[-1])
        ended = ended and has_loss
        if tokens[-1] != end or not (has_loss or isinstance(spoken[-1], RenderedMessage)):
            raise ParityError(f"{row.instance_id}: the last end-of-turn has no loss")
        served = theirs.encode(text, add_special_tokens=False)
        if tokens + newline == served:
            continue
        split += 1
        if theirs.decode(tokens + newline) != theirs.decode(served):
            what = "the server's tokens are not those that are trained on"
            raise ParityError(f"{row.instance_id}: {what}")
    if not ended:
        text = "the chat template does not mark the ends of turns, so ending a turn is not trained"
        print(f"warning: {folder}: {text}", file=sys.stderr, flush=True)
    return {
        "conversations": count,
        "compared_by_token": by_token,
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


def _served_text(tokenizer: Any, row: SftRow) -> str:
    """Returns the text of a conversation as the server has it. Raises ParityError."""
    from jinja2 import TemplateError

    messages = [template_message(message) for message in row.messages]
    try:
        text: str = tokenizer.apply_chat_template(messages, tools=bare(row.tools) or None, tokenize=False)
    except (TemplateError, ValueError, TypeError) as error:
        line = " ".join(str(error).split())
        raise ParityError(f"{row.instance_id}: the chat template refuses the row: {line}") from None
    return text


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
