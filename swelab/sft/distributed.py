"""torchtune's distributed recipe as each rank runs it: `torchrun ... distributed.py --config <file>`.

On a CPU the recipe of torchtune 0.6 calls functions that only GPUs have: they do nothing there.
"""

import runpy
from pathlib import Path

import torch
import torchtune
from torchtune import training

RECIPE = Path(torchtune.__file__).parent.parent / "recipes" / "full_finetune_distributed.py"

if __name__ == "__main__":
    if not torch.cuda.is_available():
        training.get_memory_stats = lambda device: {}
        training.log_memory_stats = lambda stats: None
        for name in ("empty_cache", "reset_peak_memory_stats"):
            setattr(torch.cpu, name, lambda: None)
    runpy.run_path(str(RECIPE), run_name="__main__")
