"""Checks that trainer, transformers and server read the same model and the same tokens from a checkpoint.

The trainer (torchtune), transformers and the server each have their own model code. So a fine-tuned
checkpoint gets its manifest only after these checks. `base_reading` has those that need no trained weights.
They also run before the training.
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
from swelab.records import Record
from swelab.sft.rows.chat_template import PlainRows, bare
from swelab.sft.rows.preferences import conversations
from swelab.sft.train.base_reading import SAMPLE_ROWS, ParityError, compare_rows

LOGITS_TOLERANCE = 1e-4
"""Maximum difference of logits, as a share of the largest logit."""
SAMPLE_TOKENS = 256


def check_parity(checkpoint: Path, settings: Record | None, dataset: Path) -> Record:
    """Checks that trainer, transformers and server read the same tokens and logits from a checkpoint.

    Reads the first conversations of `dataset`. Returns measures for the manifest. settings: configures
    torchtune; None if another library trained. Then transformers must only load the model. Raises ParityError
    if there is a difference, except for the one that `compare_rows` allows.
    """
    logging.getLogger("torchao").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()
    rows = list(itertools.islice(conversations(dataset), SAMPLE_ROWS))
    facts = compare_rows(checkpoint, rows)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(checkpoint)
    spoken = bare(PlainRows(checkpoint).of(rows[0]))
    sample = tokenizer.apply_chat_template(spoken, return_dict=False)[:SAMPLE_TOKENS]
    return facts | compare_logits(checkpoint, settings, sample)


def _instantiate(component: Record) -> Any:
    from omegaconf import OmegaConf
    from torchtune.config import instantiate

    return instantiate(OmegaConf.create(component))


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
