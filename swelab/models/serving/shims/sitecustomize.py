"""Halves the start-up time of the CPU server.

It forks instead of spawning, and disables garbage collection during imports.

sglang starts its scheduler and detokenizer with `spawn`, because CUDA does not survive a fork. Each of these
two processes repeats imports that take six seconds. Without a GPU, a fork is safe while the server has only
one thread. Otherwise the server uses `spawn`.
"""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable

SERVER = "sglang.launch_server" in sys.orig_argv
"""Whether this process is the server. Other programs that import sglang start as usual."""
_set_start_method = multiprocessing.set_start_method


def set_start_method(method: str | None, force: bool = False) -> None:
    """Like `multiprocessing.set_start_method`, but chooses fork instead of spawn if a fork is safe."""
    gc.enable()
    gc.freeze()
    if "--lora-paths" in sys.argv:
        unpin()
    single = len(os.listdir("/proc/self/task")) == 1
    _set_start_method("fork" if method == "spawn" and single else method, force=force)


def unpin() -> None:
    """Makes torch ignore `pin_memory`, which sglang's adapters request even on a CPU. Pinned memory speeds up
    copies to a GPU. Without a GPU, torch raises an error."""
    import torch

    def plain(make: Callable[..., object]) -> Callable[..., object]:
        return lambda *args, pin_memory=False, **options: make(*args, **options)

    for name in ("tensor", "zeros", "ones", "empty", "full", "arange"):
        setattr(torch, name, plain(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]


if SERVER:
    gc.disable()
    multiprocessing.set_start_method = set_start_method
