"""Compares the model and tokenizer of a torchtune configuration with its checkpoint.

torchtune itself reports a different size only after minutes, when it loads the weights. If the id of a token
exceeds the embedding, torchtune raises an IndexError in the first step.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swelab.records import InputError, Record, read_json, shorten
from swelab.sft.rows.lengths import TURN_END, TURN_START, special_tokens

SPOKEN = (TURN_START, TURN_END, "<|endoftext|>")
"""The special tokens that every conversation uses, and the padding token."""


def size_faults(config: Record) -> Iterator[str]:
    """Yields one line for each size or special token that differs from the configuration's checkpoint.
    Yields nothing if the folder has no config.json, or if the configuration names no model or tokenizer."""
    folder = Path(config["checkpointer"]["checkpoint_dir"])
    if not (folder / "config.json").is_file():
        return
    try:
        config_json = read_json(folder / "config.json")
    except InputError as fault:
        yield str(fault)
        return
    for section, check in (("model", _model), ("tokenizer", _tokenizer)):
        component = _component(config, section)
        if isinstance(component, str):
            yield component
        elif component is not None and isinstance(config_json, dict):
            yield from check(component, config_json, folder)


def _component(config: Record, section: str) -> Any:
    """Builds a section's component on torch's meta device, so that weights take no memory.

    Returns None if there is no such section. Returns a description of the fault if the component cannot be
    built.
    """
    part = config.get(section)
    if not isinstance(part, dict) or "_component_" not in part:
        return None
    import torch
    from omegaconf import OmegaConf
    from torchtune.config import instantiate

    try:
        with torch.device("meta"):
            return instantiate(OmegaConf.create(part))
    except Exception as error:  # the user names the component, so any class of error is possible
        return f"{section}: {part['_component_']} cannot be made: {shorten(' '.join(str(error).split()))}"


def _model(model: Any, config: Record, folder: Path) -> Iterator[str]:
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    width = config.get("head_dim") or config.get("hidden_size", 0) // (config.get("num_attention_heads") or 1)
    has = {name: config.get(name) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    has |= {"num_hidden_layers": config.get("num_hidden_layers")}
    has |= {"num_key_value_heads x head_dim": (config.get("num_key_value_heads") or 0) * width}
    rows, size = shapes.get("tok_embeddings.weight", (None, None))
    layers = {name.split(".")[1] for name in shapes if name.startswith("layers.")}
    wants = {
        "vocab_size": rows,
        "hidden_size": size,
        "num_hidden_layers": len(layers) or None,
        "intermediate_size": shapes.get("layers.0.mlp.w1.weight", (None,))[0],
        "num_key_value_heads x head_dim": shapes.get("layers.0.attn.k_proj.weight", (None,))[0],
    }
    for name, wanted in wants.items():
        if wanted is not None and has[name] and wanted != has[name]:
            yield f"model: {name} is {wanted}, and {has[name]} in {folder / 'config.json'}"


def _tokenizer(tokenizer: Any, config: Record, folder: Path) -> Iterator[str]:
    special: dict[str, int] = getattr(tokenizer, "special_tokens", None) or {}
    rows = config.get("vocab_size") or 0
    beyond = {name: number for name, number in special.items() if rows and number >= rows}
    if beyond:
        name, number = next((each, beyond[each]) for each in (*SPOKEN, *beyond) if each in beyond)
        more = f" ({len(beyond)} tokens in all)" if len(beyond) > 1 else ""
        yield f"tokenizer: {name} has the id {number}{more}, and {folder / 'config.json'} vocab_size {rows}"
        return
    if (folder / "tokenizer.json").is_file():
        known = special_tokens(folder)
        for name in sorted(special.keys() & {*known, *SPOKEN}):
            if known.get(name) != special[name]:
                has = f"has {known[name]}" if name in known else "has no such token"
                yield f"tokenizer: {name} has the id {special[name]}, and {folder / 'tokenizer.json'} {has}"
