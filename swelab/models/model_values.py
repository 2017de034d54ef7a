"""Takes sampling settings from a model's generation_config.json, in which its maker recommends values.

A recipe asks for this by `sampling: model`. Keys that the recipe has take precedence.
"""

from pathlib import Path
from typing import Any

from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.policy import Policy
from swelab.configs.kinds.sampling import OF_FILE
from swelab.lineage import weights_paths
from swelab.records import InputError, Record, read_json
from swelab.sampling_settings import SETTINGS

FILE = "generation_config.json"
ENGINE, OURS = "the engine's default", "swelab's default"


def load_named_policy(name: str, configs: Path = recipes.CONFIGS) -> Policy:
    """Loads the recipe of the policy `name`; see `with_model_values`."""
    return with_model_values(recipes.load_named(POLICY, name, configs))


def sampling_facts(policy: Policy) -> Record:
    """Returns {"sampling", "sampling_from"} for a manifest, whose recipe does not give all settings: the
    settings, and where those came from that the recipe does not give. Returns {} if it gives all."""
    if policy.kind != "checkpoint" or not policy.sampling.origins:
        return {}
    return {"sampling": policy.sampling.values, "sampling_from": dict(policy.sampling.origins)}


def with_model_values(policy: Policy) -> Policy:
    """Returns the policy with all sampling settings filled in that its weights' file may have.

    A value that neither the recipe nor the file has is the engine's default; `Sampling.origins` says so. A
    policy without `sampling: model` is returned unchanged. Raises InputError if no folder of the weights has
    the file, or a value in it is unusable.
    """
    if policy.kind != "checkpoint" or not policy.sampling.defaults:
        return policy
    sampling = policy.sampling
    absent = [name for name in OF_FILE if name not in sampling.model_fields_set]
    if not absent:
        return policy
    path = _file(policy.weights, policy.base)
    values, places = Record(), dict[str, str]()
    found = _read(path)
    for name in absent:
        entry = SETTINGS[name]
        if entry.in_file in found:
            values[name], places[name] = found[entry.in_file], FILE
        elif entry.neutral is not None:
            values[name], places[name] = entry.neutral, ENGINE
        else:
            values[name], places[name] = entry.default, OURS
    checked = recipes.complete(POLICY, policy.plain() | {"sampling": sampling.plain() | values}, path)
    assert checked.kind == "checkpoint"
    kept = {name: getattr(checked.sampling, name) for name in values}
    return policy.model_copy(update={"sampling": sampling.with_values(kept, places)})


def _file(*weights: str | None) -> Path:
    """Returns the path of the file in the first folder that has it. Raises InputError."""
    folders = [Path(weights_paths(each)[0]) for each in weights if each]
    for folder in folders:
        if (folder / FILE).is_file():
            return folder / FILE
    raise InputError("no such file", folders[0] / FILE, "it, for `sampling: model`; or values in the recipe")


def _read(path: Path) -> dict[str, Any]:
    """Returns the values of a file that are not null. Raises InputError."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError("not a mapping", path, "a model's generation settings")
    values = {name: value for name, value in found.items() if value is not None}
    if values.get("do_sample") is False:
        values["temperature"] = 0.0
    if values.get("top_k") == 0:
        values["top_k"] = -1
    return values
