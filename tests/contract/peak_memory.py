"""Measures what training steps of torchtune's model take of memory: settings in, bytes out, JSON Lines.

Each is measured in a fork, from before its model is made, so that only what the training needs is counted.
"""

import gc
import json
import os
import re
import sys
from pathlib import Path

import torch
from omegaconf import OmegaConf
from torchtune import modules, training
from torchtune.config import instantiate
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

from swelab.configs.kinds.sft import Train
from swelab.files.model_config import ModelConfig
from swelab.sft.train.torchtune_bridge import adapted, base_model


def now(name):
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def steps(config, train, batch, tokens):
    """Two optimizer steps; the highest memory above that before them, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    before = now("VmRSS")
    model = instantiate(OmegaConf.create(adapted(base_model(config), train)))
    if train.lora:
        set_trainable_params(model, get_adapter_params(model))
    if train.activation_checkpointing:
        layers = {modules.TransformerSelfAttentionLayer}
        training.set_activation_checkpointing(model, auto_wrap_policy=layers)
    loss = CEWithChunkedOutputLoss()
    model.set_num_output_chunks(loss.num_output_chunks)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    data = torch.randint(0, config.vocab_size, (batch, tokens))
    for _ in range(2):
        loss(model(data), data).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return now("VmHWM") - before


def main():
    gc.freeze()
    for line in sys.stdin:
        if not os.fork():
            config, train, batch, tokens = json.loads(line)
            peak = steps(ModelConfig.of(config), Train(**train), batch, tokens)
            print(json.dumps(peak), flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
