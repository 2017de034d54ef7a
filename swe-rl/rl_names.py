"""Maps the options and variables of SWE-RL's, slime's and Miles' training scripts to keys of a recipe.

docs/coming-from-swe-rl.md and docs/coming-from-miles.md list all of them.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from swelab.console.option_types import number as real  # noqa: E402
from swelab.console.option_types import whole  # noqa: E402
from swelab.records import InputError  # noqa: E402

NUMBERS = {
    "actor-num-nodes": ("verl.trainer.nodes", whole),
    "context-parallel-size": ("verl.trainer.context_parallel", whole),
    "eval-interval": ("validation.every", whole),
    "max-tokens-per-gpu": ("train.batch_tokens", whole),
    "n-samples-per-prompt": ("rollouts.samples", whole),
    "num-rollout": ("train.steps", whole),
    "num-steps-per-rollout": ("train.minibatches", whole),
    "prm-m": ("judge.votes", whole),
    "prm-num-gpus-per-engine": ("verl.judge.tensor_parallel", whole),
    "rollout-batch-size": ("rollouts.prompts", whole),
    "rollout-max-context-len": ("rollouts.context_length", whole),
    "rollout-max-response-len": ("rollouts.max_tokens", whole),
    "rollout-num-gpus-per-engine": ("verl.rollout.tensor_parallel", whole),
    "save-interval": ("verl.save", whole),
    "seed": ("train.seed", whole),
    "tensor-model-parallel-size": ("verl.trainer.tensor_parallel", whole),
    "clip-grad": ("train.max_grad_norm", real),
    "entropy-coef": ("method.entropy", real),
    "eps-clip": ("method.clip_low", real),
    "eps-clip-c": ("method.dual_clip", real),
    "eps-clip-high": ("method.clip_high", real),
    "kl-loss-coef": ("method.kl", real),
    "lr": ("train.lr", real),
    "prm-step-coef": ("judge.coefficient", real),
    "rollout-temperature": ("rollouts.temperature", real),
    "sglang-mem-fraction-static": ("verl.rollout.memory", real),
    "swe-cm-head-ratio": ("rollouts.head_share", real),
    "weight-decay": ("train.weight_decay", real),
    "hf-checkpoint": ("start", str),
    "wandb-project": ("wandb", str),
}
"""Maps options to a key of the recipe and a type."""

ALONE = {
    "attention-backend": "flash",
    "attention-dropout": "0.0",
    "expert-model-parallel-size": "1",
    "expert-tensor-parallel-size": "1",
    "hidden-dropout": "0.0",
    "input-key": "text prompt",
    "kl-loss-type": "low_var_kl",
    "lr-decay-style": "constant",
    "megatron-to-hf-mode": "bridge",
    "metadata-key": "metadata",
    "n-samples-per-eval-prompt": "1",
    "optimizer": "adam",
    "pipeline-model-parallel-size": "1",
    "recompute-granularity": "full",
    "recompute-method": "uniform",
    "recompute-num-layers": "1",
    "reward-key": "score",
}
"""Maps options to their only supported values, which the scripts use. Other values are refused."""

ANYWAY = (
    "accumulate-allreduce-grads-in-fp32",
    "attention-softmax-in-fp32",
    "balance-data",
    "sequence-parallel",
    "use-dynamic-batch-size",
    "use-kl-loss",
    "use-precision-aware-optimizer",
)
"""Options without a value that request our default behaviour."""

PLUGIN = "the agent's loop, its rewards, groups and records are those of this program"
FORM = "rows are known by their fields"
JUDGED = "the judge's question is fixed"
NONE = {
    "custom-generate-function-path": PLUGIN,
    "custom-rm-path": PLUGIN,
    "custom-rollout-log-function-path": PLUGIN,
    "dynamic-sampling-filter-path": f"{PLUGIN}; a recipe says in method.failures what drops a group",
    "rollout-function-path": PLUGIN,
    "eval-input-key": FORM,
    "eval-max-response-len": "a validation has the turns of a training (rollouts.max_tokens)",
    "eval-metadata-key": FORM,
    "eval-prompt-data": "a recipe names the subset that it validates on (validation.subset)",
    "log-probs-chunk-size": "verl divides a pass by train.batch_tokens alone",
    "miles-router-enable-token-input-for-chat-completions": "the policy is asked in tokens anyway",
    "overlap-cpu-optimizer-d2h-h2d": "verl is left to choose",
    "ref-load": "the weights that a run starts from are its reference (--hf-checkpoint)",
    "sglang-router-port": "a job takes ports that are free",
    "swe-prm-max-history-output-len": JUDGED,
    "swe-prm-max-history-steps": JUDGED,
    "swe-prm-max-output-len": JUDGED,
    "swe-prm-max-problem-len": JUDGED,
    "swe-prm-skip-submit": "the step that submits is never has_judge",
    "use-miles-router": "verl's own server shares requests out",
    "wandb-group": "a run is named by its recipe",
    "wandb-key": "other users of the machine see a command's options; WANDB_API_KEY holds it",
}
"""Maps options without a counterpart to the reason."""

VARIABLES = {
    "PROMPT_DATA": "prompt-data",
    "ROLLOUT_NUM_GPUS_PER_ENGINE": "rollout-num-gpus-per-engine",
    "WANDB_PROJECT": "wandb-project",
    "PRM_GPUS_PER_ENGINE": "prm-num-gpus-per-engine",
    "PRM_GPUS_TOTAL": "prm-num-gpus",
    "PRM_M": "prm-m",
    "PRM_MAX_NEW_TOKENS": "prm-max-new-tokens",
    "PRM_MODEL_PATH": "prm-model-path",
    "PRM_STEP_COEF": "prm-step-coef",
    "PRM_TEMPERATURE": "prm-temperature",
}
"""Maps variables to equivalent options. PRM_ variables are read only if the recipe has a judge."""

ESTIMATORS = {"grpo": "grpo", "step_wise": "step-wise"}


class Refusal(argparse.Action):
    """Refuses an option that has no counterpart, or whose value has none. Raises InputError."""

    def __call__(self, parser, namespace, values, option_string=None):
        name = option_string.removeprefix("--")
        if name in NONE:
            raise InputError(f"{option_string} has no counterpart: {NONE[name]}", expected="it left out")
        if not any(is_equal(values, each) for each in ALONE[name].split()):
            values_here = ALONE[name].replace(" ", " or ")
            raise InputError(f"{option_string} {values}", expected=f"{values_here}, the only value here")
        setattr(namespace, self.dest, values)


def is_equal(one, other):
    """Returns whether two words are equal, or are the same number."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def add_options(parser):
    """Adds all options to a parser. `--help` lists the supported ones."""
    add = parser.add_argument
    for name, (key, kind) in NUMBERS.items():
        add(f"--{name}", type=kind, help=key)
    add("--actor-num-gpus-per-node", type=whole, help="verl.gpus")
    add("--rollout-num-gpus", type=whole, help="verl.rollout.nodes x verl.gpus")
    add("--colocate", action="store_true", help="verl.mode: sync; the same GPUs train and serve")
    add("--optimizer-cpu-offload", action="store_true", help="verl.trainer.offload: optimizer")
    add("--global-batch-size", type=whole, help="rollouts of an optimizer step: train.minibatches")
    add("--prompt-data", help="subset: rows to learn on")
    add("--rollout-shuffle", action="store_true", help="rollouts.shuffled")
    add("--load", help="verl.resume_from: verl's global_step_N of another run")
    add("--adam-beta1", type=real, help="train.betas")
    add("--adam-beta2", type=real, help="train.betas")
    add("--advantage-estimator", choices=ESTIMATORS, help="method.advantage")
    add("--disable-grpo-std-normalization", action="store_true", help="method.advantage: grpo-unscaled")
    add("--calculate-per-token-loss", action="store_true", help="method.aggregation: token-mean")
    add("--dynamic_history", "--dynamic-history", action="store_true", help="a sequence for each turn")
    add("--prm-enable", action="store_true", help="judge")
    add("--prm-model-path", help="weights of the judge")
    add("--prm-num-gpus", type=whole, help="verl.judge")
    add("--prm-temperature", type=real, help="sampling.temperature of the judge's policy")
    add("--prm-max-new-tokens", type=whole, help="sampling.max_tokens of the judge's policy")
    add("--save", help="a link to the checkpoint, as SAVE_CKPT")
    add("--use-wandb", action="store_true", help="wandb, with --wandb-project")
    for name, value in ALONE.items():
        add(f"--{name}", action=Refusal, help=f"{value.replace(' ', ' or ')}, the only value here")
    for name in ANYWAY:
        add(f"--{name}", action="store_true", help="done anyway")
    for name in NONE:
        add(f"--{name}", action=Refusal, nargs="*", help=argparse.SUPPRESS)


