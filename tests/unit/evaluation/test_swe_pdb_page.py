"""docs/coming-from-swe-pdb.md compared with the existing scripts and names."""

import importlib.util
import re
import subprocess
import sys

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.evaluation.debug_gym_config import (
    ENVIRONMENT,
    ENVIRONMENT_UNUSED,
    READ,
    UNUSED,
    RunRequest,
    read_settings,
)
from swelab.rl.metrics import of_agents, of_groups
from tests.conftest import ROOT
from tests.unit.rl.test_metrics import DONE, of_rollout

HERE = ROOT / "swe-pdb"
TEXT = (ROOT / "docs/coming-from-swe-pdb.md").read_text()
TOLD = set(re.findall(r"`([^`\n]+)`", TEXT))
MODEL = "actor_rollout_ref"
ORIGINALS = [
    *"ray_init.num_cpus algorithm.adv_estimator algorithm.kl_ctrl.kl_coef".split(),
    *(f"data.{each}" for each in """train_files val_files train_batch_size val_batch_size max_prompt_length
    max_response_length filter_overlong_prompts filter_overlong_prompts_workers""".split()),
    *(f"{MODEL}.{each}" for each in """model.path model.local_files_only hybrid_engine actor.optim.lr
    model.use_remove_padding actor.loss_agg_mode actor.ppo_mini_batch_size actor.use_dynamic_bsz
    actor.ppo_micro_batch_size_per_gpu actor.ppo_max_token_len_per_gpu actor.use_kl_loss
    actor.clip_ratio_high actor.kl_loss_coef actor.kl_loss_type actor.ulysses_sequence_parallel_size
    model.enable_gradient_checkpointing actor.fsdp_config.param_offload actor.entropy_coeff
    actor.fsdp_config.optimizer_offload ref.fsdp_config.param_offload""".split()),
    *(f"{MODEL}.rollout.{each}" for each in """log_prob_use_dynamic_bsz log_prob_micro_batch_size_per_gpu
    tensor_model_parallel_size name mode enforce_eager temperature gpu_memory_utilization
    max_num_batched_tokens max_num_seqs n val_kwargs.n val_kwargs.temperature disable_log_stats""".split()),
    *(f"trainer.{each}" for each in """critic_warmup logger project_name experiment_name val_before_train
    n_gpus_per_node nnodes save_freq test_freq max_actor_ckpt_to_keep max_critic_ckpt_to_keep
    default_local_dir default_hdfs_dir rollout_data_dir validation_data_dir total_epochs""".split()),
    *(f"rllm.{each}" for each in """mask_truncated_samples disable_thinking env.name env.env_args.backend
    env.env_args.show_directory_tree env.env_args.persistent_breakpoints env.env_args.enable_pdb
    env.env_args.show_current_breakpoints env.env_args.auto_eval_on_rewrite env.env_args.enable_grep
    env.env_args.enable_bash env.env_args.data_path agent.name agent.agent_args.scaffold
    agent.agent_args.use_tool_call_format agent.max_steps agent.overlong_filter agent.trajectory_timeout
    agent.engine_args.n_parallel_agents agent.engine_args.max_workers""".split()),
]  # fmt: skip
"""Option names of the four training scripts of SWE-PDB."""


