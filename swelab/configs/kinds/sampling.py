"""Sampling settings of a policy's recipe and of the rollouts of reinforcement learning.

Names, ranges and meanings are those of `swelab.sampling_settings`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    model_serializer,
)
from pydantic_core import CoreSchema, PydanticCustomError

from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe
from swelab.records import Record
from swelab.sampling_settings import EFFORTS, LONGEST_STOP, MOST_STOPS, RESERVED, SETTINGS

if TYPE_CHECKING:
    Effort = str
else:
    Effort = Literal[EFFORTS]


def setting(name: str, default: Any = ..., also: str = "", **bounds: float) -> Any:
    """Returns the pydantic field of a setting. default: by default the table's. also: words that are added to
    its meaning. bounds: bounds in place of the table's. The type `TopK` has its bounds."""
    entry = SETTINGS[name]
    meaning = f"{entry.meaning}; {also}" if also else entry.meaning
    limits: Any = bounds or (entry.bounds if name != "top_k" else {})
    return Field(entry.default if default is ... else default, description=meaning, **limits)


def _check_top_k(value: int) -> int:
    if value == 0:
        raise PydanticCustomError("top_k", "0 is no number of tokens; expected -1 for all, or at least 1")
    return value


def _check_fields(fields: Record) -> Record:
    for name in fields:
        if name in SETTINGS:
            raise PydanticCustomError("extra", "{name}: write it as sampling.{name}", {"name": name})
        if name in RESERVED:
            raise PydanticCustomError("extra", "{name}: swelab sets this field itself", {"name": name})
    return fields


_TOP_K: Any = SETTINGS["top_k"].bounds
TopK = Annotated[int, Field(**_TOP_K), AfterValidator(_check_top_k)]
Stops = Annotated[
    Distinct[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]],
    Field(min_length=1, max_length=MOST_STOPS),
]
Fields = Annotated[dict[str, Any], AfterValidator(_check_fields)]


class Sampling(Recipe):
    """Sampling settings of the model."""

    defaults: OrAbsent[Literal["model"]] = Field(
        None,
        description="model: where the recipe has no temperature, top_p, top_k, min_p, repetition_penalty or "
        "max_tokens, that of the weights' generation_config.json holds; `sampling: model` is short for this",
    )
    temperature: float = setting("temperature")
    top_p: float = setting("top_p")
    top_k: OrAbsent[TopK] = setting("top_k")
    min_p: OrAbsent[float] = setting("min_p")
    repetition_penalty: OrAbsent[float] = setting("repetition_penalty")
    presence_penalty: OrAbsent[float] = setting("presence_penalty")
    frequency_penalty: OrAbsent[float] = setting("frequency_penalty")
    stop: OrAbsent[Stops] = setting("stop")
    max_tokens: int = setting("max_tokens")
    seed: int = setting("seed")
    thinking: OrAbsent[bool] = setting("thinking")
    reasoning_effort: OrAbsent[Effort] = setting("reasoning_effort")
    extra_body: OrAbsent[Fields] = setting("extra_body")
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each value came from that the recipe does not give. Empty without `defaults`, and until the
        weights' file was read."""
        return self._origins

    @property
    def values(self) -> Record:
        """The settings that requests send."""
        return {name: value for name, value in self.plain().items() if name in SETTINGS}

    def with_values(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> "Sampling":
        """Returns the settings with `values` added. origins: where they came from."""
        found = self.model_copy(update=dict(values))
        found._origins = dict(origins)
        return found

    @model_serializer(mode="wrap")
    def _without_values_to_come(self, plain: Callable[[Any], Record]) -> Record:
        """Leaves out defaults in whose place the values of the weights' file will come."""
        found = plain(self)
        if self.defaults:
            later = [name for name in OF_FILE if name not in self.model_fields_set]
            found = {name: value for name, value in found.items() if name not in later}
        return found


OF_FILE = tuple(name for name, each in SETTINGS.items() if each.in_file)
"""Settings that a model's generation_config.json may have."""


def _written_out(given: Any) -> Any:
    return {"defaults": "model"} if given == "model" else given


class _OrWord:
    """Lets the JSON Schema of a section accept a word in its place."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Record:
        return {**handler(schema), "type": ["object", "string"]}


OfPolicy = Annotated[Sampling, BeforeValidator(_written_out), _OrWord()]
"""The `sampling` of a policy whose weights are at hand. `model` is short for `{defaults: model}`."""


def check_learned(given: Any) -> Any:
    """Refuses settings under which the learner's log-probabilities would not be those of the sampled tokens.
    A `before` validator of recipes."""
    for name, entry in SETTINGS.items():
        if entry.refused and isinstance(given, dict) and name in given:
            facts = {"name": name, "reason": entry.refused}
            raise PydanticCustomError("not_learned", "{name} is refused here: {reason}", facts)
    return given
