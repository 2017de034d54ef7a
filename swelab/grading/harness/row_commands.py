"""Reads the test command that a published row brings along: `install_config` of SWE-rebench, `test_cmds` of
SWE-bench-Live.
"""

import json
import shlex
from typing import Any

from swelab.grading.harness import parsers
from swelab.grading.harness.logs import DEFAULT_PARSER
from swelab.grading.harness.swesmith_profiles import ACTIVATE
from swelab.records import InputError
from swelab.records.task_records import Task

_NOT_RUN = ("rebuild_cmds", "print_cmds")
"""Fields of SWE-bench-Live's rows with further commands, between or after which its tests run."""


def own_command(task: Task, files: list[str]) -> tuple[str, str] | None:
    """Returns (test command, name of the log parser) that a row brings along, or None if it brings none.

    files: the test files, which SWE-rebench appends to its command. SWE-bench-Live runs its commands as they
    are. The steps that install the package are not read: the row's image has been built with them. Raises
    InputError if the row brings a command that cannot be run here as it is meant.
    """
    where, config = task.instance_id, _config(task)
    if config.get("test_cmd"):
        commands = _commands(config["test_cmd"], "install_config.test_cmd", where)
        if len(commands) > 1:
            what = f"install_config.test_cmd has {len(commands)} commands"
            raise InputError(what, where, "one, to which the test files are appended")
        words = " ".join(map(shlex.quote, files))
        return f"{ACTIVATE} && {commands[0]} {words}", _parser(config.get("log_parser"), where)
    if not task.get("test_cmds"):
        return None
    if more := next((name for name in _NOT_RUN if task.get(name)), ""):
        raise InputError(f"its {more} cannot be run here", where, "a row with test_cmds and log_parser alone")
    commands = _commands(task["test_cmds"], "test_cmds", where)
    return " && ".join(commands), _parser(task.get("log_parser"), where)


def _config(task: Task) -> dict[str, Any]:
    value = task.get("install_config") or {}
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise InputError("field install_config is no object", task.instance_id, "an object with test_cmd")
    return value


def _commands(value: Any, name: str, where: str) -> list[str]:
    commands = [value] if isinstance(value, str) else value
    if not isinstance(commands, list) or not all(isinstance(each, str) and each.strip() for each in commands):
        raise InputError(f"field {name} is no command", where, "a text, or a list of texts")
    return commands


def _parser(name: Any, where: str) -> str:
    """Returns swebench's name of a log parser. Rows write `pytest`, or `parse_log_pytest`."""
    if not name:
        return DEFAULT_PARSER
    for each in (str(name), f"parse_log_{name}"):
        if each == DEFAULT_PARSER or each in parsers.registry():
            return each
    raise InputError(f"no log parser {str(name)[:60]!r} is known", where, "the name of one of swebench's")