def keys():
    spec = importlib.util.spec_from_file_location("swe_pdb_recipe", HERE / "rl_recipe.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.pop("rl_recipe", None)
    spec.loader.exec_module(module)
    sys.modules.pop("rl_recipe", None)
    return module


def test_every_script_is_on_the_page_and_every_script_of_the_page_is_there():
    own = {path.name for path in HERE.rglob("*") if path.suffix in (".py", ".sh", ".yaml")
           and not {"data", "output"} & set(path.parts)} - {"train.sh"}  # fmt: skip
    named = {word.rpartition("/")[2] for told in TOLD for word in told.split() if "." in word}
    assert own - named == set()
    at = {word for told in TOLD for word in told.split() if word.startswith("swe-pdb/") and "." in word}
    at = {word for word in at if not word.startswith("swe-pdb/data")}
    assert at and not [word for word in at if not (ROOT / word).exists()]
    tables = TEXT.partition("## Scripts")[2].partition("##")[0]
    cells = [line.split("|")[1] for line in tables.splitlines() if "|" in line and "| none |" not in line]
    scripts = {name for cell in cells for name in re.findall(r"([\w-]+\.(?:sh|py))`", cell)}
    assert scripts and not [name for name in scripts if name not in own]


def test_words_of_the_training_scripts_are_those_of_the_page():
    module = keys()
    known = set(module.KEYS | module.OWN)
    assert known <= TOLD, known - TOLD
    roots = ("data.", "actor_rollout_ref.", "rllm.", "trainer.", "algorithm.")
    named = {word for told in TOLD for word in [told.split()[0]] if word.startswith((*roots, "ray_init."))}
    assert named == known | set(module.NONE) and not known & set(module.NONE)
    assert set(ORIGINALS) <= named, set(ORIGINALS) - named
    words = {word for told in TOLD for word in told.split()}
    shell = "".join((HERE / name).read_text() for name in ("train.sh", "train_swepdb_wrapper.sh"))
    read = set(re.findall(r"\$\{([A-Z_]{4,})\b", shell)) - {"BASH_SOURCE", "SWELAB_BACKEND"}
    assert len(read) > 10 and read | set(module.VARIABLES) <= words, read - words


@pytest.mark.parametrize("script", ["run_kod_debug_gym.py", "scripts/run.py", "run_swe_pdb.py"])
def test_options_are_those_of_the_page(script):
    asked = [HERE / script, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, env={"PYTHON_BIN": sys.executable})
    assert done.returncode == 0, done.stderr
    options = set(re.findall(r"--[\w-]+", done.stdout)) - {"--help"}
    if script != "run_swe_pdb.py":
        assert options <= {word for told in TOLD for word in told.split()}, options
    named = {
        "run_kod_debug_gym.py": "parquet_path model_name base_url api_key n_parallel max_problems max_steps",
        "scripts/run.py": "agent params num-workers max-problems force-all force-failed timeout llm-name"
        " max-rewrite-steps",
    }
    assert {f"--{name}" for name in named.get(script, "model_name").split()} <= options


def test_figures_of_the_page_are_written():
    told = TEXT.partition("## Metrics")[2].partition("##")[0]
    written = {*of_agents([of_rollout(DONE)]), *of_groups([])}
    named = set(re.findall(r"`((?:agent|groups_solved)/[\w/]+)`", told))
    assert len(named) == 9 and named <= written
    for name in named:
        if name.startswith("agent/"):
            assert {name.replace("_mean", f"_{each}") for each in ("min", "max")} <= written
    theirs = {f"traj/{name}_mean" for name in ("steps", "reward_time", "env_time", "llm_time", "total_time")}
    assert theirs | {f"batch/solve_{name}" for name in ("none", "all", "partial")} <= TOLD


def test_recipes_and_scaffolds_of_the_page_are_there():
    for size in ("4b", "8b", "14b"):
        assert f"swepdb-{size}" in recipes.names("rl") and f"swepdb-{size}" in recipes.names("sft")
        assert recipes.load_named(SFT, f"swepdb-{size}").base in recipes.names("model")
    assert "swepdb-14b-rewrite" in recipes.names("rl")
    subsets = {"kodcode-train", "kodcode-heldout", "syn-debug"}
    assert subsets <= set(recipes.names("subset")) & TOLD


def test_shipped_configurations_are_read():
    known = READ | UNUSED | ENVIRONMENT | ENVIRONMENT_UNUSED
    for path in sorted((HERE / "scripts").glob("config_*.yaml")):
        for agent, tools in (("debug_agent", 5), ("rewrite_agent", 4)):
            found = read_settings(RunRequest(path, agent))
            assert len(found["tools"]) == tools and found["max_steps"] == 80
            assert found["max_rewrite_steps"] == (30 if path.stem == "config_edit" else 10)
            assert set(found) <= known and ("pdb" in found["tools"]) == (agent == "debug_agent")
        assert yaml.safe_load(path.read_text())["base"]["env_kwargs"]["run_timeout"] == 30
