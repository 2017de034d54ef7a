"""What it takes to judge a patch on a task, whatever the format of its row."""

import re
from dataclasses import dataclass, field

from swelab.grading.logs import DEFAULT_PARSER
from swelab.grading.protected import is_protected
from swelab.records import InputError, Record

DEFAULT_TIMEOUT = 600
PYTEST = re.compile(r"(?:^|[\s/;&|(])(?:py\.test|pytest)(?=[\s;&|)]|$)", re.M)


@dataclass(frozen=True)
class RunSpec:
    """A task as a thing to run.

    image: name of the OCI image, "" when the repository's archive is enough. setup: shell lines that
    bring the image's checkout to the state that the patch is made against. test_patch: applied after the
    prediction. gold: the gold patch, in whose place its reverse stands when `gold_reversed`. seconds:
    wall time for the tests.
    """

    instance_id: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    test_cmd: str = ""
    eval_script: str = ""
    image: str = ""
    setup: tuple[str, ...] = ()
    base: str = ""
    test_patch: str = ""
    test_files: tuple[str, ...] = ()
    parser: str = DEFAULT_PARSER
    eval_type: str = "pass_and_fail"
    gold: str = ""
    gold_reversed: bool = False
    seconds: int = DEFAULT_TIMEOUT
    format: str = field(default="forged", compare=False)

    @property
    def listed(self) -> list[str]:
        """All listed test ids."""
        return [*self.fail_to_pass, *self.pass_to_pass]

    @property
    def command(self) -> str:
        """The test command or the eval script."""
        return self.eval_script or self.test_cmd

    @property
    def tested_command(self) -> str:
        """What is run between the markers."""
        return self.command

    @property
    def by_pytest(self) -> bool:
        """Whether pytest runs the tests, so that canaries and the observer can be among them."""
        return bool(PYTEST.search(self.command)) and "::" in self.fail_to_pass[0]

    @property
    def test_paths(self) -> list[str]:
        """Files that hold listed tests or are named as test files."""
        files = {test.partition("::")[0] for test in self.listed if "::" in test}
        return list(dict.fromkeys([*self.test_files, *sorted(files)]))

    @property
    def tests(self) -> Record:
        """The listed tests by group."""
        return {"FAIL_TO_PASS": list(self.fail_to_pass), "PASS_TO_PASS": list(self.pass_to_pass)}

    def protects(self, path: str) -> bool:
        """Whether a path is restored before the tests run."""
        return is_protected(path, self.test_paths)


def read_spec(task: Record) -> RunSpec:
    """The run specification of a task row. Raises InputError when the row does not say how to test."""
    if not task.get("test_cmd"):
        raise InputError("no test_cmd", task["instance_id"], "a task with a test command")
    return RunSpec(
        instance_id=task["instance_id"],
        fail_to_pass=tuple(task["FAIL_TO_PASS"]),
        pass_to_pass=tuple(task["PASS_TO_PASS"]),
        test_cmd=task["test_cmd"],
        test_files=tuple(task.get("test_files", ())),
        parser=task.get("log_parser", DEFAULT_PARSER),
        gold=task["patch"],
        gold_reversed=True,
        seconds=task.get("test_timeout", DEFAULT_TIMEOUT),
    )
