"""The plan of an evaluation: the policy (model), the scaffold, the output folder, the number of workers."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from swelab import machine
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy, Policy
from swelab.configs.kinds.sampling import OF_FILE, Sampling
from swelab.configs.kinds.scaffold import Scaffold
from swelab.evaluation.benchmark_rows import Source
from swelab.models.billing.prices import price_of
from swelab.models.chat.litellm_calls import listed_price
from swelab.models.model_values import with_model_values
from swelab.models.serving.complete_checkpoint import longest_context
from swelab.models.serving.lora import check_name
from swelab.records import SHIPPED_CONFIGS, InputError, Record

DEFAULT_SCAFFOLD = "mini-swebench"
NO_KEY = "none"
"""API key for a service at --api-base that needs no key, because clients require some key."""
LONGEST_CONTEXT = 32768
ROOM = 0.6
"""Maximum share of a GPU's memory for the weights."""
KEY = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Plan:
    """The settings of an evaluation. policy_name: the model's name. options: the command-line options.

    label: name of the evaluation. If the label is empty, the name is the model's name. Two evaluations of the
    same model need different labels.
    """

    source: Source
    folder: Path
    policy: Policy
    policy_name: str
    scaffold: Scaffold
    scaffold_name: str
    workers: int = 4
    samples: int = 1
    max_lost: int = 0
    repos: Path = Path("results/repos")
    images: Path | None = None
    image_store: Path | None = None
    image_prefix: str = ""
    options: Record = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """The evaluation's name in predictions, reports, scores and tables."""
        return self.label or self.policy_name

    @property
    def progress(self) -> Path:
        """The folder of the journals. A killed run is resumed from these journals."""
        return self.folder / "progress"

    @property
    def paid(self) -> Path:
        """The folder with the ledger of a hosted model, and with the paid turns of unfinished attempts."""
        return self.progress / "paid"

    @property
    def witness(self) -> Path | None:
        """The witness file that validation wrote next to the task file, or None if there is no such file."""
        path = Path(self.source.data)
        beside = path.with_name(f"{path.stem.removesuffix('.kept')}.witness.zip")
        return beside if path.is_file() and beside.is_file() else None

    def identity(self) -> Record:
        """Returns the settings that must be equal in all runs that use the same output folder."""
        policy = self.policy.plain()
        keys = ("model", "weights", "kind", "sampling", "base", "adapter", "context_length")
        return {
            "model": self.policy_name,
            "policy": {name: policy[name] for name in keys if name in policy},
            "scaffold": self.scaffold.plain(),
            "data": self.source.name,
        }


def policy_of(
    model: str, *, api_base: str = "", api_key_env: str = "", sampling: Mapping[str, Any], **further: Any
) -> tuple[str, Policy]:
    """Returns (name, policy). `model` is a recipe (.yaml), a folder of weights, or a model name in LiteLLM's
    form.

    api_base, api_key_env: address of the service and the environment variable with its key. They replace the
    recipe's. sampling: as in a recipe. None keeps the recipe's value or the default.
    further: other settings of the policy. None and "" are ignored. Raises InputError.
    """
    settings: Record = {name: value for name, value in further.items() if value not in (None, "")}
    options = {name: value for name, value in sampling.items() if value is not None}
    path = Path(model)
    if path.suffix in (".yaml", ".yml"):
        loaded = recipes.load(POLICY, path)
        recipe = loaded.plain()
        if options and (loaded.kind == "hosted" or loaded.kind == "checkpoint"):
            settings["sampling"] = _with_options(loaded.sampling, options)
        key = api_key_env or recipe.get("api_key_env") or ""
        settings |= _service_settings(recipe.get("model") or "", api_base, key) if api_base or key else {}
        return path.stem, with_model_values(recipes.complete(POLICY, recipe | settings, path))
    settings |= {"scaffold": DEFAULT_SCAFFOLD, "sampling": options}
    if path.is_dir():
        if api_base or api_key_env:
            what = "--api-base and --api-key-env do not apply to a folder of weights"
            raise InputError(what, model, "a service's model, such as openai/NAME, or a recipe")
        name = path.resolve().name
        check_name(name)
        return name, with_model_values(recipes.complete(POLICY, _local_settings(path) | settings, model))
    if "/" not in model or model.startswith(("/", ".", "~")):
        expected = "openai/NAME or another name that LiteLLM knows, a folder of weights, or a recipe (.yaml)"
        raise InputError(
            "no such folder" if "/" in model else "--model names no service and no folder", model, expected
        )
    service, _, name = model.partition("/")
    if not (service.strip() and name.strip(" /")):
        raise InputError("--model names no model of the service", model, "openai/NAME, such as openai/gpt-4o")
    settings |= {"kind": "hosted", "model": model}
    settings |= _service_settings(model, api_base, api_key_env)
    return model, recipes.complete(POLICY, settings, model)


