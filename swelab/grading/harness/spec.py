"""Reads the facts that the grader needs from task rows of all formats.

The content of a row tells its format. Our own rows have a test command. SWE-bench's newer rows and SWE-Gym's
rows have an eval script. SWE-bench's older rows have a test patch with repository and version. SWE-smith's
rows have none of these.
"""

import json
import shlex
from dataclasses import dataclass, replace
from typing import Any

from swelab.grading.harness import parsers, script, swesmith_profiles
from swelab.grading.harness.logs import DEFAULT_PARSER, OFFICIAL_END, OFFICIAL_START
from swelab.grading.harness.protected import is_protected
from swelab.grading.harness.swesmith_profiles import ACTIVATE
from swelab.records import InputError, Record
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task
from swelab.tasks.install_steps import without_installs
from swelab.tasks.patch_text import reversed_patch
from swelab.tasks.published_rows import is_private

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


DEFAULT_TIMEOUT = 600
EVAL_TIMEOUT = 1800
_DJANGO = "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1"
_SYMPY = "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose"
_PYDANTIC = "pytest -rA --tb=short -vv -o console_output_style=classic --no-header"
_ASTROPY = "pytest -rA -vv -o console_output_style=classic --tb=no"

COMMANDS = {
    "django/django": (_DJANGO, "parse_log_django"),
    "sympy/sympy": (_SYMPY, "parse_log_sympy"),
    "sphinx-doc/sphinx": ("tox --current-env -epy39 -v --", "parse_log_sphinx"),
    "astropy/astropy": (_ASTROPY, "parse_log_astropy"),
    "scikit-learn/scikit-learn": ("pytest -rA --tb=no -p no:cacheprovider", "parse_log_scikit"),
    "matplotlib/matplotlib": ("pytest -rA", "parse_log_matplotlib"),
    "mwaskom/seaborn": ("pytest --no-header -rA", "parse_log_seaborn"),
    "pallets/flask": ("pytest -rA", "parse_log_flask"),
    "psf/requests": ("pytest -rA", "parse_log_requests"),
    "pydata/xarray": ("pytest -rA", "parse_log_xarray"),
    "pylint-dev/pylint": ("pytest -rA", "parse_log_pylint"),
    "pytest-dev/pytest": ("pytest -rA", "parse_log_pytest"),
    "pydicom/pydicom": ("pytest -rA", "parse_log_pydicom"),
    "pylint-dev/astroid": ("pytest -rA", "parse_log_astroid"),
    "pvlib/pvlib-python": ("pytest -rA", "parse_log_pvlib"),
    "pyvista/pyvista": ("pytest -rA", "parse_log_pyvista"),
    "sqlfluff/sqlfluff": ("pytest -rA", "parse_log_sqlfluff"),
    "marshmallow-code/marshmallow": ("pytest -rA", "parse_log_marshmallow"),
    "getmoto/moto": ("pytest -n0 -rA", DEFAULT_PARSER),
    "python/mypy": ("pytest -n0 -rA -k", DEFAULT_PARSER),
    "conan-io/conan": ("pytest -n0 -rA", DEFAULT_PARSER),
    "dask/dask": ("pytest -n0 -rA --color=no", DEFAULT_PARSER),
    "project-monai/monai": ("pytest -rA", DEFAULT_PARSER),
    "iterative/dvc": ("pytest -rA", DEFAULT_PARSER),
    "bokeh/bokeh": ("pytest -rA -n0", DEFAULT_PARSER),
    "modin-project/modin": ("pytest -n0 -rA", DEFAULT_PARSER),
    "pydantic/pydantic": (_PYDANTIC, "parse_log_astropy"),
    "pandas-dev/pandas": ("pytest -rA --tb=long", DEFAULT_PARSER),
    "facebookresearch/hydra": ("pytest -rA --tb=long", DEFAULT_PARSER),
}
"""Maps each repository (in lower case) to (test command without files, name of the log parser).

Used for SWE-bench's older rows and SWE-Gym's rows.
"""

_NOT_TESTS = tuple(".json .png .csv .txt .md .jpg .jpeg .pkl .yml .yaml .toml .rst".split())


