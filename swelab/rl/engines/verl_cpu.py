"""Lets verl run without a GPU.

Registers a platform whose devices are processes, and patches functions that do not work on a CPU. Without an
accelerator, verl 0.9.1 assumes NVIDIA and counts Ray's GPUs. verl has no engine for CPUs. If gloo is the
device's backend, verl passes the name gloo to torch twice. verl's files are not changed.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

FREE_BYTES = 16 << 30
"""Free memory that is reported to verl. verl uses this number for the caches of an accelerator, which a CPU
does not have."""


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing. Replaces functions that only affect accelerators."""


class Processor(ModuleType):
    """torch.cpu, extended with the functions of torch.cuda that verl calls."""

    empty_cache = ipc_collect = reset_peak_memory_stats = set_device = synchronize = staticmethod(_nothing)
    set_per_process_memory_fraction = staticmethod(_nothing)
    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    memory_allocated = memory_reserved = staticmethod(lambda *_: 0)
    max_memory_allocated = max_memory_reserved = staticmethod(lambda *_: 0)
    mem_get_info = staticmethod(lambda *_: (FREE_BYTES, FREE_BYTES))
    get_device_name = current_device = staticmethod(lambda *_: "cpu")
    device_count = staticmethod(lambda: 1)
    is_available = staticmethod(lambda: True)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


class CpuPlatform(PlatformBase):
    """verl's platform for CPUs. Its devices are announced to Ray as GPUs, although there are no GPUs."""

    device_name = vendor_name = "cpu"
    device_module = Processor("swelab.cpu")
    empty_cache = set_device = synchronize = profiler_start = profiler_stop = staticmethod(_nothing)
    set_allocator_settings = cudart = staticmethod(_nothing)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    is_available = staticmethod(lambda: True)
    is_ipc_supported = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: "cpu")
    communication_backend_name = staticmethod(lambda: "gloo")
    visible_devices_envvar = staticmethod(lambda: "CUDA_VISIBLE_DEVICES")
    ray_resource_name = staticmethod(lambda: "GPU")

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Returns False, so that verl uses this platform only if $VERL_PLATFORM names it."""
        return False

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """See `PlatformBase`."""
        return None, None

    def ray_noset_envvars(self) -> list[str]:
        """See `PlatformBase`."""
        return []

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """See `PlatformBase`."""
        yield


def install() -> None:
    """Makes verl run on a CPU in this process."""
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
    _name_each_backend_once()
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    register = EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
    register(FSDPEngineWithLMHead)


def _name_each_backend_once() -> None:
    """Makes torch receive "cpu:gloo" instead of "cpu:gloo,cpu:gloo", which torch refuses."""
    begin = torch.distributed.init_process_group

    @functools.wraps(begin)
    def once(backend: str | None = None, *rest: Any, **options: Any) -> Any:
        return begin(",".join(dict.fromkeys(backend.split(","))) if backend else backend, *rest, **options)

    torch.distributed.init_process_group = once
