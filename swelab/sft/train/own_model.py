"""Uses a model folder of the user as the base model of a training."""

import shutil
from pathlib import Path

from swelab.files.model_config import family_of
from swelab.files.weights import check_weights, folder_facts
from swelab.records import InputError, Record
from swelab.records.training_records import RowMessage
from swelab.sft.rows.chat_template import ChatTemplate
from swelab.sft.rows.lengths import ChatTokenizer
from swelab.sft.train.base_reading import compare_shapes

CONVERSATION = [
    RowMessage(role="system", content="Answer briefly."),
    RowMessage(role="user", content="Which file?"),
    RowMessage(role="assistant", content="ls"),
    RowMessage(role="user", content="And now?"),
    RowMessage(role="assistant", content="cat a.py"),
]


def take_folder(folder: Path, output: Path) -> Record:
    """Checks the model in `folder` and fills the folder `output` with links to the model's files.

    Returns the `folder_facts`. Raises InputError, see `check_model`.
    """
    check_model(folder)
    facts = folder_facts(folder)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for name in facts["files"]:
        (output / name).symlink_to((folder / name).absolute())
    return facts


def check_model(folder: Path) -> None:
    """Raises InputError if a model cannot be fine-tuned here.

    Refuses missing, truncated or unreadable files, and an architecture that no trainer supports. Refuses a
    tokenizer or chat template that is not ChatML, and a template that formats turns differently from the
    training rows.
    """
    config = check_weights(folder)
    family_of(config, folder / "config.json")
    ChatTokenizer(folder)
    compare_shapes(folder)
    rendered = ChatTemplate(folder).plain(CONVERSATION, [])
    if [each.content for each in rendered] != [each.content for each in CONVERSATION]:
        what = "the chat template adds to or leaves out of a turn's text (reasoning, a default system prompt)"
        raise InputError(
            what, folder, "a template that writes each turn as <|im_start|>role, text, <|im_end|>"
        )
