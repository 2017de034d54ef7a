"""A recipe as verl's settings: the meaning of each key, and recipes that are refused in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.experiment import learning_slice
from swelab.configs.kinds import RL
from swelab.records import InputError
from swelab.rl.engines.verl_keys import JudgeModel, RunFiles, hydra_value, overrides, too_few, unheard

FILES = RunFiles("r", Path("w"), Path("t.parquet"), Path("h.parquet"), Path("loops.yaml"), Path("ckpt"))
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction.rollout"
ASYNC = {
    "rollouts": {"ahead": 1, "update": "in_turns"},
    "verl": {"mode": "separate_async", "rollout": {"nodes": 1}},
}


def recipe(**changes):
    """Returns a small recipe for verl on CPUs, with each part of `changes` merged into it."""
    made = {
        "engine": "verl",
        "start": "model:tiny",
        "subset": "drill-practice",
        "scaffold": "demo",
        "rollouts": {"prompts": 4, "samples": 4, "max_tokens": 64, "context_length": 2048},
        "train": {"steps": 3, "device": "cpu", "dtype": "fp32"},
        "verl": {"gpus": 2},
    }
    for part, value in changes.items():
        made[part] = made.get(part, {}) | value if isinstance(value, dict) else value
    return recipes.complete(RL, made, "r")


def keys(files=FILES, **changes):
    pairs = (line.partition("=") for line in overrides(recipe(**changes), files))
    return {key: yaml.load(value, recipes._Loader) for key, _, value in pairs}


def refused(function, *arguments, **more):
    with pytest.raises(InputError) as caught:
        function(*arguments, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recipe_says_all_that_verl_s_learner_and_servers_do():
    found = keys(
        train={"steps": 3, "minibatches": 2, "device": "cpu", "dtype": "fp32", "lr": 2e-6, "seed": 7}
    )
    assert found["data.train_batch_size"] == 4 and found[f"{ROLLOUT}.n"] == 4
    assert found[f"{ACTOR}.ppo_mini_batch_size"] == 2 and found[f"{ACTOR}.optim.lr"] == 2e-6
    assert (found["data.max_prompt_length"], found["data.max_response_length"]) == (512, 1536)
    assert found["algorithm.adv_estimator"] == found[f"{ROLLOUT}.agent.default_agent_loop"] == "swelab"
    assert found["model_engine"] == "dp" and found[f"{ACTOR}.fsdp_config.dtype"] == "float32"
    assert found[f"+{ACTOR}.fsdp_config.mixed_precision.reduce_dtype"] == "fp32"
    assert found["trainer.v1.trainer_mode"] == "sync" and found["trainer.device"] == "cpu"
    assert found[f"{ACTOR}.clip_ratio_c"] == 1e6 and found[f"{ACTOR}.use_kl_loss"] is False
    assert found["trainer.test_freq"] == -1 and found["data.shuffle"] is False
    assert found["trainer.logger"] == ["console", "file"] and found["data.seed"] == 7


def test_a_method_is_verl_s_by_its_own_names():
    method = {"advantage": "grpo", "dual_clip": 3.0, "kl": 0.01, "loss": "gspo", "weigh": "sequence"}
    method |= {"aggregation": "seq-mean-token-sum-norm", "horizon": 24000}
    found = keys(method=method)
    assert found[f"{ACTOR}.policy_loss.loss_mode"] == "gspo" and found[f"{ACTOR}.clip_ratio_c"] == 3.0
    assert (found[f"{ACTOR}.kl_loss_coef"], found[f"{ACTOR}.kl_loss_type"]) == (0.01, "low_var_kl")
    assert found[f"{ACTOR}.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert found[f"{ACTOR}.loss_scale_factor"] == 24000 and found["+algorithm.weigh"] == "sequence"
    assert found["algorithm.norm_adv_by_std_in_grpo"] is True
    assert keys()["algorithm.norm_adv_by_std_in_grpo"] is False


@pytest.mark.parametrize(
    ("rule", "weights", "mask"),
    [
        ({}, (None, None), (None, None)),
        ({"truncate": 2.0}, ("token", 2.0), (None, None)),
        # verl bounds a mask by engine / trainer, we bound it by trainer / engine.
        ({"mask_below": 0.5, "mask_above": 4.0}, (None, None), ("token_k1", "0.25_2.0")),
        ({"mask_above": 2.0}, (None, None), ("token_k1", "0.5_1000000.0")),
        ({"truncate": 2.0, "mask_below": 0.5, "mask_above": 2.0}, ("token", "0.5_2.0"), (None, None)),
        ({"truncate": 2.0, "mask_below": 0.5}, ("token", 2.0), ("token_k1", "1e-06_2.0")),
        (
            {"level": "sequence", "mask_below": 0.5, "mask_above": 2.0},
            (None, None),
            ("seq_mean_k1", "0.5_2.0"),
        ),
    ],
)
def test_truncation_icepop_and_masks(rule, weights, mask):
    found = keys(method={"mismatch": rule})
    assert (found[f"{CORRECTION}_is"], found.get(f"{CORRECTION}_is_threshold")) == weights
    assert (found[f"{CORRECTION}_rs"], found.get(f"{CORRECTION}_rs_threshold")) == mask


def test_rollouts_ahead_are_bounded_and_none_is_thrown_away():
    found = keys(**ASYNC)
    assert found["trainer.v1.trainer_mode"] == "separate_async"
    assert found["actor_rollout_ref.hybrid_engine"] is False
    assert found["trainer.v1.separate_async.num_warmup_batches"] == 1
    assert found["trainer.v1.sampler.max_off_policy_threshold"] == 2
    assert found["trainer.v1.sampler.max_off_policy_strategy"] == "wait"
    assert found["trainer.v1.separate_async.parameter_sync_step"] == 1
    assert found[f"{ROLLOUT}.checkpoint_engine.backend"] == "nccl"


def test_megatron_and_what_lies_in_main_memory():
    def trainer(**more):
        asked = {"backend": "megatron", "tensor_parallel": 2, "context_parallel": 2} | more
        big = {"steps": 1, "batch_tokens": 1024, "activation_checkpointing": True}
        return keys(train=big | {"device": "auto", "dtype": "auto"}, verl={"gpus": 4, "trainer": asked})

    kept, on_cpus, moved = (trainer(offload=word) for word in ("none", "optimizer", "all"))
    assert kept["model_engine"] == "megatron" and kept[f"{ACTOR}.megatron.sequence_parallel"] is True
    assert kept[f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"] == "full"
    on = f"+{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"
    assert on_cpus[on] is True and on not in kept and on not in moved
    assert moved[f"{ACTOR}.megatron.param_offload"] is True
    assert on_cpus[f"{ACTOR}.megatron.param_offload"] is False


def test_a_judge_has_its_nodes_and_the_weights_of_its_policy():
    judged = {"judge": {"policy": "swe-rl-judge"}, "verl": {"judge": {"nodes": 1, "tensor_parallel": 2}}}
    made = recipe(verl={"gpus": 2} | judged["verl"], judge=judged["judge"])
    model = JudgeModel.of(made)
    assert model == JudgeModel(Path("models/Qwen3-4B"), 4096, 1.0)
    files = RunFiles(**{**vars(FILES), "judge": model})
    found = dict(line.split("=", 1) for line in overrides(made, files))
    assert found["reward.reward_model.model_path"] == "models/Qwen3-4B"
    assert found["reward.reward_model.rollout.response_length"] == "4096"
    assert "without the judge's weights" in refused(overrides, made, FILES)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollouts": {"context_length": 32768}}, "16384 x verl.trainer.sequence_parallel 1 is less"),
        ({"verl": {"trainer": {"tensor_parallel": 2}}}, "with backend fsdp2: set backend megatron"),
        ({"verl": {"trainer": {"sequence_parallel": 4}}}, "2 GPUs train, no multiple of 4"),
        ({"verl": {"rollout": {"tensor_parallel": 4}}}, "rollout.tensor_parallel 4, but 1 nodes of 2 GPUs"),
        ({"verl": {"rollout": {"nodes": 1}}}, "verl.rollout.nodes 1 with mode sync"),
        ({"rollouts": {"ahead": 1}}, "rollouts.ahead 1 with verl.mode sync"),
        ({**ASYNC, "rollouts": {"update": "in_turns"}}, "rollouts.ahead 0 with verl.mode separate_async"),
        ({**ASYNC, "rollouts": {"ahead": 1}}, "it interrupts turns; set in_turns"),
        ({**ASYNC, "verl": {"mode": "separate_async"}}, "without verl.rollout.nodes"),
        ({"train": {"minibatches": 3}}, "rollouts.prompts 4, no multiple of it"),
        ({"train": {"ranks": 2}}, "verl.trainer.nodes x verl.gpus; leave ranks out"),
        ({"train": {"device": "cuda"}, "verl": {"gpus": 8}}, "1 nodes of 0 GPUs, but verl takes 1 of 8"),
        ({"verl": {"judge": {"nodes": 1}}}, "verl.judge without a judge"),
        ({"verl": {"prompt_tokens": 2048}}, "leave no room in rollouts.context_length 2048"),
        ({"verl": {"trainer": {"backend": "megatron"}}}, "megatron trains in bf16 on GPUs alone"),
        ({"method": {"mismatch": {"level": "sequence", "truncate": 2.0}}}, "product of a sequence's ratios"),
        ({"method": {"refill": 2}}, "method.refill 2: verl takes further tasks without a bound"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_in_one_line(changes, said):
    assert said in refused(recipe, **changes)


def test_the_same_recipe_runs_on_the_embedded_engine_which_says_what_it_does_not_look_at():
    both = recipe(engine="embedded", verl={"gpus": 8, "trainer": {"tensor_parallel": 8}})
    assert unheard(both) == ["verl: engine embedded does not look at it; engine: verl does"]
    assert "engine: embedded" in refused(overrides, both, FILES)
    told = unheard(recipe(listen="10.0.0.1", job={"servers": 2}))
    assert told == [f"{key}: engine verl does not look at it" for key in ("job.servers", "listen")]
    assert unheard(recipe()) == []


def test_a_pool_with_too_few_places_is_refused():
    asked = recipe(rollouts={"at_once": 128})
    assert too_few(asked, None) == too_few(asked, 128) == ""
    assert "rollouts.at_once 128, but the pool has 127 places" in too_few(asked, 127)


def test_machines_run_nothing_again_and_a_mode_does():
    plain, placed = recipe(), recipe(verl={"gpus": 2, "save": 5, "gpu_gib": 40})
    assert learning_slice(plain) == learning_slice(placed)
    assert learning_slice(plain) != learning_slice(recipe(**ASYNC))
    without = recipe(engine="embedded")
    assert not {"engine", "verl", "mode"} & set(learning_slice(without))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "True"),
        (None, "null"),
        ([0.9, 0.98], "[0.9,0.98]"),
        ("results/rl", "results/rl"),
        ("0.5_2.0", "'0.5_2.0'"),
        ("a b=c", "'a b=c'"),
        ("it's", r"'it\'s'"),
        ("true", "'true'"),
    ],
)
def test_values_are_written_as_hydra_reads_them(value, written):
    assert hydra_value(value) == written


INSIDE = "verl_workplace verl_order verl_tokens verl_machine verl_head verl_node"
HEAVY = "torchtune snakemake trl sglang datasets"


def test_what_runs_inside_of_verl_imports_no_trainer_and_no_workflow():
    names = ", ".join(f"swelab.rl.engines.{name}" for name in INSIDE.split())
    line = f"import sys, {names}; print([n for n in '{HEAVY}'.split() if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
