"""Miles' names and options as its users type them, and docs/coming-from-miles.md compared with them."""

import json
import re

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.records import read_jsonl
from tests.conftest import ROOT, make_task
from tests.contract.slime_names import NONE, missing, run_script, train

pytestmark = pytest.mark.real
HERE = "examples/experimental/swe-agent"
RUN, DATA = "run-qwen3-4b-instruct.sh", "download_and_process_data.py"
TEXT = (ROOT / "docs/coming-from-miles.md").read_text()
OPTIONS = """
--hf-checkpoint --ref-load --load --save --save-interval --tensor-model-parallel-size
--pipeline-model-parallel-size --context-parallel-size --expert-model-parallel-size
--expert-tensor-parallel-size --recompute-granularity --recompute-method --recompute-num-layers
--use-dynamic-batch-size --max-tokens-per-gpu --prompt-data --input-key --metadata-key --rollout-shuffle
--num-rollout --rollout-batch-size --n-samples-per-prompt --rollout-temperature --rollout-max-response-len
--global-batch-size --balance-data --eval-interval --eval-prompt-data --eval-input-key --eval-metadata-key
--n-samples-per-eval-prompt --eval-max-response-len --advantage-estimator --use-kl-loss --kl-loss-coef
--kl-loss-type --entropy-coef --eps-clip --eps-clip-high --optimizer --lr --lr-decay-style --weight-decay
--adam-beta1 --adam-beta2 --use-wandb --wandb-project --wandb-group --wandb-key
--rollout-num-gpus-per-engine --sglang-mem-fraction-static --attention-dropout --hidden-dropout
--accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32 --attention-backend --use-miles-router
--miles-router-enable-token-input-for-chat-completions --custom-generate-function-path --custom-rm-path
--rollout-function-path --dynamic-sampling-filter-path --custom-rollout-log-function-path
--actor-num-nodes --actor-num-gpus-per-node --colocate
""".split()
"""The options of the original, including those that it has commented out."""
VARIABLES = """
HF_CKPT PROMPT_DATA EXPORT_ROOT SAVE_CKPT SWE_SAVE_TRAJ_DIR MASTER_ADDR WANDB_KEY WANDB_API_KEY MODEL_ARGS
CUDA_DEVICE_MAX_CONNECTIONS PYTHONBUFFERED MILES_EXPERIMENTAL_ROLLOUT_REFACTOR HAS_NVLINK
""".split()


def run(name, *words, **given):
    return run_script(f"{HERE}/{name}", *words, **given)


def test_options_of_the_original_are_on_the_page_and_known():
    done = run(RUN, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert run(RUN, "-h").stdout == done.stdout
    assert missing(OPTIONS + VARIABLES, TEXT) == []
    taken = set(re.findall(r"--[\w-]+", done.stdout))
    assert set(OPTIONS) <= taken | {f"--{name}" for name in NONE}
    assert not taken & {f"--{name}" for name in NONE}


def test_the_original_s_own_values_change_nothing_but_what_verl_cannot_take(trainer):
    """Two sizes differ, for which the recipe gives the reason, and refused options."""
    options = """--save-interval 100 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1
    --expert-model-parallel-size 1 --expert-tensor-parallel-size 1 --recompute-granularity full
    --recompute-method uniform --recompute-num-layers 1 --use-dynamic-batch-size --input-key prompt
    --metadata-key metadata --rollout-shuffle --num-rollout 3000 --rollout-batch-size 8
    --n-samples-per-prompt 8 --rollout-temperature 0.8 --rollout-max-response-len 8192
    --global-batch-size 64 --balance-data --advantage-estimator grpo --use-kl-loss --kl-loss-coef 0.01
    --kl-loss-type low_var_kl --entropy-coef 0.0 --eps-clip 0.2 --eps-clip-high 0.28 --optimizer adam
    --lr 1e-6 --lr-decay-style constant --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.98
    --rollout-num-gpus-per-engine 1 --sglang-mem-fraction-static 0.7 --attention-dropout 0.0
    --hidden-dropout 0.0 --accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32
    --attention-backend flash --actor-num-nodes 1 --actor-num-gpus-per-node 4 --colocate"""
    done = train(trainer, f"{HERE}/{RUN}", *options.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "results/rl/miles-4b/checkpoint.json"


def test_a_global_batch_makes_optimizer_steps(trainer):
    done = train(trainer, f"{HERE}/{RUN}", "--global-batch-size", 64, "--eps-clip", 0.2)
    assert done.stdout.split()[0] == "results/rl/miles-4b/checkpoint.json"
    done = train(trainer, f"{HERE}/{RUN}", "--global-batch-size", 16)
    recipe = done.stdout.split()[0].split("/")[2]
    assert recipes.load_named(RL, recipe, trainer.parent / "configs").train.minibatches == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--global-batch-size 7", "--global-batch-size 7 with 64 rollouts a step; expected a number that"),
        ("--prm-num-gpus 6", "--prm-num-gpus 6 with 4 GPUs a node; expected a part of a node, or whole"),
        ("--lr -1", "the settings of run-qwen3-4b-instruct.sh, in configs/rl: field train.lr: -1.0"),
        ("--optimizer sgd", "--optimizer sgd; expected adam, the only value here"),
        ("--hidden-dropout 0.1", "--hidden-dropout 0.1; expected 0.0, the only value here"),
        ("--ref-load /x", "--ref-load has no counterpart: the weights that a run starts from are its"),
        ("--use-miles-router", "--use-miles-router has no counterpart: verl's own server shares requests"),
        ("--use-wandb", "--use-wandb without a project; expected --wandb-project, too"),
        ("--load /none", "--load=/none: no folder actor in it; expected verl's global_step_N"),
    ],
)
def test_what_the_run_script_refuses(trainer, options, said):
    done = train(trainer, f"{HERE}/{RUN}", *options.split())
    assert done.returncode == 2 and said in done.stderr.splitlines()[-1], done.stderr
    assert done.stdout == "" and not (trainer.parent / "out").exists()


@pytest.mark.parametrize(("name", "subset"), [("rows.json", "gym"), ("swe-bench.json", "verified")])
def test_rows_are_of_gym_unless_their_name_says_another_set(tmp_path, name, subset):
    (tmp_path / name).write_text(json.dumps([make_task()]))
    done = run(DATA, "--input", name, "--output", "swe_train.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["metadata"]["subset"] for row in read_jsonl(tmp_path / "swe_train.jsonl")] == [subset]
