"""A checkpoint that is small enough to serve and train in seconds: real files, random weights."""

import json
from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.records.training_records import SftRow

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = (
    "system user assistant Fix the bug. Answer with one bash block. echo sed -i python -m pytest exit 0 def"
)
VOCAB, DIM, HEADS, KV_HEADS, LAYERS, FEED_FORWARD, CONTEXT = 320, 64, 4, 2, 2, 128, 512
SCAFFOLD = MiniLoop(
    system_template="",
    instance_template="",
    action_regex=r"(?s)(.+)",
    format_error_template="again",
    observation_template="{{output.output}}",
    max_observation_chars=1000,
)
"""Each whole response is one command."""
SIZES = {"context_length": CONTEXT, "max_total_tokens": 8 * CONTEXT, "max_running_requests": 8}
"""Memory limits of its server, in tokens."""


def make_checkpoint(folder: Path, seed: int = 0) -> Path:
    """Writes config, tokenizer and random weights of a 0.1 M-parameter Qwen2 to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer(folder)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": VOCAB,
        "hidden_size": DIM,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 500.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": VOCAB - 1,
        "pad_token_id": VOCAB - 3,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": VOCAB - 1}))
    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def make_adapter(folder: Path, seed: int = 7, rank: int = 4) -> Path:
    """Writes a LoRA adapter for the toy's attention, in PEFT's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(seed)
    found = {}
    narrow = DIM // HEADS * KV_HEADS
    parts = {"q_proj": DIM, "k_proj": narrow, "v_proj": narrow, "o_proj": DIM}
    for layer in range(LAYERS):
        for part, width in parts.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            found[f"{name}.lora_A.weight"] = random.normal(0, 0.3, (rank, DIM)).astype("float32")
            found[f"{name}.lora_B.weight"] = random.normal(0, 0.3, (width, rank)).astype("float32")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "toy",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(parts),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(found, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def merge_adapter(checkpoint: Path, adapter: Path, folder: Path) -> Path:
    """Writes the toy with the adapter's product added to its weights.

    Serving both must give equal results.
    """
    folder.mkdir(parents=True)
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights, low = (
        load_file(checkpoint / "model.safetensors"),
        load_file(adapter / "adapter_model.safetensors"),
    )
    config = json.loads((adapter / "adapter_config.json").read_text())
    for name in [name for name in low if name.endswith("lora_A.weight")]:
        own = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
        product = low[name.replace("lora_A", "lora_B")] @ low[name]
        weights[own] = weights[own] + product * (config["lora_alpha"] / config["r"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def conversations(count: int) -> list[SftRow]:
    """Returns rows of an SFT dataset: short, alike, and different."""
    rows = [
        {
            "messages": [
                {"role": "system", "content": "Fix the bug. Answer with one bash block."},
                {"role": "user", "content": f"f{number} must return {number}."},
                {"role": "assistant", "content": f"```bash\ngrep -n f{number} a.py\n```"},
                {"role": "user", "content": f"exit 0\n{number}:def f{number}():\n"},
                {"role": "assistant", "content": "```bash\necho done\n```"},
            ],
            "instance_id": f"toy__a.{number:03d}",
            "policy": "scripted",
            "resolved": True,
        }
        for number in range(count)
    ]
    return [SftRow.of(row) for row in rows]


def _tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.add_tokens([f"<|unused{n}|>" for n in range(VOCAB - len(SPECIAL) - tokenizer.get_vocab_size())])
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {str(tokenizer.token_to_id(name)): {"content": name, "special": True} for name in SPECIAL}
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "chat_template": TEMPLATE,
        "added_tokens_decoder": added,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _weights(seed: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)

    def matrix(*shape: int) -> numpy.ndarray:
        return random.normal(0, 0.08, shape).astype("float32")

    def ones(size: int) -> numpy.ndarray:
        return numpy.ones(size, dtype="float32")

    narrow = DIM // HEADS * KV_HEADS
    found = {"model.embed_tokens.weight": matrix(VOCAB, DIM), "model.norm.weight": ones(DIM)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        for part, width in (("q", DIM), ("k", narrow), ("v", narrow)):
            found[f"{name}.self_attn.{part}_proj.weight"] = matrix(width, DIM)
            found[f"{name}.self_attn.{part}_proj.bias"] = matrix(width)
        found[f"{name}.self_attn.o_proj.weight"] = matrix(DIM, DIM)
        found[f"{name}.mlp.gate_proj.weight"] = matrix(FEED_FORWARD, DIM)
        found[f"{name}.mlp.up_proj.weight"] = matrix(FEED_FORWARD, DIM)
        found[f"{name}.mlp.down_proj.weight"] = matrix(DIM, FEED_FORWARD)
        found[f"{name}.input_layernorm.weight"] = ones(DIM)
        found[f"{name}.post_attention_layernorm.weight"] = ones(DIM)
    return found
