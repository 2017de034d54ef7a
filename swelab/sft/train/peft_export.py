"""Converts a low-rank adapter from torchtune's format to PEFT's.

torchtune 0.6 can export an adapter, too. But that export orders the rows of the query and key projections as
Llama's weights do. Qwen uses another order. If torchtune's file is merged into the base, the result is not
the trained model.
"""

import re
from pathlib import Path

import torch
from safetensors.torch import save_file

from swelab.records import read_json, write_json

MODULES = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
}
_NAME = re.compile(r"^layers\.(\d+)\.(.+)\.lora_([ab])\.weight$")


def peft_name(name: str) -> str:
    """Converts torchtune's name of an adapter weight to PEFT's name, for a Qwen2 model. Raises ValueError."""
    match = _NAME.match(name)
    if not match or match[2] not in MODULES:
        raise ValueError(f"not a weight of an adapter: {name}")
    return f"base_model.model.model.layers.{match[1]}.{MODULES[match[2]]}.lora_{match[3].upper()}.weight"


def write_adapter(epoch: Path, folder: Path) -> None:
    """Writes adapter_model.safetensors and adapter_config.json to `folder`, from torchtune's `epoch`."""
    weights = torch.load(epoch / "adapter_model.pt", map_location="cpu", weights_only=True)
    folder.mkdir(parents=True)
    named = {peft_name(name): weight.contiguous() for name, weight in weights.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = read_json(epoch / "adapter_config.json")
    write_json(folder / "adapter_config.json", settings | {"task_type": "CAUSAL_LM"})