def _with_options(sampling: Sampling, options: Record) -> Record:
    """Returns the recipe's sampling settings with options in their place. With `defaults: model` among the
    options, the recipe keeps no value that the weights' file may have, except max_tokens."""
    given = sampling.model_dump(exclude_unset=True)
    if options.get("defaults"):
        given = {name: each for name, each in given.items() if name not in OF_FILE or name == "max_tokens"}
    return given | options


def _local_settings(folder: Path) -> Record:
    """Returns the settings of a policy whose weights are served on this machine. It has as many servers as
    the GPUs allow."""
    gpus = machine.gpus()
    length = longest_context(folder, None, LONGEST_CONTEXT)
    return {
        "kind": "checkpoint",
        "weights": str(folder),
        "context_length": length,
        "max_total_tokens": 2 * length if not gpus else 4 * LONGEST_CONTEXT,
        "job": {"gpus": len(gpus), "servers": max(1, len(gpus) // gpus_of_a_server(folder, gpus))},
    }


def gpus_of_a_server(folder: Path, gpus: Sequence[machine.Gpu]) -> int:
    """Returns the smallest number of GPUs (a power of two) whose memory holds the weights and a server's
    cache."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    count = 1
    while count * 2 <= len(gpus) and size > ROOM * sum(gpu.total for gpu in gpus[:count]):
        count *= 2
    return count


def _service_settings(model: str, api_base: str, api_key_env: str) -> Record:
    """Returns the settings api_base and api_key_env of a service.

    For an openai/ model at --api-base, $OPENAI_API_KEY is set to `none` if the variable is missing. Raises
    InputError if the address is malformed.
    """
    service: Record = {"api_base": api_base} if api_base else {}
    if api_base and not _is_address(api_base):
        what = f"--api-base {without_secret(api_base)!r}"
        raise InputError(what, expected="an address such as http://host:8000/v1")
    if api_key_env:
        return service | {"api_key_env": api_key_env}
    if api_base and model.startswith("openai/"):
        os.environ.setdefault(KEY, NO_KEY)
        return service | {"api_key_env": KEY}
    return service


def _is_address(text: str) -> bool:
    """Returns whether a text is an HTTP address with a host, and with a valid port if it has one."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_secret(text: str) -> str:
    """Removes user, password and query from an address. Any text that is not an address is returned
    unchanged."""
    return re.sub(r"(?s)\A([\w+.-]+://)(?:[^/?#]*@)?([^?#]*).*", r"\1\2", text)


def with_servers(policy: Policy, tp: int | None, dp: int | None) -> Policy:
    """Returns the policy with `dp` servers, each with its weights spread over `tp` GPUs. Raises
    InputError."""
    if not isinstance(policy, CheckpointPolicy) or not (tp or dp):
        if tp or dp:
            raise InputError(
                "--tp and --dp apply only to weights that are served here", expected="a folder of weights"
            )
        return policy
    gpus = policy.job.gpus
    each = tp or max(1, gpus // (dp or 1))
    servers = dp or max(1, gpus // each)
    if gpus and each * servers > gpus:
        raise InputError(f"{servers} servers of {each} GPUs each, but this machine has {gpus} GPUs")
    job = policy.job.model_copy(update={"gpus": each * servers if gpus else 0, "servers": servers})
    return policy.model_copy(update={"job": job})


def has_no_price(policy: Policy) -> bool:
    """Returns whether the policy is a hosted model without a known price. A limit in dollars then has no
    effect."""
    if not isinstance(policy, HostedPolicy) or policy.price:
        return False
    return price_of(None, listed_price(policy.model)) is None


def scaffold_of(
    name: str, step_limit: int | None = None, cost_limit: float | None = None
) -> tuple[str, Scaffold]:
    """Returns (name, scaffold). `name` is a recipe under configs/scaffolds, or a file. Limits that are not
    None replace the recipe's limits. Raises InputError."""
    here = recipes.CONFIGS if recipes.CONFIGS.is_dir() else SHIPPED_CONFIGS
    path = Path(name) if name.endswith((".yaml", ".yml")) else recipes.path_of("scaffold", name, here)
    scaffold = recipes.load(SCAFFOLD, path)
    steps = "call_limit" if scaffold.agent == "swe-agent" else "step_limit"
    options = {steps: step_limit, "cost_limit": cost_limit}
    limits = {name: value for name, value in options.items() if value is not None}
    if not limits:
        return path.stem, scaffold
    return path.stem, recipes.complete(SCAFFOLD, scaffold.plain() | limits, f"{path} with {limits}")
