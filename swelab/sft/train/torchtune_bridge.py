"""Configures torchtune's own trainer for an SFT recipe and a checkpoint folder.

torchtune 0.6 runs in separate processes (`swelab.sft.train.torchtune_worker`), with a YAML file that this
module writes.
"""

from pathlib import Path

import yaml

from swelab.configs.kinds.sft import Sft, Train
from swelab.files.model_config import ModelConfig
from swelab.files.weights import check_weights, weight_files
from swelab.records import InputError, Record, write_bytes
from swelab.sft.train.device import device_of, dtype_of
from swelab.sft.train.ranks import command, ranks_of, recipe_of, share, sharing
from swelab.sft.train.run_plan import PLAN, PLANNED, RunPlan
from swelab.sft.train.schedule import torchtune_schedule
from swelab.sft.train.step_log import STEPS
from swelab.sft.train.trainer import check_trainer


class Torchtune:
    """Trains with torchtune, see `trainer.Trainer`.
    torchtune 0.6 does not support Qwen3. Its Llama models need tokenizers that we do not configure here."""

    architectures = ("Qwen2ForCausalLM",)
    lacks: tuple[str, ...] = ()
    fills_packs = replicates = True
    masters = False

    def check_config(self, config: ModelConfig, where: Path) -> None:
        """Refuses what torchtune's Qwen2 ignores: other positions than the usual ones, a sliding window,
        another activation function."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        faults = {
            f"rope type {kind}": kind != "default",
            "use_sliding_window": config.get("use_sliding_window"),
            f"hidden_act {config.get('hidden_act')}": config.get("hidden_act", "silu") != "silu",
        }
        if what := next((name for name, wrong in faults.items() if wrong), ""):
            raise InputError(f"{what} with trainer: torchtune", where, "trainer: trl in the SFT recipe")

    def command(self, base: Path, dataset: Path, recipe: Sft, plan: RunPlan, work: Path) -> list[str]:
        """Writes torchtune's configuration and returns its command line. Raises InputError."""
        write_config(work / "config.yaml", configuration(base, dataset, work, recipe, plan))
        states = ["--steps", str(work / "steps"), "--every", str(recipe.job.save_every_n_steps)]
        return command(ranks_of(recipe), recipe_of(recipe), ["--config", str(work / "config.yaml"), *states])

    def settings(self, base: Path, dataset: Path, output: Path, train: Train) -> Record:
        """Returns the whole configuration."""
        return torchtune_config(base, dataset, output, train)


def configuration(base: Path, dataset: Path, work: Path, recipe: Sft, plan: RunPlan) -> Record:
    """Returns torchtune's configuration for one rank of a planned run. Raises InputError.

    On several ranks, the number of steps per epoch is limited to complete steps. Otherwise, ranks would fill
    an incomplete last step with rows that were already used.
    """
    config = torchtune_config(base, dataset, work / "output", recipe.train)
    ranks = ranks_of(recipe)
    log = {"log_dir": str(work / "output"), "planned": str(work / PLANNED)}
    config |= {
        "metric_logger": {"_component_": "swelab.sft.train.step_log.StepLog", **log},
        "max_steps_per_epoch": plan.steps_per_epoch if ranks.total > 1 else None,
        "sharded": recipe.train.sharded,
    }
    if not plan.batches or plan.batches.how == "plain":
        return {**config, **share(recipe.train, ranks)}
    passes = {"plan": str(work / PLAN), "data_files": str(dataset), "base": str(base)}
    if (device_of(recipe.train), dtype_of(recipe.train)) == ("cpu", "fp32"):
        # torchtune's default loss works in chunks, to avoid a float32 copy of all logits. Here logits are
        # float32 already, and chunks only make the loss five times slower.
        own = "swelab.sft.train.cross_entropy.TrainedTokensLoss"
        config |= {"loss": {"_component_": own if sharing(recipe) == 1 else "torch.nn.CrossEntropyLoss"}}
    return {
        **config,
        "dataset": passes,
        "batch_size": plan.batches.largest,
        "gradient_accumulation_steps": plan.batches.passes,
    }


