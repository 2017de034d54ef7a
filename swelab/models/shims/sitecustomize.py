"""Start-up of the CPU server, in half the time: fork in place of spawn, no garbage collection in imports.

sglang starts its scheduler and detokenizer with `spawn`, because CUDA does not survive a fork, and
each imports its six seconds of Python again. Without a GPU, and while the server has one thread
only, a fork is safe; otherwise it spawns as before.
"""

import gc
import multiprocessing
import os

gc.disable()
_set_start_method = multiprocessing.set_start_method


def set_start_method(method: str | None, force: bool = False) -> None:
    """`multiprocessing.set_start_method`, with fork for spawn where that is safe."""
    gc.enable()
    gc.freeze()
    single = len(os.listdir("/proc/self/task")) == 1
    _set_start_method("fork" if method == "spawn" and single else method, force=force)


multiprocessing.set_start_method = set_start_method
