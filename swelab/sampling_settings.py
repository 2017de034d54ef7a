"""The only table of sampling settings: their types, ranges, names in requests, and which rollouts take them.

Recipes, checks of requests, options of commands and `docs/sampling.md` take names, ranges and meanings from
here. So a new setting is one entry here, and a field of `swelab.configs.kinds.sampling.Sampling`. `python -m
scripts.write_schemas` writes the table in the documentation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EFFORTS = ("none", "minimal", "low", "medium", "high")
LONGEST_STOP, MOST_STOPS = 1024, 16
_PENALIZED = (
    "the engine's log-probabilities would be those of the changed distribution, but the learner computes "
    "those of the unchanged one"
)
BEFORE = "stored log-probabilities are those before it is applied"
"""How reinforcement learning treats settings that leave out unlikely tokens."""


@dataclass(frozen=True)
class Setting:
    """A sampling setting.

    kind: type of its value; list is a list of texts. bounds: range of the value, as ge, gt, le and lt. words:
    the possible values, if they are few. default: value if a recipe does not have the key; None sends
    nothing. neutral: the default of inference engines, None if engines differ. in_file: its name in a model's
    generation_config.json, "" if it is not there. generate: its name in /generate, "" if it is not
    sent there. learned: how reinforcement learning treats it. refused: why reinforcement learning refuses it,
    "" if it does not.
    """

    meaning: str
    kind: type
    bounds: Mapping[str, float] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    default: Any = None
    neutral: float | None = None
    in_file: str = ""
    generate: str = ""
    learned: str = "yes"
    refused: str = ""


def _penalty(meaning: str, name: str, bounds: Mapping[str, float], neutral: float, in_file: str) -> Setting:
    return Setting(
        meaning, float, bounds, neutral=neutral, in_file=in_file, generate=name, refused=_PENALIZED
    )


_PENALTY = {"ge": -2, "le": 2}
_REPETITION = {"gt": 0, "le": 2}
SETTINGS: dict[str, Setting] = {
    "temperature": Setting(
        "sampling temperature; 0 is greedy decoding",
        float,
        {"ge": 0, "le": 100},
        default=0.0,
        neutral=1.0,
        in_file="temperature",
        generate="temperature",
        learned="yes; the learner divides logits by it too",
    ),
    "top_p": Setting(
        "nucleus sampling: probability mass of the tokens to sample from",
        float,
        {"gt": 0, "le": 1},
        default=1.0,
        neutral=1.0,
        in_file="top_p",
        generate="top_p",
        learned=f"yes; {BEFORE}",
    ),
    "top_k": Setting(
        "number of most likely tokens to sample from; -1 for all",
        int,
        {"ge": -1, "le": 1 << 30},
        neutral=-1,
        in_file="top_k",
        generate="top_k",
        learned=f"yes; {BEFORE}",
    ),
    "min_p": Setting(
        "least probability of the tokens to sample from, as a share of the most likely token's",
        float,
        {"ge": 0, "le": 1},
        neutral=0.0,
        in_file="min_p",
        generate="min_p",
        learned=f"yes; {BEFORE}",
    ),
    "repetition_penalty": _penalty(
        "factor by which tokens of the prompt and of the answer become less likely; 1 for none",
        "repetition_penalty",
        _REPETITION,
        1.0,
        "repetition_penalty",
    ),
    "presence_penalty": _penalty(
        "amount by which the logits of tokens of the answer sink; 0 for none",
        "presence_penalty",
        _PENALTY,
        0.0,
        "",
    ),
    "frequency_penalty": _penalty(
        "amount by which the logits of tokens of the answer sink at each occurrence; 0 for none",
        "frequency_penalty",
        _PENALTY,
        0.0,
        "",
    ),
    "stop": Setting("texts that end a turn, which does not contain them then", list, generate="stop"),
    "max_tokens": Setting(
        "maximum number of tokens of one turn",
        int,
        {"ge": 1, "le": (1 << 31) - 1},
        default=1024,
        in_file="max_new_tokens",
        generate="max_new_tokens",
    ),
    "seed": Setting(
        "seed of the sampling",
        int,
        {"ge": -(1 << 63), "le": (1 << 63) - 1},
        default=0,
        refused="rollouts of a group would be alike; /generate takes none",
    ),
    "thinking": Setting(
        "value of `enable_thinking` for the chat template: false requests turns without thoughts; if absent, "
        "the template gets no value",
        bool,
        learned="yes, by the chat template",
    ),
    "reasoning_effort": Setting(
        "how long the model thinks, for services and servers with such a setting; if absent, the service "
        "decides",
        str,
        words=EFFORTS,
        learned="yes, by the chat template",
    ),
    "extra_body": Setting(
        "further fields of each request, for what only one service has",
        dict,
        refused="the learner does not know what they do to the distribution",
    ),
}
RESERVED = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "n",
)
"""Fields of a request that swelab itself sets, so that `extra_body` may not."""
TEMPLATE = "chat_template_kwargs"


def named_fields(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that a chat request sends under their own names."""
    return {name: each for name, each in sampling.items() if name not in ("thinking", "extra_body")}


