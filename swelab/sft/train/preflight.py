"""Finds all faults of a training that can be found before a GPU is requested, and reports them together.

Reads headers, sizes, vocabularies and all rows, but no tensors.

The memory estimate (`swelab.checks.memory`) should be right within a factor of two. docs/training.md has
measured peaks. Let a number have s bytes. A logit takes s + 4 bytes, or 2 s bytes if the model is compiled.
The loss is computed in eight chunks. Each logit of the current chunk takes 8 bytes more. DPO runs both sides
of a pair at once, without chunks. Then a logit takes 2 s + 4 bytes.
"""

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swelab import machine
from swelab.checks.finding import Finding, catch, fix, wrong
from swelab.checks.memory import BYTES, Memory, estimate
from swelab.configs.kinds.sft import Job, Lora, Sft, Train
from swelab.files.model_config import ModelConfig
from swelab.files.weights import header, weight_paths
from swelab.machine import GIB, gib
from swelab.records import InputError, read_json, sha256_file
from swelab.records.training_records import RowMessage
from swelab.sft.rows.chat_template import ChatTemplate
from swelab.sft.rows.lengths import ChatTokenizer, LengthStats, check_stats
from swelab.sft.rows.preferences import conversations
from swelab.sft.train.base_reading import compare_rows, compare_shapes
from swelab.sft.train.check_settings import check_settings
from swelab.sft.train.device import dtype_of
from swelab.sft.train.ranks import ranks_of, recipe_of, share, sharing
from swelab.sft.train.trainer import check_trainer, open_trainer

ROOM = 1.1
"""The free disk space must be this many times the estimated size of the outputs."""
WIDTHS, CHUNKS = (16, 6, 5), 8
"""WIDTHS: widths of one layer's activations in torchtune. CHUNKS: number of chunks of its cross-entropy."""


@dataclass(frozen=True)
class Training:
    """Inputs of a training: base model's folder, rows, statistics of the rows, SFT recipe, working folder."""

    base: Path
    dataset: Path
    stats: Path
    recipe: Sft
    work: Path


def findings(training: Training) -> Iterator[Finding]:
    """Yields a finding for each fault. If a check raises InputError, its later faults are not reported."""
    checks = list(CHECKS)
    if not training.base.is_dir():
        yield wrong("no such folder", training.base, "a checkpoint in Hugging Face layout")
        checks = [check for check in CHECKS if check not in OF_THE_BASE]
    yield from catch(*(partial(check, training) for check in checks))


def _settings(training: Training) -> Iterator[Finding]:
    recipe = training.recipe
    job, train = recipe.job, recipe.train
    yield from catch(lambda: recipe_of(recipe), lambda: share(train, ranks_of(recipe)))
    yield from catch(lambda: check_settings(recipe))
    if train.device == "cuda" and not job.gpus:
        yield wrong("train.device is cuda, and job.gpus is 0", expected="job.gpus of at least 1")


def _weights(training: Training) -> Iterator[Finding]:
    """Checks that every shard in the index exists, is complete, and has the tensors that the index lists."""
    paths, index = weight_paths(training.base)
    tensors: set[tuple[str, str]] = set()
    for path in paths:
        try:
            tensors |= {(name, path.name) for name in header(path)}
        except InputError as error:
            yield fix(str(error))
    where = training.base / "model.safetensors.index.json"
    whole = all(path.is_file() for path in paths)
    lost = [name for name, file in index.items() if (name, file) not in tensors] if whole else []
    if lost:
        yield wrong(
            f"{len(lost)} tensors are not in the files that the index names, such as {lost[0]}", where
        )


def _model(training: Training) -> Iterator[Finding]:
    """Checks that config.json and weights describe the same model, and that a trainer supports it."""
    path = training.base / "config.json"
    config = ModelConfig.of(read_json(path))
    shapes = _shapes(training.base)
    check_trainer(config, path, training.recipe.trainer)
    rows = shapes.get("model.embed_tokens.weight", [config.vocab_size])[0]
    if rows != config.vocab_size:
        yield wrong(f"vocab_size is {config.vocab_size}", path, f"the {rows} rows of the embedding")
    count = sum(math.prod(shape) for shape in shapes.values())
    if shapes and count != config.weights:
        yield wrong(f"describes {config.weights:,} weights", path, f"the {count:,} that are there")
    elif shapes:
        compare_shapes(training.base)


