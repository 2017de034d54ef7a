"""Passes new weights to verl's sglang servers on CPUs as files in memory. GPUs would share memory directly.

All trainer ranks take part in gathering the weights. The first rank of each server writes the file, which the
server then reads.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from swelab.rl.engines.verl_machine import TRANSFER, TRANSFER_FOLDER

WEIGHTS = "model.safetensors"
TRANSFER_SECONDS = 600.0
_POLL_SECONDS = 0.05


async def gather(weights: Any) -> dict[str, Any]:
    """Returns all weights, unsharded and in main memory, keyed by name. Every rank of a group must call
    this."""
    from verl.workers.rollout.utils import ensure_async_iterator

    return {
        name: tensor.detach().to("cpu").contiguous().clone()
        async for name, tensor in ensure_async_iterator(weights)
    }


def write_checkpoint(folder: Path, weights: dict[str, Any], model: Path, tied: bool) -> None:
    """Writes a checkpoint that an engine can load: the given weights, and all other files of the checkpoint
    `model`."""
    for path in model.iterdir():
        if path.is_file() and path.suffix not in (".safetensors", ".bin") and "index" not in path.name:
            shutil.copy(path, folder)
    kept = {name: tensor for name, tensor in weights.items() if not (tied and name == "lm_head.weight")}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})


def _adapter() -> type:
    """Returns verl's client class of an sglang server, changed to send weights as a file."""
    from verl.workers.rollout.sglang_rollout.sglang_rollout import ServerAdapter

    class FileAdapter(ServerAdapter):
        """See `ServerAdapter`."""

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            await self._init_server_adapter()
            found = await gather(weights)
            if self._engine is None:
                return
            tied = bool(self.model_config.hf_config.tie_word_embeddings)
            with tempfile.TemporaryDirectory(prefix="weights-") as folder:
                write_checkpoint(Path(folder), found, Path(self.model_config.local_path), tied)
                asked = {"model_path": folder, "weight_version": str(global_steps)}
                said = await self._engine._make_async_request("update_weights_from_disk", asked)
            if not said.get("success"):
                raise RuntimeError(f"the server does not take weights: {said}")
            await self._engine.flush_cache()
            await self.server_actor.set_global_steps.remote(global_steps)

    return FileAdapter


def _transfer() -> type:
    """Returns a checkpoint engine for verl that sends weights to servers on other nodes (separate_async) by a
    shared file."""
    from verl.checkpoint_engine.base import CheckpointEngine

    class FileTransfer(CheckpointEngine):
        """See `CheckpointEngine`. Only the newest update is kept."""

        def __init__(self, bucket_size: int, is_master: bool = False, **_: Any):
            self._first, self._folder = is_master, Path(os.environ[TRANSFER_FOLDER])

        def prepare(self) -> dict[str, Any]:
            return {}

        @classmethod
        def build_topology(
            cls, actor_wg_world_size: int, rollout_world_size: int, metadata: Any
        ) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
            return {"rank": list(range(actor_wg_world_size))}, {"rank": [-1] * rollout_world_size}

        def init_process_group(self, **_: Any) -> None:
            """Does nothing: files need no process group."""

        def finalize(self) -> None:
            """Does nothing: there is nothing to close."""

        async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, int] | None:
            found = await gather(weights)
            if not self._first:
                return None
            self._folder.mkdir(parents=True, exist_ok=True)
            part, whole = self._folder / "part", self._path(global_steps)
            save_file(found, part)
            part.replace(whole)
            for old in self._folder.glob("*.safetensors"):
                if old != whole:
                    old.unlink(missing_ok=True)
            return {"weights/bytes": whole.stat().st_size}

        async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, Any]]:
            async with asyncio.timeout(TRANSFER_SECONDS):
                while not self._path(global_steps).exists():
                    await asyncio.sleep(_POLL_SECONDS)
            for name, tensor in load_file(self._path(global_steps)).items():
                yield name, tensor

        def _path(self, global_steps: int | None) -> Path:
            return self._folder / f"{global_steps}.safetensors"

    return FileTransfer


def __getattr__(name: str) -> Any:
    """Creates `FileAdapter` when it is first used, because sglang takes seconds to import."""
    if name == "FileAdapter":
        return _adapter()
    raise AttributeError(name)


def install() -> None:
    """Makes verl use this module's classes in this process."""
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    _ROLLOUT_REGISTRY[("sglang", "async")] = f"{__name__}.FileAdapter"
    CheckpointEngineRegistry.register(TRANSFER)(_transfer())
