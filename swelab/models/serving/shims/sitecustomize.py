"""Start-up of the CPU server, in half the time: fork in place of spawn, no garbage collection in imports.

sglang starts its scheduler and detokenizer with `spawn`, because CUDA does not survive a fork, and
each imports its six seconds of Python again. Without a GPU, and while the server has one thread
only, a fork is safe; otherwise it spawns as before.
"""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable

SERVER = "sglang.launch_server" in sys.orig_argv
"""Other programs, such as trainers that import sglang, find the packages here and start as ever."""
_set_start_method = multiprocessing.set_start_method


def set_start_method(method: str | None, force: bool = False) -> None:
    """`multiprocessing.set_start_method`, with fork for spawn where that is safe."""
    gc.enable()
    gc.freeze()
    if "--lora-paths" in sys.argv:
        unpin()
    single = len(os.listdir("/proc/self/task")) == 1
    _set_start_method("fork" if method == "spawn" and single else method, force=force)


def unpin() -> None:
    """Makes requests for pinned memory, which sglang's adapters make on a CPU too, ask for plain memory.

    Pinning speeds up copies to a GPU; torch refuses it where there is none.
    """
    import torch

    def plain(make: Callable[..., object]) -> Callable[..., object]:
        return lambda *args, pin_memory=False, **options: make(*args, **options)

    for name in ("tensor", "zeros", "ones", "empty", "full", "arange"):
        setattr(torch, name, plain(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]


if SERVER:
    gc.disable()
    multiprocessing.set_start_method = set_start_method
