"""Runs a configuration file of debug-gym as an evaluation, and names the output files as debug-gym does.

A problem's folder has debug_gym.log, <problem>_status.json, trajectory.json, tool_calls.json,
conversation.jsonl and debug_gym.patch. The files of swelab's evaluation are in `evaluation/` beside them.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_result import AttemptResult
from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.debugging_rows import task_names
from swelab.evaluation.evaluation_plan import Plan, policy_of
from swelab.evaluation.evaluation_run import check_identity, evaluate, forget
from swelab.records import (
    SHIPPED_CONFIGS,
    InputError,
    Record,
    read_json,
    read_text,
    write_bytes,
    write_json,
    write_jsonl,
)
from swelab.records.attempt_records import Trajectory
from swelab.records.task_records import Task
from swelab.sampling_settings import SETTINGS
from swelab.scores.statistics.one_rate import wilson
from swelab.tasks.patch_application import encode_patch

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
    *"""
    auto_eval_on_rewrite auto_list dir_tree_depth show_current_breakpoints show_directory_tree
    """.split()
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
    sampling = {"max_tokens": MAX_TOKENS} | {each: further[each] for each in SETTINGS if each in further}
    if others := {each: value for each, value in further.items() if each not in SETTINGS}:
        sampling["extra_body"] = {**sampling.get("extra_body", {}), **others}
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


RESOLVED, UNRESOLVED, ERROR = "resolved", "unresolved", "error"
SKIPPED = "skip-"
"""Prefix of a status, if an earlier run finished the problem."""


class DebugGymFolders(AttemptFolders):
    """Writes each attempt twice: in swelab's format, and in `runs` in debug-gym's format. Thread-safe. most:
    maximum number of model calls of an attempt."""

    def __init__(self, folder: Path, meta: Record, ended: Callable[[], object], runs: Path, most: int):
        super().__init__(folder, meta, ended)
        self.runs, self.most = runs, most

    def begin(self, instance: str, sample: int) -> None:
        """Writes the status "running" of the problem."""
        write_status(self.runs, instance, "running", total_steps=self.most)

    def write(self, trajectory: Trajectory, done: AttemptResult) -> None:
        """Writes the folder of an attempt in both formats."""
        super().write(trajectory, done)
        name, folder = done.instance_id, self.runs / done.instance_id
        calls = list(tool_calls(trajectory.messages))
        log = list(steps(trajectory.messages))
        head = {"problem": name, "success": status_of(done) == RESOLVED, "agent_type": self.meta["scaffold"]}
        write_json(folder / "trajectory.json", {**head, "log": log})
        write_json(
            folder / "tool_calls.json", {"counts": Counter(each["name"] for each in calls), "calls": calls}
        )
        write_jsonl(folder / "conversation.jsonl", map(message_row, trajectory.messages))
        write_bytes(
            folder / "debug_gym.log",
            "".join(f"{row}\n" for row in log_lines(log, done)).encode("utf-8", "replace"),
        )
        patch = folder / "debug_gym.patch"
        if done.model_patch:
            write_bytes(patch, encode_patch(done.model_patch))
        else:
            patch.unlink(missing_ok=True)
        passed, tests = score_of(done)
        steps_done = done.usage.calls
        write_status(self.runs, name, status_of(done), steps_done, self.most, passed, tests)


def status_of(done: AttemptResult) -> str:
    """Returns "resolved", "unresolved", or "error" if the attempt or its grade was lost to infrastructure."""
    if done.row()["infrastructure"]:
        return ERROR
    return RESOLVED if done.row()["resolved"] else UNRESOLVED


def score_of(done: AttemptResult) -> tuple[int, int | None]:
    """Returns (number of tests with the required result, number of listed tests), or (0, None) if unknown."""
    told = done.grade.tests_status if done.grade else None
    if told is None:
        return 0, None
    passed = [len(part["success"]) for part in told.values()]
    return sum(passed), sum(passed) + sum(len(part["failure"]) for part in told.values())


def write_status(
    runs: Path,
    problem: str,
    status: str,
    step: int = 0,
    total_steps: int = 1,
    score: int = 0,
    max_score: int | None = None,
) -> None:
    """Writes the status file of a problem."""
    found = {"problem_id": problem, "step": step, "total_steps": total_steps, "score": score}
    found |= {"max_score": max_score, "status": status, "logdir": str(runs / problem)}
    write_json(status_path(runs, problem), found)


def status_path(runs: Path, problem: str) -> Path:
    """Returns the path of a problem's status file."""
    return runs / problem / f"{problem}_status.json"


