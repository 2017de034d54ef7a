"""Makes the base model's vocabulary: byte-level BPE that gives a word the same tokens in every place.

Merges are learnt after text is split into letters, digits, blanks and punctuation. So "width" is the same
token in `def fit_width(`, in " width" and in "/width.py", and a small model can copy it. The files are in
Qwen2's layout. Readers of this layout split text into longer parts. The tokens are the same, because no merge
joins two of our parts.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from swelab.records import Fault, write_bytes, write_json

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PARTED = r"\p{L}+|\p{N}| +|`+|[^\p{L}\p{N} `]"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOL_TEMPLATE = (
    "{% for message in messages %}"
    "{% set role = 'user' if message['role'] == 'tool' else message['role'] %}"
    "{{'<|im_start|>' + role + '\n' + (message['content'] or '')}}"
    "{% if loop.first and tools %}{% for tool in tools %}"
    "{{'\n' + tool['function']['name'] + '('"
    " + (tool['function']['parameters']['properties'] | list | join(', ')) + ')'}}"
    "{% endfor %}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}{% set asked = call['function']['arguments'] %}"
    "{{('\n' if message['content'] or not loop.first else '')"
    " + '<tool_call>\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": '"
    " + (asked if asked is string else asked | tojson) + '}\n</tool_call>'}}{% endfor %}"
    "{{'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A chat template that describes each tool only by its name and the names of its arguments.
Like Qwen's, this template writes calls as JSON between tags, and tool outputs as user turns."""


class TokenizerError(Fault):
    """Raised if torchtune and the tokenizers library tokenize a text differently."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Trains a tokenizer of at most `vocab_size` tokens, including special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = splitter(PARTED)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = splitter(QWEN2)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def splitter(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Returns what splits text at the matches of a pattern, and then turns the parts into bytes."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def save_tokenizer(
    tokenizer: Tokenizer, folder: Path, context: int, chat_template: str = CHAT_TEMPLATE
) -> None:
    """Writes tokenizer.json, vocab.json, merges.txt (all from one object) and the chat template."""
    text = tokenizer.to_str(pretty=True)
    write_bytes(folder / "tokenizer.json", text.encode())
    model = json.loads(text)["model"]
    write_json(folder / "vocab.json", model["vocab"])
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    write_bytes(folder / "merges.txt", f"#version: 0.2\n{merges}".encode())
    added = {
        str(tokenizer.token_to_id(name)): {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for name in SPECIAL
    }
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "bos_token": None,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "chat_template": chat_template,
        "added_tokens_decoder": added,
    }
    write_json(folder / "tokenizer_config.json", settings)


def check_tokenizer(folder: Path, texts: Iterable[str]) -> int:
    """Checks that vocab.json (which torchtune reads) and tokenizer.json give each text the same tokens.
    Returns the number of texts. Raises TokenizerError at the first difference."""
    from torchtune.models.qwen2 import Qwen2Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    theirs = Qwen2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), special_tokens=special)
    count = 0
    for text in texts:
        if theirs.encode(text, add_bos=False, add_eos=False) != tokenizer.encode(text).ids:
            raise TokenizerError(f"torchtune and tokenizer.json differ on {text[:60]!r}")
        count += 1
    return count