def torchtune_config(base: Path, dataset: Path, output: Path, train: Train) -> Record:
    """Returns torchtune's full configuration for a base model and a dataset.

    The dataset contains `sft_row` records, or `sft_pair` records for DPO. Raises InputError if torchtune does
    not support the base model's architecture.
    """
    config = check_weights(base)
    check_trainer(config, base / "config.json", "torchtune")
    weights = {
        "_component_": "torchtune.training.FullModelHFCheckpointer",
        "checkpoint_dir": str(base),
        "checkpoint_files": [path.name for path in weight_files(base)],
        "recipe_checkpoint": None,
        "output_dir": str(output),
        "model_type": "QWEN2",
    }
    return {
        "output_dir": str(output),
        "model": with_adapters(base_model(config), train),
        "checkpointer": weights,
        **({"ref_checkpointer": weights} if train.dpo else {}),
        "resume_from_checkpoint": False,
        "tokenizer": tokenizer(base),
        "dataset": _rows(base, dataset, train),
        **_training(train),
        "device": device_of(train),
        "dtype": dtype_of(train),
        "metric_logger": {
            "_component_": "torchtune.training.metric_logging.DiskLogger",
            "log_dir": str(output),
            "filename": STEPS,
        },
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
    }


def model_settings(base: Path) -> Record:
    """Returns the sections with which torchtune reads a checkpoint of this base model, whichever trainer made
    it. The model has no adapters, because they are merged into the weights. Returns {} if torchtune does not
    support the model."""
    config = check_weights(base)
    try:
        check_trainer(config, base / "config.json", "torchtune")
    except InputError:
        return {}
    return {"model": base_model(config), "tokenizer": tokenizer(base)}


def base_model(config: ModelConfig) -> Record:
    """Returns torchtune's model section for a Qwen2 config.json."""
    rope = config.rope_parameters or config
    return {
        "_component_": "torchtune.models.qwen2.qwen2",
        "vocab_size": config.vocab_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "embed_dim": config.hidden_size,
        "intermediate_dim": config.intermediate_size,
        "max_seq_len": config.max_position_embeddings,
        "attn_dropout": config.attention_dropout,
        "norm_eps": config.rms_norm_eps,
        "rope_base": rope.get("rope_theta", 1_000_000.0),
        "tie_word_embeddings": config.tie_word_embeddings,
    }


def tokenizer(base: Path) -> Record:
    """Returns torchtune's tokenizer section, which names our tokenizer: it reads tokenizer.json."""
    return {"_component_": "swelab.sft.train.json_tokenizer.JsonTokenizer", "folder": str(base)}


def with_adapters(model: Record, train: Train) -> Record:
    """Returns the model section, with low-rank adapters if the settings request them."""
    lora = train.lora
    if not lora:
        return model
    return {
        **model,
        "_component_": "torchtune.models.qwen2.lora_qwen2",
        "lora_attn_modules": lora.attention,
        "apply_lora_to_mlp": lora.mlp,
        "apply_lora_to_output": False,
        "lora_rank": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
    }


def _rows(base: Path, dataset: Path, train: Train) -> Record:
    """Returns the configuration's section `dataset`, which names our dataset. torchtune's ignores weights and
    tools of rows, and reads no file in which a field first appears late."""
    files = {"data_files": str(dataset), "base": str(base)}
    if train.dpo:
        return {"_component_": "swelab.sft.train.torchtune_datasets.pair_dataset", **files}
    return {"_component_": "swelab.sft.train.torchtune_datasets.chat_dataset", **files, "packed": False}


def _training(train: Train) -> Record:
    return {
        "seed": train.seed,
        "shuffle": True,
        "epochs": train.epochs,
        "max_steps_per_epoch": None,
        "batch_size": train.batch_size,
        "gradient_accumulation_steps": train.gradient_accumulation_steps,
        "optimizer": {
            "_component_": "torch.optim.AdamW",
            "fused": True,
            "lr": train.lr,
            "betas": train.betas,
            "weight_decay": train.weight_decay,
        },
        "lr_scheduler": torchtune_schedule(train),
        "optimizer_in_bwd": train.optimizer_in_bwd,
        "clip_grad_norm": train.clip_grad_norm,
        "loss": _loss(train),
        "enable_activation_checkpointing": train.activation_checkpointing,
        "enable_activation_offloading": False,
        "compile": train.compile,
    }


def _loss(train: Train) -> Record:
    if train.dpo:
        return {"_component_": "torchtune.rlhf.loss.DPOLoss", "beta": train.dpo.beta}
    return {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"}


def write_config(path: Path, config: Record) -> None:
    """Writes torchtune's configuration as the YAML that `tune run` reads."""
    write_bytes(path, yaml.safe_dump(config, sort_keys=False).encode())