def read_status(runs: Path, problem: str) -> Record:
    """Reads a problem's status file. Returns {} if there is no such file. Raises InputError."""
    path = status_path(runs, problem)
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def steps(messages: Sequence[Record]) -> Iterator[Record]:
    """Yields one record for each turn of the policy: the thought, the tool call and the observation."""
    number = 0
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        answer = next((each for each in messages[place + 1 :] if each["role"] in ("tool", "user")), None)
        calls = message.get("extra", {}).get("actions", [])
        call = calls[-1] if calls else {}
        yield {
            "step_id": number,
            "content": message["content"],
            "action": {"name": call.get("tool", ""), "arguments": call.get("arguments", {})},
            "obs": str(answer["content"]) if answer else "",
        }
        number += 1


def tool_calls(messages: Sequence[Record]) -> Iterator[Record]:
    """Yields each tool call with the number of its turn."""
    for number, step in enumerate(steps(messages)):
        if step["action"]["name"]:
            yield {"step_id": number, **step["action"]}


def message_row(message: Record) -> Record:
    """Returns the message without the fields that only swelab's records need."""
    kept = ("role", "content", "tool_calls", "tool_call_id", "name")
    return {name: message[name] for name in kept if message.get(name) is not None}


def log_lines(log: Sequence[Record], done: AttemptResult) -> Iterator[str]:
    """Yields the lines of debug_gym.log."""
    for step in log:
        action = step["action"]
        yield f"step {step['step_id']}: {action['name'] or 'no call'} {json.dumps(action['arguments'])}"
        yield f"{step['content']}".rstrip()
        yield f"{step['obs']}".rstrip()
    why = f": {done.reason}" if done.reason else ""
    yield f"{done.instance_id}: {status_of(done)}, ended as {done.outcome}, graded {done.status}{why}"


def write_summary(runs: Path, problems: Sequence[str]) -> list[str]:
    """Writes summary.txt with the results of the finished problems, and returns the lines of the file. Raises
    InputError."""
    named: dict[str, list[str]] = {RESOLVED: [], UNRESOLVED: [], ERROR: []}
    for problem in sorted(problems):
        status = str(read_status(runs, problem).get("status", "")).removeprefix(SKIPPED)
        if status in named:
            named[status].append(problem)
    good, bad, lost = (len(each) for each in named.values())
    total = good + bad + lost
    lines = [f"{status}: {names}" for status, names in named.items()]
    lines += [f"num_{status}: {len(names)}" for status, names in named.items()]
    lines.append(f"acc: {good / total:.2%}" if total else "acc: N/A")
    for name, count in (("acc", total), ("acc_without_error", good + bad)):
        if count:
            low, high = wilson(good, count)
            lines.append(f"{name}_interval: {good / count:.2%} [{low:.2%}, {high:.2%}]")
    write_bytes(runs / "summary.txt", "".join(f"{each}\n" for each in lines).encode())
    return lines


