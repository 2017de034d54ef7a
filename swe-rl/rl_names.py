"""The options and variables of SWE-RL's, slime's and Miles' training scripts, and what each is here.

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
"""Options that are a key of the recipe."""

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
"""Options that have one value here, which is the scripts' own; any other value is refused."""

ANYWAY = (
    "accumulate-allreduce-grads-in-fp32",
    "attention-softmax-in-fp32",
    "balance-data",
    "sequence-parallel",
    "use-dynamic-batch-size",
    "use-kl-loss",
    "use-precision-aware-optimizer",
)
"""Options without a value that ask for what is done anyway."""

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
    "swe-prm-skip-submit": "the step that submits is never judged",
    "use-miles-router": "verl's own server shares requests out",
    "wandb-group": "a run is named by its recipe",
    "wandb-key": "other users of the machine see a command's options; WANDB_API_KEY holds it",
}
"""Options that have no counterpart, and why."""

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
"""Variables that stand for an option. Those of the judge are read where the recipe has one."""

ESTIMATORS = {"grpo": "grpo", "step_wise": "step-wise"}


class Refused(argparse.Action):
    """An option without a counterpart, or with a value that there is none for. Raises InputError."""

    def __call__(self, parser, namespace, values, option_string=None):
        name = option_string.removeprefix("--")
        if name in NONE:
            raise InputError(f"{option_string} has no counterpart: {NONE[name]}", expected="it left out")
        if not any(alike(values, each) for each in ALONE[name].split()):
            known = ALONE[name].replace(" ", " or ")
            raise InputError(f"{option_string} {values}", expected=f"{known}, the only value here")
        setattr(namespace, self.dest, values)


def alike(told, value):
    """Whether two words are the same, or the same number."""
    try:
        return float(told) == float(value)
    except ValueError:
        return told == value


def add_options(parser):
    """All options to a parser; `--help` lists those that are taken."""
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
        add(f"--{name}", action=Refused, help=f"{value.replace(' ', ' or ')}, the only value here")
    for name in ANYWAY:
        add(f"--{name}", action="store_true", help="done anyway")
    for name in NONE:
        add(f"--{name}", action=Refused, nargs="*", help=argparse.SUPPRESS)


def words_of(env, judged):
    """The options that variables stand for, as words of a command line; options given after them win.

    judged: whether the recipe has a judge. Raises InputError.
    """
    words = []
    for name, option in VARIABLES.items():
        if (told := env.get(name)) and (judged or not name.startswith("PRM_")):
            kind = NUMBERS.get(option, ("", str))[1]
            kind = {"prm-num-gpus": whole, "prm-max-new-tokens": whole, "prm-temperature": real}.get(
                option, kind
            )
            if kind is not str:
                number(name, told, kind)
            if name == "PRM_MODEL_PATH":
                weights(name, told)
            if name == "PROMPT_DATA":
                rows(name, told)
            words += [f"--{option}={told}"]
    return words


def number(name, text, kind=whole, least=0):
    """A variable's number. Raises InputError."""
    try:
        found = kind(text)
    except argparse.ArgumentTypeError:
        found = None
    if found is None or found < least:
        wanted = "a whole number" if kind is whole else "a number"
        raise InputError(f"{name}={text}", expected=f"{wanted} of at least {least}" if least else wanted)
    return found


def rows(name, told):
    """The path of a file of task rows. Raises InputError."""
    if not Path(told).is_file():
        raise InputError(f"{name}={told}: no such file", expected="task rows")
    return str(Path(told).resolve())


def weights(name, told):
    """Weights as a recipe names them: sft: or model: and a recipe, or a folder. Raises InputError."""
    if told.startswith(("sft:", "model:")):
        return told
    of_clone = (ROOT / told).is_dir()
    folder = ROOT / told if of_clone else Path(told)
    if not told or not folder.is_dir():
        raise InputError(
            f"{name}={told}: no such folder", expected="weights, or model:<recipe> or sft:<recipe>"
        )
    if not (folder / "config.json").is_file():
        raise InputError(f"{name}={told}: no config.json in it", expected="weights in Hugging Face layout")
    return told if of_clone else str(folder.resolve())
