"""Writes random weights of a Qwen2 in any shape, in Hugging Face layout, for measurements of speed."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy

from swelab.records import Record, write_json

SPREAD = 0.02
BLOCK = 1 << 24
"""Number of different random numbers. Larger matrices repeat them. Each matrix starts at another offset."""


def shapes(config: Record) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yields (file, name, shape) of every weight. Norms have one dimension, and `norm` in their name."""
    hidden, wide, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    narrow = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "ends", "model.embed_tokens.weight", (vocab, hidden)
    yield "ends", "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "ends", "lm_head.weight", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        file, name = f"layer{layer}", f"model.layers.{layer}"
        for part, width in (("q", hidden), ("k", narrow), ("v", narrow)):
            yield file, f"{name}.self_attn.{part}_proj.weight", (width, hidden)
            yield file, f"{name}.self_attn.{part}_proj.bias", (width,)
        yield file, f"{name}.self_attn.o_proj.weight", (hidden, hidden)
        yield file, f"{name}.mlp.gate_proj.weight", (wide, hidden)
        yield file, f"{name}.mlp.up_proj.weight", (wide, hidden)
        yield file, f"{name}.mlp.down_proj.weight", (hidden, wide)
        yield file, f"{name}.input_layernorm.weight", (hidden,)
        yield file, f"{name}.post_attention_layernorm.weight", (hidden,)


def write_weights(folder: Path, config: Record) -> None:
    """Writes safetensors files and their index into `folder`, in the type of config's `torch_dtype`."""
    chance = numpy.random.default_rng(0)
    block = chance.normal(0, SPREAD, BLOCK).astype("float32")
    files: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for file, name, shape in shapes(config):
        files.setdefault(file, []).append((name, shape))
    where = {}
    for number, weights in enumerate(files.values(), 1):
        path = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        where.update({name: path for name, _ in weights})
        with open(folder / path, "wb") as stream:
            stream.write(header(weights, config["torch_dtype"]))
            for name, shape in weights:
                values = numpy.resize(numpy.roll(block, int(chance.integers(BLOCK))), int(numpy.prod(shape)))
                convert(numpy.ones_like(values) if "norm" in name else values, config).tofile(stream)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def header(weights: list[tuple[str, tuple[int, ...]]], dtype: str) -> bytes:
    """Returns the header of a safetensors file whose tensors follow one another without gaps."""
    size = {"float32": 4, "bfloat16": 2}[dtype]
    entries: Record = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in weights:
        end = at + size * int(numpy.prod(shape))
        entries[name] = {"dtype": {4: "F32", 2: "BF16"}[size], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def convert(values: numpy.ndarray, config: Record) -> numpy.ndarray:
    """Converts float32 values to the config's type. bfloat16 is the upper half of float32."""
    return (values.view("uint32") >> 16).astype("uint16") if config["torch_dtype"] == "bfloat16" else values


def write_config(folder: Path, shape: Record) -> Record:
    """Changes `folder`'s config.json to another shape, and returns the new config."""
    path = folder / "config.json"
    settings = {**json.loads(path.read_text()), **shape}
    write_json(path, settings)
    return settings
