"""verl's settings that depend on its machines: settings of Ray, and settings for machines without a GPU."""

import os
import subprocess
from pathlib import Path

from swelab.configs.kinds.rl import Rl
from swelab.models.serving.engine import CPU_CACHE
from swelab.models.serving.sglang_engine import SHIMS
from swelab.records import InputError

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = "swelab.rl.engines.verl_plugin"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
TRANSFER, TRANSFER_FOLDER = "swelab_files", "SWELAB_VERL_TRANSFER"
"""TRANSFER: verl's name for our checkpoint engine. TRANSFER_FOLDER: environment variable with the folder in
which that engine writes weights."""
STORE_BYTES = 500_000_000
"""Size of Ray's object store on a machine without a GPU."""
PYTHON = "SWELAB_VERL_PYTHON"
"""Environment variable with the path of verl's Python interpreter, if that is not in .venv-verl."""
MEGATRON = """
from importlib.util import find_spec
raise SystemExit(not (find_spec("megatron") and find_spec("megatron.core")))
"""


def python_of_verl() -> Path:
    """Returns the Python interpreter of verl's environment. Raises InputError if the interpreter does not
    exist."""
    found = Path(os.environ.get(PYTHON) or ROOT / ".venv-verl" / "bin" / "python")
    if not found.is_file():
        raise InputError("verl is not installed", found, f"`make verl`, or ${PYTHON}")
    return found


def has_megatron() -> bool:
    """Returns whether verl's environment contains Megatron. Raises InputError if that environment does not
    exist."""
    return subprocess.run([python_of_verl(), "-I", "-c", MEGATRON], stderr=subprocess.DEVNULL).returncode == 0


def surroundings(recipe: Rl) -> dict[str, str]:
    """Returns the environment variables of verl's processes."""
    variables = {
        "VERL_USE_EXTERNAL_MODULES": PLUGIN,
        "VERL_LOGGING_LEVEL": "WARN",  # with INFO, verl 0.9.1 crashes in a log call (separate_async)
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
    }
    path = [str(ROOT)]
    if recipe.train.device == "cpu":
        threads = str(recipe.train.threads)
        variables |= {"VERL_PLATFORM": "cpu", "SGLANG_USE_CPU_ENGINE": "1"}
        variables |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        path.append(str(SHIMS))  # stand-ins for GPU-only packages that sglang imports
    variables["PYTHONPATH"] = os.pathsep.join(path)
    return variables


def logical_cpus(recipe: Rl) -> int:
    """Returns the number of CPUs to announce to Ray for a node. The number is at least as high as verl's
    processes request, even if the node has fewer CPUs, because these processes mostly wait."""
    verl = recipe.cluster
    return max(recipe.job.cpus, 4 * verl.gpus + verl.rollout.loops + 6)


def machine_keys(recipe: Rl, private: str, address: str) -> list[str]:
    """Returns overrides that depend on the machine on which verl runs.

    private: a folder with a short path, which is removed when the run ends. address: the address of Ray's
    head, or "" if verl starts Ray itself.
    """
    ray = "ray_kwargs.ray_init"
    if address:
        keys = [f"+{ray}.address='{address}'"]
    else:
        keys = [f"+{ray}.address=local", f"+{ray}.include_dashboard=false", f"+{ray}._temp_dir={private}/ray"]
    if recipe.train.device != "cpu":
        return keys
    verl = recipe.cluster
    devices = verl.gpus * verl.nodes
    if not address:
        cpus = 4 * devices + verl.rollout.loops + 6
        keys += [f"{ray}.num_cpus={cpus}", f"+{ray}.num_gpus={devices}"]
        keys += [f"+{ray}.object_store_memory={STORE_BYTES}"]
    return keys + _cpu_keys(recipe)


def _cpu_keys(recipe: Rl) -> list[str]:
    rollouts = recipe.rollouts
    sglang = f"+{ROLLOUT}.engine_kwargs.sglang"
    keys = [
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{ACTOR}.use_torch_compile=false",
        f"{ACTOR}.fsdp_config.use_torch_compile=false",
        f"{ROLLOUT}.free_cache_engine=false",
        f"{ROLLOUT}.load_format=auto",
        f"{ROLLOUT}.enforce_eager=true",
        f"{ROLLOUT}.max_num_seqs={rollouts.at_once}",
        f"{sglang}.device=cpu",
        f"{sglang}.attention_backend=torch_native",
        f"{sglang}.enable_memory_saver=false",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    ]
    if not rollouts.max_total_tokens:
        keys.append(f"{sglang}.max_total_tokens={max(CPU_CACHE, rollouts.context_length)}")
    if recipe.cluster.mode == "separate_async":
        keys.append(f"{ROLLOUT}.checkpoint_engine.backend={TRANSFER}")
    return keys