@dataclass(frozen=True)
class RunSpec:
    """The settings for a run of a task's tests.

    image: name of the OCI image, or "" if the repository archive is enough. setup: shell lines that bring the
    image's checkout to the state that the patch is made against. test_patch: applied after the prediction.
    tests_diff: the test patch, or the diff that the eval script applies. gold: the gold patch, or its reverse
    if `gold_reversed`. seconds: wall time for the tests. skips_pass: whether a skipped test counts as passed,
    as in a published way of judging. verifier: base64 of a tar whose test.sh writes a reward; such tasks list
    no tests. verifier_env: environment variables of test.sh.
    """

    instance_id: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    test_cmd: str = ""
    eval_script: str = ""
    image: str = ""
    setup: tuple[str, ...] = ()
    test_patch: str = ""
    tests_diff: str = ""
    test_files: tuple[str, ...] = ()
    parser: str = DEFAULT_PARSER
    eval_type: str = "pass_and_fail"
    gold: str = ""
    gold_reversed: bool = False
    seconds: int = DEFAULT_TIMEOUT
    skips_pass: bool = False
    verifier: str = ""
    verifier_env: tuple[tuple[str, str], ...] = ()

    @property
    def gold_fix(self) -> str:
        """The patch that repairs the bug. Raises InputError."""
        try:
            return reversed_patch(self.gold) if self.gold_reversed else self.gold
        except ValueError as why:
            raise InputError(f"its patch cannot be taken back: {why}", self.instance_id) from None

    @property
    def listed(self) -> list[str]:
        """All listed test ids."""
        return [*self.fail_to_pass, *self.pass_to_pass]

    @property
    def by_pytest(self) -> bool:
        """Whether pytest runs the tests, so that the observer can watch them from inside."""
        runs = script.runs_of_pytest(self.eval_script or self.test_cmd)
        return bool(runs) and "tox " not in self.test_cmd and "::" in self.fail_to_pass[0]

    @property
    def code_is_runners(self) -> bool:
        """Whether the exit code of a run comes from pytest, and not from a later command."""
        if self.eval_script:
            return script.KEEPS_CODE in self.eval_script
        return script.ends_in_pytest(self.test_cmd)

    @property
    def import_folders(self) -> list[str]:
        """The folders of the repository that the command or eval script puts on PYTHONPATH, "." for its root.

        Raises InputError if the text does not tell them.
        """
        try:
            return script.import_folders(self.eval_script or self.test_cmd)
        except ValueError as part:
            what = "eval script" if self.eval_script else "test_cmd"
            expected = "names of folders, such as PYTHONPATH=src, or `pytest -o pythonpath=src`"
            fault = f"its {what} sets PYTHONPATH, with `{part}`"
            raise InputError(fault, self.instance_id, expected) from None

    def with_folder_first(self, folder: str) -> "RunSpec":
        """Returns these settings with `folder` in front of every value that they give PYTHONPATH."""
        command, text = (script.with_folder_first(each, folder) for each in (self.test_cmd, self.eval_script))
        return replace(self, test_cmd=command, eval_script=text)

    def script_with_history(self, line: str) -> str:
        """Returns the eval script with `line`, which replaces the repository's history, before its tests.

        Raises InputError if the script does not tell where its tests begin.
        """
        if not self.eval_script:
            return ""
        try:
            return script.with_line_before_tests(self.eval_script, line)
        except ValueError as what:
            fault = f"its eval script does not tell where its tests begin: it has {what}"
            expected = f"a line that runs pytest, or the line : '{OFFICIAL_START}' before the tests"
            raise InputError(fault, self.instance_id, expected) from None

    @property
    def has_markers(self) -> bool:
        """Whether the eval script prints the benchmark's markers around the tests' output."""
        return OFFICIAL_START in self.eval_script and OFFICIAL_END in self.eval_script

    @property
    def test_paths(self) -> list[str]:
        """The files of listed tests, those that the row names, and those that the test patch touches."""
        files = {test.partition("::")[0] for test in self.listed if "::" in test}
        return list(dict.fromkeys([*self.test_files, *sorted(files), *touched_paths(self.test_patch)]))

    @property
    def tests(self) -> Record:
        """The listed tests by group."""
        return {"FAIL_TO_PASS": list(self.fail_to_pass), "PASS_TO_PASS": list(self.pass_to_pass)}

    def protects(self, path: str) -> bool:
        """Returns whether a path is restored before the tests run."""
        return is_protected(path, self.test_paths)

    def tested_command(self, folder: str, before: str) -> str:
        """Returns Bash that runs the tests and exits with their exit code.

        `folder` contains test.diff and eval.sh. before: a line to run right before tests without eval.sh.
        """
        if self.eval_script:
            return f"bash {folder}/eval.sh"
        command = f"{before}\n{self.test_cmd}"
        if self.test_patch:
            return f"git apply --whitespace=nowarn {folder}/test.diff && {{ {command}\n}}"
        return command