def further_fields(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the other fields of a chat request: those of `extra_body`, and `thinking` for the template."""
    further = dict(sampling.get("extra_body") or {})
    if sampling.get("thinking") is not None:
        further[TEMPLATE] = {**further.get(TEMPLATE, {}), "enable_thinking": sampling["thinking"]}
    return further


def chat_fields(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all fields by which a chat request sends the settings."""
    return named_fields(sampling) | further_fields(sampling)


def generate_fields(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sampling parameters of a request to /generate. Names that are not in the table
    stay as they are. Settings that /generate does not take are left out."""
    known = {name: each.generate for name, each in SETTINGS.items()}
    return {known.get(name, name): each for name, each in sampling.items() if known.get(name, name)}


def setting_in(words: str, names: Mapping[str, Any]) -> str:
    """Returns the setting of `names` that a service's refusal names, or "". A name that is also an ordinary
    word must be in quotation marks or beside a colon.

    >>> setting_in("Unsupported parameter: 'top_k'", {"stop": [], "top_k": 1})
    'top_k'
    >>> setting_in("please stop", {"stop": []})
    ''
    """
    for name in sorted(names, key=len, reverse=True):
        quoted = rf"['\"`.]{name}['\"`\[]|\b{name}\s*:|:\s*{name}\b"
        if re.search(rf"(?<!\w){name}(?!\w)" if "_" in name else quoted, words):
            return name
    return ""


def range_of(setting: Setting) -> str:
    """Returns the possible values of a setting in words.

    >>> range_of(SETTINGS["top_p"]), range_of(SETTINGS["thinking"])
    ('over 0, at most 1', 'true, false')
    """
    if setting.kind is bool:
        return "true, false"
    if setting.words:
        return ", ".join(setting.words)
    if setting.kind is list:
        return f"1 to {MOST_STOPS} texts of at most {LONGEST_STOP:,} characters"
    if setting.kind is dict:
        return f"names and values; not {', '.join(RESERVED)}, nor a setting of this table"
    signs = {"gt": "over", "ge": "at least", "lt": "under", "le": "at most"}
    limits = {sign: bound for sign, bound in setting.bounds.items() if abs(bound) < 1 << 30}
    return ", ".join(f"{signs[sign]} {bound:g}" for sign, bound in limits.items()) or "any"


_TABLE = re.compile(r"<!-- swelab\.sampling_settings -->\n(?:\|.*\n)*")
_KINDS = {
    float: "number",
    int: "whole number",
    str: "word",
    bool: "truth value",
    list: "list",
    dict: "mapping",
}


def with_sampling_table(text: str) -> str:
    """Returns a documentation page with its table of sampling settings updated from this module."""
    return _TABLE.sub(lambda _: _table(), text)


def _table() -> str:
    rows = [
        "| setting | meaning | type, range | default | in `/generate` | in `generation_config.json` | RL |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in SETTINGS.items():
        cells = [
            f"`{name}`",
            each.meaning,
            f"{_KINDS[each.kind]}: {range_of(each)}",
            "" if each.default is None else f"{each.default:g}",
            f"`{each.generate}`" if each.generate else "",
            f"`{each.in_file}`" if each.in_file else "",
            f"refused: {each.refused}" if each.refused else each.learned,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(["<!-- swelab.sampling_settings -->", *rows, ""])