def _tokenizer(training: Training) -> Iterator[Finding]:
    """Checks that the tokenizer is ChatML, and not larger than the embedding."""
    base = training.base
    tokenizer, config = ChatTokenizer(base), read_json(base / "config.json")
    largest = max(read_json(base / "tokenizer.json")["model"]["vocab"].values(), default=0)
    largest = max(largest, *tokenizer.special_tokens.values())
    if largest >= config.get("vocab_size", 0):
        where = base / "tokenizer.json"
        yield wrong(f"token {largest}", where, f"less than the vocab_size {config.get('vocab_size')}")
    ends = config.get("eos_token_id")
    for token in ends if isinstance(ends, list) else [] if ends is None else [ends]:
        if token not in tokenizer.special_tokens.values():
            yield wrong(f"eos_token_id {token}", base / "config.json", "a special token's id")
    example = [RowMessage(role="user", content="a"), RowMessage(role="assistant", content="b")]
    yield from catch(lambda: ChatTemplate(base).plain(example, []))


def _dataset(training: Training) -> Iterator[Finding]:
    """Checks that rows match their statistics, fill a step, and fit into the model's context."""
    train, limit = training.recipe.train, training.recipe.selection.max_tokens
    over, stats = check_stats(training.dataset, training.stats, limit)
    if stats.sha256 and stats.sha256 != sha256_file(training.dataset):
        yield wrong(
            "was changed after it was measured", training.dataset, f"the file that {training.stats} is of"
        )
    if over and stats.over_long != "keep_truncate":
        what = f"{over} rows over {limit} tokens"
        yield wrong(what, training.dataset, f"none ({stats.over_long})")
    rows = stats.num_samples
    need = train.batch_size * train.gradient_accumulation_steps
    if rows < need:
        yield wrong(f"{rows} rows", training.dataset, f"at least the {need} of one optimizer step")
    bounds = {"the model's context": _config(training.base).get("max_position_embeddings", 0)}
    bounds |= {"train.max_seq_len": train.max_seq_len} if train.packed else {}
    for name, bound in bounds.items():
        if stats.max > bound > 0:
            what = f"a row of {stats.max} tokens"
            yield wrong(what, training.dataset, f"at most {name} of {bound}")


def _disk(training: Training) -> Iterator[Finding]:
    """Checks the disk space for the last epoch, its copy, and two saved states.
    There are two states because a state is removed only when the next one is complete."""
    need = disk_bytes(training)
    free, folder = machine.disk(training.work)
    if free < ROOM * need:
        yield wrong(f"{gib(free)} free", folder, f"{gib(ROOM * need)} for weights and saved states")


def _conversations(training: Training) -> Iterator[Finding]:
    """Checks that the server reads every row as it is trained. Reports nothing if a file is missing or the
    tokenizer is not ChatML, because other checks report that."""
    example = [RowMessage(role="user", content="a"), RowMessage(role="assistant", content="b")]
    try:
        ChatTokenizer(training.base)
        ChatTemplate(training.base).plain(example, [])
    except InputError:
        return
    if training.dataset.is_file():
        yield from catch(lambda: compare_rows(training.base, conversations(training.dataset)))


def _memory(training: Training) -> Iterator[Finding]:
    """Checks that a rank fits into its GPU. Without GPUs, checks that all ranks fit into the job's memory."""
    needs, job = memory(training), training.recipe.job
    if needs is None:
        return
    if job.gpus and needs.total > job.gpu_gb * GIB:
        what = f"about {a_rank(needs)}"
        yield wrong(what, "memory", f"at most job.gpu_gb = {job.gpu_gb:g} GiB")
    room, name = memory_of(job)
    if not job.gpus and job.ranks * needs.total > room:
        what = f"{job.ranks} × about {a_rank(needs)}"
        wanted = math.ceil(job.ranks * needs.total / (1 << 20))
        yield wrong(what, "memory", f"at most {name}; `job: {{mem_mb: {wanted}}}` asks for enough")


def memory_of(job: Job) -> tuple[int, str]:
    """Returns (bytes of memory that a training without GPUs gets, their name). Without SLURM, a recipe that
    does not set job.mem_mb gets what this machine has free."""
    room, name = job.mem_mb << 20, f"job.mem_mb = {job.mem_mb} MB"
    if "mem_mb" in job.model_fields_set or shutil.which("sbatch"):
        return room, name
    return max((room, name), (machine.memory()[0], f"the {gib(machine.memory()[0])} that are free here"))


