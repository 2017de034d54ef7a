"""Reads configuration files of debug-gym's and SWE-PDB's `scripts/run.py` as plans of evaluations.

A file has a section `base`, and a section for each agent that overrides `base`. UNUSED lists the keys that
have no effect here. Any other unknown key is an error.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.evaluation_plan import Plan, policy_of
from swelab.records import SHIPPED_CONFIGS, InputError, Record, read_text

AGENTS = {"debug_agent": "debugger", "rewrite_agent": "debugger-rewrite"}
"""Maps each agent type to the name of its scaffold."""
READ = {
    *("agent_type", "benchmark", "env_kwargs", "excluded_ids", "llm_config_file_path", "llm_name"),
    *("max_rewrite_steps", "max_steps", "output_path", "problems", "terminal", "tools", "uuid"),
}
UNUSED = {
    *("history_cutoff", "log_prompt_response_pairs", "memory_size", "random_seed"),
    *("reset_prompt_history_after_rewrite", "save_patch", "use_conversational_prompt"),
}
"""Keys that have no effect. Conversations are always kept whole, tasks are in the order of the data set, and
patches are saved."""
ENVIRONMENT = {"data_path", "entrypoint", "persistent_breakpoints", "run_timeout"}
ENVIRONMENT_UNUSED = {
    *(
        "auto_eval_on_rewrite",
        "auto_list",
        "dir_tree_depth",
        "show_current_breakpoints",
        "show_directory_tree",
    ),
}
BACKENDS = {"local": "", "docker": "docker"}
"""Maps `terminal.type` to a backend. `local` means the default backend, which also runs commands in a
sandbox."""
LLM_FILES = ("LLM_CONFIG_FILE_PATH", ".config/debug_gym/llm.yaml")
KEY = "SWE_PDB_API_KEY"
MAX_TOKENS = 4096
Settings = dict[str, Any]


@dataclass(frozen=True)
class RunRequest:
    """Command-line options that override the file. An option that is not given is 0, "" or -1."""

    config: Path
    agent: str = ""
    params: tuple[str, ...] = ()
    workers: int = 1
    seconds: int = 0
    llm_name: str = ""
    llm_file: str = ""
    max_rewrite_steps: int = -1


def read_settings(request: RunRequest) -> Settings:
    """Reads the settings of the requested agent. Raises InputError with the file and the key."""
    whole = _mapping(request.config)
    for param in request.params:
        _override(whole, param)
    agents = [name for name in whole if name != "base"]
    name = request.agent or next(iter(agents), "")
    if name not in agents:
        raise InputError(f"no agent {name!r}", request.config, f"one of {', '.join(agents) or 'its parts'}")
    settings = {**_part(whole, "base", request.config), **_part(whole, name, request.config)}
    settings.setdefault("agent_type", name)
    told = {"llm_name": request.llm_name, "llm_config_file_path": request.llm_file}
    settings |= {key: value for key, value in told.items() if value}
    if request.max_rewrite_steps >= 0:
        settings["max_rewrite_steps"] = request.max_rewrite_steps
    _check_keys(settings, READ | UNUSED, "", request.config)
    environment = settings.get("env_kwargs") or {}
    if not isinstance(environment, dict):
        raise InputError("env_kwargs is no mapping", request.config, "keys and values")
    _check_keys(environment, ENVIRONMENT | ENVIRONMENT_UNUSED, "env_kwargs.", request.config)
    if settings["agent_type"] not in list(AGENTS):
        raise InputError(f"agent_type {settings['agent_type']!r}", request.config, " or ".join(AGENTS))
    return settings | {"env_kwargs": environment}


def plan_of_settings(settings: Settings, request: RunRequest, folder: Path, root: Path) -> Plan:
    """Makes the plan of an evaluation. folder: receives swelab's own files. root: root folder of the swelab
    clone. Raises InputError."""
    name, scaffold = _scaffold(settings, request)
    model, policy = _policy(settings, request.config)
    return Plan(
        source=source_of(settings, request.config, root),
        folder=folder,
        policy=policy,
        policy_name=model,
        scaffold=scaffold,
        scaffold_name=name,
        workers=request.workers,
        max_lost=1_000_000,
        options={"config": str(request.config), "agent": settings["agent_type"]},
    )


def source_of(settings: Settings, where: Path, root: Path) -> Source:
    """Returns the task source of a configuration. root: root folder of the swelab clone. Raises
    InputError."""
    environment = settings["env_kwargs"]
    seconds = environment.get("run_timeout", 30)
    _check_number("env_kwargs.run_timeout", seconds, where)
    return Source(
        str(_data(settings, where, root)),
        entrypoint=str(environment.get("entrypoint") or ""),
        test_seconds=int(seconds),
    )


def backend_of(settings: Settings, where: Path) -> str:
    """Returns the backend that `terminal` names, or "" for the default backend. Raises InputError."""
    terminal = settings.get("terminal") or {}
    if not isinstance(terminal, dict):
        raise InputError(f"terminal is {terminal!r}", where, "a mapping with type: local or docker")
    kind = terminal.get("type", "local")
    if kind not in list(BACKENDS):
        raise InputError(f"terminal.type {kind!r}", where, f"{' or '.join(BACKENDS)}; see docs/sandboxes.md")
    return BACKENDS[kind]


def selected_problems(settings: Settings, names: Sequence[str], where: Path) -> list[str]:
    """Returns the names that the configuration selects. Raises InputError if the configuration names an
    unknown problem."""
    problems = settings.get("problems", "all")
    excluded = settings.get("excluded_ids") or []
    for key, listed in (("problems", [] if problems == "all" else problems), ("excluded_ids", excluded)):
        if not isinstance(listed, list):
            raise InputError(
                f"{key} is {listed!r}", where, "all, or a list" if key == "problems" else "a list"
            )
        if strangers := [each for each in listed if each not in names]:
            raise InputError(f"{key}: no problem is called {strangers[0]!r}", where, "ids of the set")
    return [name for name in (names if problems == "all" else problems) if name not in excluded]


def _scaffold(settings: Settings, request: RunRequest) -> tuple[str, Any]:
    name = AGENTS[settings["agent_type"]]
    configs = recipes.CONFIGS if recipes.CONFIGS.is_dir() else SHIPPED_CONFIGS
    path = recipes.path_of("scaffold", name, configs)
    fields = recipes.load(SCAFFOLD, path).plain()
    for theirs, ours in (("max_steps", "step_limit"), ("max_rewrite_steps", "max_rewrite_steps")):
        if theirs in settings:
            fields[ours] = settings[theirs]
    fields.setdefault("max_rewrite_steps", 10)
    if tools := settings.get("tools"):
        fields["tools"] = [next(iter(each)) if isinstance(each, dict) and each else each for each in tools]
    environment = settings["env_kwargs"]
    if "persistent_breakpoints" in environment:
        fields["persistent_breakpoints"] = environment["persistent_breakpoints"]
    if request.seconds:
        fields["wall_seconds"] = request.seconds
    return name, recipes.complete(SCAFFOLD, fields, request.config)


def _policy(settings: Settings, where: Path) -> tuple[str, Any]:
    """Returns (name, policy) for `llm_name`: an entry of llm.yaml, a folder of weights, or a policy
    recipe."""
    name = settings.get("llm_name")
    if not isinstance(name, str) or not name:
        raise InputError("no llm_name", where, "--llm-name, or llm_name in the file")
    if name == "human":
        raise InputError("llm_name human: nobody is asked here", where, "a model")
    if Path(name).is_dir() or name.endswith((".yaml", ".yml")):
        return policy_of(name, sampling={"max_tokens": MAX_TOKENS} if Path(name).is_dir() else {})
    path = _llm_file(settings)
    if path is None and "/" not in name:
        variable, home = LLM_FILES
        expected = f"~/{home}, or a file that ${variable} or --llm-config-file-path names"
        raise InputError(f"llm_name {name}: there is no llm.yaml", where, expected)
    if path is None:
        return policy_of(name, sampling={"max_tokens": MAX_TOKENS})
    entry = _mapping(path).get(name)
    if not isinstance(entry, dict):
        raise InputError(f"no model {name!r} in it", path, "an entry with model, endpoint and api_key")
    base = str(entry.get("endpoint") or "")
    key = str(entry.get("api_key") or "")
    os.environ.setdefault(KEY, key or "none")
    model = str(entry.get("model") or name)
    further = entry.get("generate_kwargs") or {}
    if not isinstance(further, dict):
        raise InputError(f"{name}: generate_kwargs is no mapping", path, "keys and values")
    sampling = {"max_tokens": MAX_TOKENS} | {
        each: further[each] for each in ("temperature", "top_p", "max_tokens", "seed") if each in further
    }
    called = f"openai/{model}" if base else model
    _, policy = policy_of(called, api_base=base, api_key_env=KEY, sampling=sampling)
    return name, policy


def _llm_file(settings: Settings) -> Path | None:
    """Returns the path of llm.yaml: from the configuration, from $LLM_CONFIG_FILE_PATH, or in the home
    folder. Returns None if there is no such file."""
    variable, home = LLM_FILES
    if given := settings.get("llm_config_file_path") or os.environ.get(variable):
        return Path(str(given)).expanduser()
    own = Path.home() / home
    return own if own.is_file() else None


def _data(settings: Settings, where: Path, root: Path) -> Path:
    """Returns the existing path of the tasks. `data_path` is tried relative to the working folder first, and
    then relative to the folder swe-pdb."""
    given = settings["env_kwargs"].get("data_path")
    if not isinstance(given, str) or not given:
        raise InputError("no env_kwargs.data_path", where, "a folder of tasks, or a file of rows")
    tried = [Path(given).expanduser(), root / "swe-pdb" / given]
    for path in tried:
        if path.exists():
            return path
    raise InputError(f"env_kwargs.data_path {given}: it is neither at {tried[0]} nor at {tried[1]}", where)


def _mapping(path: Path) -> Settings:
    try:
        mapping = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        at = f"{path}, line {place.line + 1}" if place else str(path)
        raise InputError("no YAML", at, "keys and values") from None
    if not isinstance(mapping, dict) or not all(isinstance(key, str) for key in mapping):
        raise InputError("no mapping", path, "keys and values")
    return mapping


def _part(whole: Settings, name: str, where: Path) -> Settings:
    part = whole.get(name) or {}
    if not isinstance(part, dict):
        raise InputError(f"{name} is no mapping", where, "keys and values")
    return part


def _override(whole: Settings, param: str) -> None:
    """Applies an option `-p part.key=value` to the configuration. Raises InputError."""
    key, equals, text = param.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise InputError(f"-p {param}", expected="part.key=value, such as base.max_steps=50")
    *parts, last = key.split(".")
    at = whole
    for part in parts:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            raise InputError(f"-p {param}: {part} is no mapping", expected="a key in a part of the file")
    try:
        at[last] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"-p {param}", expected="a value in YAML") from None


def _check_keys(section: Record | Settings, keys: set[str], at: str, where: Path) -> None:
    if strangers := sorted(set(section) - keys):
        raise InputError(f"unknown key {at}{strangers[0]}", where, f"one of {', '.join(sorted(keys))}")


def _check_number(name: str, value: Any, where: Path) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}", where, "seconds, 1 or more")
