"""Makes the demo's base model: a small Qwen2 and its tokenizer, pre-trained on generated text.

Each training row is one whole document of `base_corpus`. Rows are not packed, because with several documents
in a row a model of this size did not learn to copy.
"""

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional
from torchtune.models.qwen2 import qwen2
from torchtune.models.qwen2._convert_weights import qwen2_tune_to_hf

from swelab.configs.kinds.model import DrillModel, Train
from swelab.console.terminal import Progress
from swelab.records import Record, write_json
from swelab.records.training_records import LossRow
from swelab.records.typed import field
from swelab.sft.demo_model.base_corpus import Document, World
from swelab.sft.demo_model.base_tokenizer import (
    CHAT_TEMPLATE,
    SPECIAL,
    TOOL_TEMPLATE,
    check_tokenizer,
    save_tokenizer,
    train_tokenizer,
)
from swelab.sft.train.schedule import warmup_cosine

VOCABULARY_DOCUMENTS = 4000
CHECKED_DOCUMENTS = 200
WINDOW = 4
ROUNDING = 64
"""The number of rows of the embedding is a multiple of this value."""
SHAPE: dict[str, Any] = {
    "num_layers": 4,
    "num_heads": 8,
    "num_kv_heads": 4,
    "embed_dim": 128,
    "intermediate_dim": 384,
    "max_seq_len": 2048,
    "rope_base": 500.0,
}
"""The model's shape, in torchtune's names.
The base of the rotary position embedding is small, because conversations are short."""
VOCABULARY = 768
"""Maximum number of tokens in the vocabulary, special tokens included."""
INIT_STD = 0.08
"""Standard deviation of the initial weights. At the usual 0.02, such a small model does not learn to copy."""
NOTE_WEIGHT, LISTING_WEIGHT = 0.02, 0.3
"""Loss weights of two parts of a document: the note and the listing of code. The last part has weight 1.
The note has a small weight, because its words are random."""


class PretrainRow(LossRow):
    """A step of the pre-training."""

    tokens: int = field("number of tokens with a loss weight, up to and including this step")


def make_base_model(recipe: DrillModel, world: World, folder: Path) -> tuple[Record, list[PretrainRow]]:
    """Pre-trains the model of a `model` recipe and writes it to `folder` in Hugging Face layout.

    Returns facts for the manifest, and one row per step with the loss on tokens of weight 1. On the same
    machine, an equal `recipe` and `world` give equal weights. Raises TokenizerError.
    """
    train = recipe.train
    torch.set_num_threads(train.threads)
    torch.use_deterministic_algorithms(True)
    texts = [document.text for document in world.documents(recipe.seed + 1, VOCABULARY_DOCUMENTS)]
    tokenizer = train_tokenizer([*texts, *world.lexicon()], VOCABULARY)
    rows = -(-tokenizer.get_vocab_size() // ROUNDING) * ROUNDING
    model = new_model(rows, recipe.seed)
    loss = list(pretrain(model, batches(world, tokenizer, recipe), train))
    os.makedirs(folder, exist_ok=True)
    template = TOOL_TEMPLATE if recipe.actions == "tools" else CHAT_TEMPLATE
    save_tokenizer(tokenizer, folder, SHAPE["max_seq_len"], template)
    save_model(model, rows, tokenizer, folder)
    facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": tokenizer.get_vocab_size(),
        "documents": train.steps * train.batch_size,
        "tokens": loss[-1].tokens,
        "final_loss": round(sum(row.loss for row in loss[-100:]) / len(loss[-100:]), 4),
        "names_left_out": len(world.heldout),
        "tokenised_alike": check_tokenizer(folder, texts[-CHECKED_DOCUMENTS:]),
    }
    return facts, loss


def new_model(rows: int, seed: int) -> torch.nn.Module:
    """Makes a Qwen2 with `rows` embeddings.
    Matrices are drawn from normal(0, INIT_STD), norms are ones, and biases are zeros."""
    model: torch.nn.Module = qwen2(vocab_size=rows, norm_eps=1e-6, tie_word_embeddings=True, **SHAPE)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INIT_STD, generator=generator)
            else:
                parameter.fill_(1.0 if name.endswith("scale") else 0.0)
    return model