OF_THE_BASE = (_weights, _model, _tokenizer, _conversations)
CHECKS = (_settings, _weights, _model, _tokenizer, _dataset, _conversations, _disk, _memory)


def memory(training: Training) -> Memory | None:
    """Estimates the memory of one rank at its largest forward pass.
    Returns None if config.json lacks a size, or if ranks cannot share a step evenly."""
    recipe, config = training.recipe, _config(training.base)
    train, ranks = recipe.train, ranks_of(recipe)
    try:
        batch = share(train, ranks).batch_size
        tokens = min(longest(training), config.max_position_embeddings)
        if train.packed:
            tokens = train.max_seq_len
        elif train.group_by_length:
            batch, tokens = 1, max(tokens, train.max_batch_tokens)
        size = BYTES[dtype_of(train, bool(recipe.job.gpus))]
        return rank_memory(config, train, sharing(recipe), batch, tokens, size, _masters(training))
    except (InputError, KeyError):
        return None


def _masters(training: Training) -> bool:
    """Returns whether the optimizer steps on weights in fp32 and the model computes in bf16."""
    recipe = training.recipe
    return open_trainer(recipe.trainer).masters and dtype_of(recipe.train, bool(recipe.job.gpus)) == "bf16"


def rank_memory(
    config: ModelConfig, train: Train, ranks: int, batch: int, tokens: int, size: int, masters: bool = False
) -> Memory:
    """Estimates the memory of one rank. ranks: number of ranks that share the weights. A forward pass has
    `batch` conversations of `tokens` tokens. size: bytes per number. masters: see `estimate`."""
    sides = 2 if train.dpo else 1
    places = batch * tokens * sides
    logit = 2 * size + 4 if train.dpo else (2 * size if train.compile else size + 4) + 8 / CHUNKS
    return estimate(
        config,
        size,
        places,
        places * config.vocab_size * logit,
        widths=WIDTHS,
        ranks=ranks,
        copies=sides,
        trainable=trainable_weights(config, train),
        in_backward=train.optimizer_in_bwd,
        checkpointing=train.activation_checkpointing,
        overlap=False,
        masters=masters,
    )


def a_rank(needs: Memory) -> str:
    """Describes an estimate in words."""
    return f"{gib(needs.total)} a rank ({needs})"


def trainable_weights(config: ModelConfig, train: Train) -> int:
    """Returns the number of weights that training changes."""
    return adapter_weights(config, train.lora) if train.lora else config.weights


def adapter_weights(config: ModelConfig, lora: Lora) -> int:
    """Returns the number of weights of the low-rank adapters."""
    width, narrow, inner = config.hidden_size, config.key_width, config.intermediate_size
    wide = 2 * width
    sides = {"q_proj": wide, "output_proj": wide, "k_proj": width + narrow, "v_proj": width + narrow}
    layer = sum(sides[name] for name in lora.attention) + lora.mlp * 3 * (width + inner)
    return int(config.num_hidden_layers * lora.rank * layer)


def longest(training: Training) -> int:
    """Returns the tokens of the longest row, or the recipe's maximum if rows were not measured."""
    limit = int(training.recipe.selection.max_tokens)
    try:
        return min(int(LengthStats.of(read_json(training.stats)).max or limit), limit)
    except (InputError, KeyError, TypeError, ValueError):
        return limit


def disk_bytes(training: Training) -> int:
    """Returns the bytes on disk at the end of training.

    There are two copies of the weights and two saved states. A saved state has the trained weights, and two
    moments for each of them. Returns 0 if config.json lacks a size.
    """
    config, train = _config(training.base), training.recipe.train
    try:
        every, trainable = config.weights, trainable_weights(config, train)
    except KeyError:
        return 0
    size = BYTES[dtype_of(train, bool(training.recipe.job.gpus))]
    return size * 2 * every + (BYTES["fp32"] if _masters(training) else size) * 6 * trainable


def _config(base: Path) -> ModelConfig:
    """Returns the base model's config.json. The result has no fields if the file is unreadable.
    Another check reports the unreadable file."""
    try:
        config = read_json(base / "config.json")
    except InputError:
        config = {}
    return ModelConfig.of(config if isinstance(config, dict) else {})


def _shapes(base: Path) -> dict[str, list[int]]:
    """Returns the shapes of all tensors, or {} if a file has a fault. Another check reports the fault."""
    try:
        paths, _ = weight_paths(base)
        return {name: tensor["shape"] for path in paths for name, tensor in header(path).items()}
    except InputError:
        return {}
