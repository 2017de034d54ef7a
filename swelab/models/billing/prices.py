"""Prices of a hosted model's tokens, from LiteLLM's price table or from the recipe's own `price`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swelab.records import Record
from swelab.records.typed import TypedRecord, field

NANO = 10**9
"""Number of nanodollars in a dollar. Money is counted in whole nanodollars, so that sums are exact."""
TIER = re.compile(r"(.+)_above_(\d+)k_tokens")
INPUT, OUTPUT = "input_cost_per_token", "output_cost_per_token"
CACHED, WRITTEN = "cache_read_input_token_cost", "cache_creation_input_token_cost"
REASONING = "output_cost_per_reasoning_token"
RECIPE_KEYS = {"input": INPUT, "output": OUTPUT, "cached_input": CACHED, "cache_write": WRITTEN}


@dataclass(frozen=True)
class CallTokens:
    """Token counts of one call. prompt: all prompt tokens. cached: prompt tokens that were read from a cache.
    written: prompt tokens that were written to a cache. reasoning: tokens of the answer that are thoughts."""

    prompt: int
    completion: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0

    def record(self) -> "TokenCounts":
        """Returns the counts in the form that a message stores."""
        parts = {"cached_tokens": self.cached, "cache_write_tokens": self.written}
        parts |= {"reasoning_tokens": self.reasoning}
        counts = TokenCounts(prompt_tokens=self.prompt, completion_tokens=self.completion)
        return counts | {name: count for name, count in parts.items() if count}


class TokenCounts(TypedRecord):
    """The token counts of one call, in the form that a message stores."""

    prompt_tokens: int = field("tokens of the prompt, including cached tokens")
    completion_tokens: int = field("tokens of the answer")
    cached_tokens: int = field("prompt tokens that were read from a cache", default=0)
    cache_write_tokens: int = field("prompt tokens that were written to a cache", default=0)
    reasoning_tokens: int = field("tokens of the answer that are thoughts", default=0)


def read_usage(response: Any) -> CallTokens | None:
    """Returns the token counts in a LiteLLM response, or None if the response counts no prompt tokens."""
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if not prompt:
        return None
    cached = min(_count(details, "cached_tokens") or _count(usage, "cache_read_input_tokens"), prompt)
    written = min(_count(usage, "cache_creation_input_tokens"), prompt - cached)
    thoughts = _count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens")
    return CallTokens(prompt, completion, cached, written, min(thoughts, completion))


def _count(holder: Any, name: str) -> int:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and value > 0 else 0


class Price:
    """Prices in dollars per token, under LiteLLM's names. `<name>_above_<n>k_tokens` is the price for prompts
    longer than n thousand tokens. Source: `model_prices_and_context_window_backup.json` of LiteLLM 1.103."""

    def __init__(self, rates: Mapping[str, float]):
        self.rates = dict(rates)

    def rate(self, name: str, prompt: int, default: str = "") -> float:
        """Returns the price in dollars of one token of this kind, in a call with `prompt` prompt tokens."""
        tiers = [(0, name)] if name in self.rates else []
        for key in self.rates:
            found = TIER.fullmatch(key)
            if found and found[1] == name and prompt > int(found[2]) * 1000:
                tiers.append((int(found[2]), key))
        if tiers:
            return self.rates[max(tiers)[1]]
        return self.rate(default, prompt) if default else 0.0

    def cost(self, usage: CallTokens) -> int:
        """Returns the cost of a call in nanodollars."""
        fresh = usage.prompt - usage.cached - usage.written
        dollars = fresh * self.rate(INPUT, usage.prompt)
        dollars += usage.cached * self.rate(CACHED, usage.prompt, INPUT)
        dollars += usage.written * self.rate(WRITTEN, usage.prompt, INPUT)
        return nano(dollars + usage.completion * self._answer(usage.prompt))

    def worst(self, prompt: int, completion: int) -> int:
        """Returns the maximum cost of a call in nanodollars, with the highest price for each prompt token."""
        dearest = max(self.rate(name, prompt, INPUT) for name in (INPUT, CACHED, WRITTEN))
        return nano(prompt * dearest + completion * self._answer(prompt))

    def _answer(self, prompt: int) -> float:
        return max(self.rate(OUTPUT, prompt), self.rate(REASONING, prompt))


def nano(dollars: float) -> int:
    """Converts dollars to nanodollars, rounded up except for floating-point errors."""
    exact = dollars * NANO
    return -int(-exact // 1) if abs(exact - round(exact)) > 1e-3 else round(exact)


def price_of(recipe: Record | None, listed: Mapping[str, Any]) -> Price | None:
    """Returns the recipe's price, or else the listed price, or None if neither exists.

    recipe: dollars per million tokens (input, output, cached_input, cache_write). listed: the model's entry
    in LiteLLM's table. Listed prices of 0 for both prompt and answer mean that the price is unknown.
    """
    if recipe:
        return Price({RECIPE_KEYS[name]: value / 1e6 for name, value in recipe.items()})
    rates = {name: value for name, value in listed.items() if name.partition("_above_")[0] in RATE_NAMES}
    return Price(rates) if rates.get(INPUT) or rates.get(OUTPUT) else None


RATE_NAMES = {INPUT, OUTPUT, CACHED, WRITTEN, REASONING}
