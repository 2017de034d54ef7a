"""Checks that trainer, transformers and server read the same model and the same tokens from a checkpoint.

The trainer (torchtune), transformers and the server each have their own tokenizer and model code. If they
disagree on how turns begin and end, the model performs badly without any error. So a fine-tuned checkpoint
gets its manifest only after these checks.
"""

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

from swelab.files.weights import weight_files
from swelab.records import Fault, Record
from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import PlainRows, bare, template_message
from swelab.sft.rows.lengths import TURN_END, ChatTokenizer
from swelab.sft.rows.preferences import conversations

LOGITS_TOLERANCE = 1e-4
"""Maximum difference of logits, as a share of the largest logit."""
SAMPLE_ROWS = 16
SAMPLE_TOKENS = 256


class ParityError(Fault):
    """Raised if a checkpoint fails one of the checks of this module."""


def check_parity(checkpoint: Path, settings: Record | None, dataset: Path) -> Record:
    """Checks that torchtune and transformers read the same tokens and logits from a checkpoint.

    Reads the first conversations of `dataset`. Returns measures for the manifest. settings: configures
    torchtune; None if torchtune does not support the model. Without settings, the tokens of `ChatTokenizer`
    are compared with those of the chat template, and transformers must load the model. Raises ParityError if
    there is a difference, except for the one that `compare_tokens` allows.
    """
    logging.getLogger("torchao").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = list(itertools.islice(conversations(dataset), SAMPLE_ROWS))
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(checkpoint)
    plain = PlainRows(checkpoint)
    ours = ChatTokenizer(checkpoint)
    own = _own_tokenizer(checkpoint, settings) if settings else None
    facts = compare_tokens(rows, own, tokenizer, ours, plain)
    sample = tokenizer.apply_chat_template(bare(plain.of(rows[0])), return_dict=False)[:SAMPLE_TOKENS]
    return facts | compare_logits(checkpoint, settings, sample)


def _own_tokenizer(checkpoint: Path, settings: Record) -> Any:
    files = {"path": str(checkpoint / "vocab.json"), "merges_file": str(checkpoint / "merges.txt")}
    return _instantiate(settings["tokenizer"] | files)


def _instantiate(component: Record) -> Any:
    from omegaconf import OmegaConf
    from torchtune.config import instantiate

    return instantiate(OmegaConf.create(component))


def compare_tokens(
    rows: Sequence[SftRow], torchtune: Any, template: Any, lengths: ChatTokenizer, plain: PlainRows
) -> Record:
    """Compares the tokens and loss masks of torchtune, of `ChatTokenizer` and of the chat template.

    If a message's content begins with a newline, the chat template may split the same text into other tokens,
    because a header precedes the content. Such conversations are only counted. Any other difference raises
    ParityError.
    """
    from swelab.sft.train.torchtune_datasets import WeightedMessages

    to_messages = WeightedMessages(plain)
    newline = template.encode("\n", add_special_tokens=False)
    split = 0
    for row in rows:
        name = row.instance_id
        tokens, trained = lengths.encode(plain.of(row))
        sample = torchtune(to_messages(row)) if torchtune else {"tokens": tokens, "mask": []}
        masks = [not masked for masked in sample["mask"]] if torchtune else trained
        if (sample["tokens"], masks) != (tokens, trained):
            raise ParityError(f"{name}: torchtune's tokens or loss mask are not those of tokenizer.json")
        if tokens[-1] != template.convert_tokens_to_ids(TURN_END) or not trained[-1]:
            raise ParityError(f"{name}: the last end-of-turn has no loss")
        messages = [template_message(message) for message in row.messages]
        served = template.apply_chat_template(messages, tools=bare(row.tools) or None, return_dict=False)
        if template.decode(tokens + newline) != template.decode(served):
            raise ParityError(f"{name}: the chat template's text is not the text that was trained on")
        split += tokens + newline != served
    return {
        "conversations": len(rows),
        "split_otherwise_by_chat_template": split,
        "last_turn_end_has_loss": True,
    }


def compare_logits(checkpoint: Path, settings: Record | None, tokens: Sequence[int]) -> Record:
    """Returns the largest difference between the float32 logits of torchtune and of transformers on `tokens`.

    Each library loads the files itself. Raises ParityError if the difference is too large. Without settings,
    only checks that transformers' logits are finite.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ids = torch.tensor([list(tokens)], device=device)
    theirs = _transformers_logits(checkpoint, ids)
    if settings is None:
        if not theirs.isfinite().all():
            raise ParityError(f"{checkpoint.name}: logits of transformers are not finite")
        return {"tokens": len(tokens)}
    ours = _torchtune_logits(checkpoint, settings, ids)
    difference, scale = (theirs - ours).abs().max().item(), theirs.abs().max().item()
    if not difference <= LOGITS_TOLERANCE * max(scale, 1.0):
        raise ParityError(f"{checkpoint.name}: logits of torchtune and transformers differ by {difference:g}")
    return {"tokens": len(tokens), "max_logit_difference": difference}


@torch.inference_mode()
def _transformers_logits(checkpoint: Path, ids: torch.Tensor) -> torch.Tensor:
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model, info = load(checkpoint, dtype=torch.float32, output_loading_info=True)
    wrong = {name: sorted(map(str, keys))[:3] for name, keys in info.items() if keys}
    if wrong:
        raise ParityError(f"{checkpoint.name}: transformers does not load it cleanly: {wrong}")
    logits: torch.Tensor = model.to(ids.device).eval()(input_ids=ids).logits
    return logits.cpu()


@torch.inference_mode()
def _torchtune_logits(checkpoint: Path, settings: Record, ids: torch.Tensor) -> torch.Tensor:
    from torchtune.models.qwen2._convert_weights import qwen2_hf_to_tune

    shape = settings["model"]
    saved: dict[str, torch.Tensor] = {}
    for path in weight_files(checkpoint):
        saved |= load_file(path)
    weights = qwen2_hf_to_tune(
        saved,
        num_heads=shape["num_heads"],
        num_kv_heads=shape["num_kv_heads"],
        dim=shape["embed_dim"],
        tie_word_embeddings=shape["tie_word_embeddings"],
    )
    model = _instantiate(shape).float()
    model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    logits: torch.Tensor = model.to(ids.device).eval()(ids)
    return logits.float().cpu()