def read_spec(task: Task) -> RunSpec:
    """Returns the run specification of a task row. Raises InputError if the row does not say how to test."""
    if is_private(task):
        raise InputError("its tests are private", task.instance_id, "`scorer: sb-cli` in the subset's recipe")
    if not all(isinstance(task.get(name), list) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")):
        task = task | {name: _tests(task, name) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    # git rejects a patch whose last line has no newline, and some rows have such patches.
    unended = [name for name in ("patch", "test_patch") if not (task.get(name) or "\n").endswith("\n")]
    task = task | {name: f"{task[name]}\n" for name in unended} if unended else task
    if task.by_script:
        if not task.verifier_tar:
            raise InputError("no verifier_tar", task.instance_id, "a task with the script that judges it")
        seconds = task.test_timeout or DEFAULT_TIMEOUT
        env = tuple(task.verifier_env.items())
        return RunSpec(**_common(task), verifier=task.verifier_tar, verifier_env=env, seconds=seconds)
    if task.test_cmd:
        return _with_command(task)
    if not task.in_image:
        raise InputError("no test_cmd", task.instance_id, "a task with a test command")
    if task.eval_script:
        return _with_script(task)
    if task.test_patch:
        return _of_version(task)
    return _of_smith(task)


def _common(task: Task) -> Record:
    return {
        "instance_id": task.instance_id,
        "fail_to_pass": tuple(task.FAIL_TO_PASS),
        "pass_to_pass": tuple(task.PASS_TO_PASS),
        "image": "" if not task.in_image else task.image or task.get("image_name") or "",
        "gold": task.patch,
        "tests_diff": task.test_patch or "",
    }


def _with_command(task: Task) -> RunSpec:
    """Reads a task of our own, or any row with a test command."""
    return RunSpec(
        **_common(task),
        test_cmd=task.test_cmd,
        test_files=tuple(task.test_files),
        parser=task.log_parser or DEFAULT_PARSER,
        gold_reversed=not task.test_patch,
        test_patch=task.test_patch or "",
        seconds=task.test_timeout or DEFAULT_TIMEOUT,
        skips_pass=bool(task.compat and task.compat.skip_counts_as_pass),
        setup=_branch(task) if task.in_image and not task.test_patch else (),
    )


def _with_script(task: Task) -> RunSpec:
    """Reads rows with an eval script.

    SWE-bench's newer rows name a parser and an eval type. SWE-Gym's rows name neither.
    """
    return RunSpec(
        **_common(task),
        eval_script=script.with_test_status(without_installs(task.eval_script or "")),
        parser=task.log_parser or DEFAULT_PARSER,
        eval_type=task.eval_type or "pass_and_fail",
        test_files=tuple(touched_paths(task.test_patch or "")),
        seconds=task.test_timeout or EVAL_TIMEOUT,
    )


def _of_version(task: Task) -> RunSpec:
    """Reads SWE-bench's older rows, and rows like them that bring their own test command."""
    touched = [path for path in touched_paths(task.test_patch or "") if not path.endswith(_NOT_TESTS)]
    if own := own_command(task, touched):
        return _of_test_patch(task, *own)
    if task.repo.lower() not in COMMANDS:
        fields = "test_cmd, eval_script, install_config or test_cmds"
        known = f"a row with {fields}, or of one of {len(COMMANDS)} known repositories"
        raise InputError(f"no test command is known for {task.repo}", task.instance_id, known)
    command, parser = COMMANDS[task.repo.lower()]
    files = touched
    if task.repo == "django/django":
        files = [path.removeprefix("tests/").removesuffix(".py").replace("/", ".") for path in files]
    if command.endswith(" -k"):  # mypy's cases are in data files, so tests are selected by name
        files = [swesmith_profiles.cases((*task.FAIL_TO_PASS, *task.PASS_TO_PASS))]
    words = " ".join(shlex.quote(name) for name in files)
    return _of_test_patch(task, f"{swesmith_profiles.ACTIVATE} && {command} {words}", parser)


def _of_test_patch(task: Task, command: str, parser: str) -> RunSpec:
    return RunSpec(
        **_common(task),
        test_cmd=command,
        test_patch=task.test_patch or "",
        parser=parser,
        seconds=task.test_timeout or EVAL_TIMEOUT,
    )


def _of_smith(task: Task) -> RunSpec:
    """Reads SWE-smith's rows.

    The row's patch adds the bug. The first commit of the task's branch has the bug, and the second commit
    removes tests.
    """
    task = task | swesmith_profiles.listed_tests(task)
    command, parser = swesmith_profiles.command(task)
    return RunSpec(
        **_common(task),
        test_cmd=command,
        test_files=swesmith_profiles.test_files(task),
        parser=parser,
        gold_reversed=True,
        setup=_branch(task),
        seconds=task.test_timeout or DEFAULT_TIMEOUT,
    )


def _branch(task: Task) -> tuple[str, ...]:
    """Returns shell lines that check out the task's branch.

    If the last commit removes the tests, the commit before it is checked out.
    """
    name = shlex.quote(task.instance_id)
    hidden = "git diff --name-only --diff-filter=D HEAD~1 HEAD"
    return (
        f"if git rev-parse -q --verify {name} >/dev/null; then git checkout -qf {name}; fi",
        f'if [ -n "$({hidden} 2>/dev/null)" ]; then git checkout -qf HEAD~1; fi',
    )


def _tests(task: Task, name: str) -> list[str]:
    """Returns the test ids of a field, which is a JSON string in some data sets. Raises InputError."""
    value = task.get(name)
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, list):
        raise InputError(f"field {name} is no list", task.get("instance_id", ""), "a list of test ids")
    return value