def end_of_text(tokenizer: Tokenizer) -> int:
    """Returns the id of the token between documents."""
    return tokenizer.encode(SPECIAL[0]).ids[0]


def encode(tokenizer: Tokenizer, document: Document, train: Train) -> tuple[list[int], list[float]]:
    """Returns the token ids of a document, and the loss weight of each token.
    The first and the last id are the end-of-text token."""
    end = end_of_text(tokenizer)
    ids, weights = [end], [0.0]
    for text, weight in ((document.note, NOTE_WEIGHT), (document.listing, LISTING_WEIGHT)):
        part = tokenizer.encode(text).ids
        ids += part
        weights += [weight] * len(part)
    line = tokenizer.encode(document.line)
    ids += line.ids
    around = 1.0 if train.frame_weight is None else train.frame_weight
    weights += [1.0 if document.asks(*span) else around for span in line.offsets]
    return [*ids, end], [*weights, NOTE_WEIGHT]


def batches(
    world: World, tokenizer: Tokenizer, recipe: DrillModel
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields (ids, weights) of shape (batch, longest document). Padding is end-of-text of weight 0.
    Reads the documents of `WINDOW` batches at a time and sorts them by length, so that padding is short."""
    train = recipe.train
    size = train.batch_size
    documents = world.documents(recipe.seed + 2, train.steps * size)
    rng = random.Random(recipe.seed)
    end = end_of_text(tokenizer)
    while pairs := [encode(tokenizer, d, train) for d in itertools.islice(documents, WINDOW * size)]:
        pairs.sort(key=lambda pair: len(pair[0]))
        groups = [pairs[i : i + size] for i in range(0, len(pairs), size)]
        rng.shuffle(groups)
        for group in groups:
            longest = len(group[-1][0])
            yield (
                torch.tensor([ids + [end] * (longest - len(ids)) for ids, _ in group]),
                torch.tensor([weights + [0.0] * (longest - len(weights)) for _, weights in group]),
            )


def pretrain(
    model: torch.nn.Module, data: Iterator[tuple[torch.Tensor, torch.Tensor]], train: Train
) -> Iterator[PretrainRow]:
    """Makes one AdamW step per batch. Yields the loss on tokens of weight 1.
    The learning rate has a linear warm-up and a cosine decay to 0."""
    steps, warmup = train.steps, train.warmup_steps
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=train.lr,
        betas=(train.betas[0], train.betas[1]),
        weight_decay=train.weight_decay,
        fused=True,
    )
    bar = Progress(steps, "pre-train")
    tokens = 0
    model.train()
    for step, (ids, weights) in enumerate(data, 1):
        for group in optimizer.param_groups:
            group["lr"] = train.lr * warmup_cosine(step, warmup, steps)
        logits = model(ids[:, :-1])
        each = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        weight = weights[:, 1:].flatten()
        optimizer.zero_grad(set_to_none=True)
        ((each * weight).sum() / weight.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip_grad_norm)
        optimizer.step()
        tokens += int((weight > 0).sum())
        loss = round(each.detach()[weight == 1].mean().item(), 5)
        yield PretrainRow(step=step, loss=loss, tokens=tokens)
        bar.done()
    bar.close()


def save_model(model: torch.nn.Module, rows: int, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes config.json, generation_config.json and model.safetensors in transformers' format."""
    text, _, turn = (tokenizer.token_to_id(name) for name in SPECIAL)
    weights = qwen2_tune_to_hf(
        model.state_dict(),
        num_heads=SHAPE["num_heads"],
        num_kv_heads=SHAPE["num_kv_heads"],
        dim=SHAPE["embed_dim"],
        tie_word_embeddings=True,
    )
    tensors = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": rows,
        "hidden_size": SHAPE["embed_dim"],
        "intermediate_size": SHAPE["intermediate_dim"],
        "num_hidden_layers": SHAPE["num_layers"],
        "num_attention_heads": SHAPE["num_heads"],
        "num_key_value_heads": SHAPE["num_kv_heads"],
        "max_position_embeddings": SHAPE["max_seq_len"],
        "rope_theta": SHAPE["rope_base"],
        "rope_parameters": {"rope_theta": SHAPE["rope_base"], "rope_type": "default"},
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "initializer_range": INIT_STD,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "use_sliding_window": False,
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": turn,
        "pad_token_id": text,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": [turn, text], "pad_token_id": text})