def words_of(env, has_judge):
    """Converts variables to options of a command line. Later options take precedence over them.

    has_judge: whether the recipe has a judge. Raises InputError.
    """
    words = []
    for name, option in VARIABLES.items():
        if (value := env.get(name)) and (has_judge or not name.startswith("PRM_")):
            kind = NUMBERS.get(option, ("", str))[1]
            kind = {"prm-num-gpus": whole, "prm-max-new-tokens": whole, "prm-temperature": real}.get(
                option, kind
            )
            if kind is not str:
                number(name, value, kind)
            if name == "PRM_MODEL_PATH":
                weights(name, value)
            if name == "PROMPT_DATA":
                rows(name, value)
            words += [f"--{option}={value}"]
    return words


def number(name, text, kind=whole, least=0):
    """Converts the value of the variable `name` to a number. Raises InputError."""
    try:
        value = kind(text)
    except argparse.ArgumentTypeError:
        value = None
    if value is None or value < least:
        form = "a whole number" if kind is whole else "a number"
        raise InputError(f"{name}={text}", expected=f"{form} of at least {least}" if least else form)
    return value


def rows(name, value):
    """Returns the absolute path of a file of task rows. Raises InputError if there is no such file."""
    if not Path(value).is_file():
        raise InputError(f"{name}={value}: no such file", expected="task rows")
    return str(Path(value).resolve())


def weights(name, value):
    """Checks a value for weights: sft:<recipe>, model:<recipe> or a folder. Raises InputError."""
    if value.startswith(("sft:", "model:")):
        return value
    of_clone = (ROOT / value).is_dir()
    folder = ROOT / value if of_clone else Path(value)
    if not value or not folder.is_dir():
        raise InputError(
            f"{name}={value}: no such folder", expected="weights, or model:<recipe> or sft:<recipe>"
        )
    if not (folder / "config.json").is_file():
        raise InputError(f"{name}={value}: no config.json in it", expected="weights in Hugging Face layout")
    return value if of_clone else str(folder.resolve())