def add_experiment(runs: Path, root: Path, config: Record, arguments: Record) -> None:
    """Appends a line about this run to experiment_info.jsonl. `config` and `arguments` must not contain an
    API key."""
    asked = ["git", "-C", str(root), "rev-parse", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    line = {
        "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "git_hash": done.stdout.strip(),
        "config": config,
        "args": arguments,
        "python_version": platform.python_version(),
    }
    runs.mkdir(parents=True, exist_ok=True)
    with open(runs / "experiment_info.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


OWN = "evaluation"
"""Name of the folder with swelab's own files, inside a run's folder."""
BACKEND = "SWELAB_BACKEND"


class Force(StrEnum):
    """Selects the finished problems to run again."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"


def run_configuration(
    request: RunRequest, root: Path, force: Force = Force.NONE, most: int = 0
) -> tuple[list[str], int]:
    """Runs the unfinished problems. Returns (lines of summary.txt, number of problems with the status
    "error").

    root: root folder of the swelab clone. most: maximum number of problems to run. 0 means all. Raises
    InputError and Fault. If an evaluation fails, summary.txt still lists the problems that are finished.
    """
    settings = read_settings(request)
    runs = run_folder(settings)
    plan = plan_of_settings(settings, request, runs / OWN, root)
    names, problems = _problems(settings, plan.source, request.config, most)
    if backend := backend_of(settings, request.config):
        os.environ.setdefault(BACKEND, backend)
    print(f"results are in {runs}; -p base.uuid={runs.name} goes on there", file=sys.stderr, flush=True)
    excluded = settings.get("excluded_ids") or []
    add_experiment(runs, root, _public_settings(settings), plan.options | {"force": str(force), "most": most})
    _prepare(plan, runs, problems, excluded, force)
    try:
        _evaluate(plan, runs, problems, force)
    finally:
        lines = write_summary(runs, names)
    statuses = [read_status(runs, name).get("status") for name in problems]
    return lines, statuses.count(ERROR)


def list_problems(request: RunRequest, root: Path, most: int = 0) -> list[str]:
    """Returns the names of the problems that `run_configuration` would run. Needs no model. Raises
    InputError."""
    settings = read_settings(request)
    return _problems(settings, source_of(settings, request.config, root), request.config, most)[1]


def _problems(settings: Settings, source: Source, where: Path, most: int) -> tuple[list[str], list[str]]:
    """Returns (all problem names in the data set, the requested problem names)."""
    names = task_names(source)
    problems = selected_problems(settings, names, where)[: most or None]
    if not problems:
        raise InputError("no problem is left", where, "problems that are not in excluded_ids")
    return names, problems


def run_folder(settings: Settings) -> Path:
    """Returns the folder of a run. Its name is `uuid`, or the time and the model if no `uuid` is set."""
    name = settings.get("uuid")
    if name is None:
        model = re.sub(r"[^A-Za-z0-9._-]+", "-", str(settings.get("llm_name") or "no_llm")).strip("-")
        name = f"{time.strftime('%Y%m%d_%H%M%S')}_{model}"
    name = str(name)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise InputError(f"uuid {name!r}", expected="letters, digits and . _ -: it names a folder")
    return Path(str(settings.get("output_path") or "exps")).expanduser() / name


def _evaluate(plan: Plan, runs: Path, problems: Sequence[str], force: Force) -> None:
    chosen = set(problems)

    def choose(tasks: Sequence[Task]) -> list[Task]:
        by_name = {task.instance_id: task for task in tasks if task.instance_id in chosen}
        return [by_name[name] for name in problems]

    def folders(folder: Path, meta: Record, ended: Callable[[], object]) -> AttemptFolders:
        return DebugGymFolders(folder, meta, ended, runs, int(meta["step_limit"]))

    told = evaluate(plan, choose, redo=force is Force.ALL, written=folders)
    for place, why in told["refused_rows"].items():
        if place in chosen:
            write_status(runs, place, ERROR)
            write_bytes(runs / place / "debug_gym.log", f"{place}: error, cannot be used: {why}\n".encode())


def _prepare(plan: Plan, runs: Path, problems: Sequence[str], excluded: Sequence[str], force: Force) -> None:
    """Writes the initial status of each problem. Deletes the results of problems that are run again. Raises
    InputError."""
    if force is not Force.ALL:
        check_identity(plan)
    again = set[str]()
    for name in problems:
        before = read_status(runs, name)
        status = str(before.get("status", "")).removeprefix(SKIPPED)
        if force is Force.FAILED and status in (UNRESOLVED, ERROR):
            again.add(name)
        done = status in (RESOLVED, UNRESOLVED) and force is not Force.ALL and name not in again
        if done:
            write_json(runs / name / f"{name}_status.json", before | {"status": SKIPPED + status})
        else:
            write_status(runs, name, "pending")
    if again:
        forget(plan, again)
    for name in excluded:
        write_status(runs, name, ERROR)
        write_bytes(runs / name / "debug_gym.log", f"{name}: error, in excluded_ids, not run\n".encode())


def _public_settings(settings: Settings) -> Record:
    """Returns the settings as experiment_info.jsonl lists them. The settings contain no API keys, which are
    in another file."""
    return {name: value for name, value in settings.items() if "key" not in name.lower()}
