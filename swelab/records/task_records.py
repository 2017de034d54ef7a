"""Records about tasks: the rows of a subset, their difficulty, and the lock (the result of their
validation)."""

from typing import Annotated, Any, Literal

from swelab.records.attempt_records import GradeWitness
from swelab.records.typed import Bounds, ClosedRecord, Count, TypedRecord, field, one_of

TestName = Annotated[str, Bounds(minLength=1)]


NULL_ONLY: Literal["null only"] = "null only"
"""Value of `validated` for a task without a known repair: only its unchanged code was run, and its tests
failed."""


NullEnd = Literal["ran", "too long", "broken off"]


class TaskFile(ClosedRecord):
    """A file of a task. The rows of small tasks contain all files of the repository."""

    path: str = field("path in the checkout", minLength=1)
    content: str = field("text of the file")


class NullRun(ClosedRecord):
    """The test results on the unchanged code of a task that has no known repair."""

    collected: int = field("number of tests that pytest collects if the imports work", minimum=1)
    imports: bool = field("whether the tests can be imported with the unchanged code")
    collected_by: Literal["code", "stand-in"] = field(
        "module that the tests imported when they were collected: the unchanged code, or a "
        "stand-in that has every name if the unchanged code cannot be imported"
    )
    ended: NullEnd = field("how the run ended; unless it is `ran`, tests without a result count as failed")
    skipped: list[str] = field("ids of tests that skip themselves and are not listed", default=())


class Compat(ClosedRecord):
    """Rules by which a published data set judges its tasks, if these rules differ from swelab's. If a field
    is absent, swelab's stricter rule is used."""

    final_eval: bool = field(
        "if false, a repair counts only if the agent's last call of its tool `eval` passed", default=True
    )
    skip_counts_as_pass: bool = field("if true, a skipped test counts as passed", default=False)


class Task(TypedRecord):
    """A task: one row of a subset, which describes a bug in a repository. The format is SWE-smith's, with
    additional fields."""

    also = {
        "if": {"not": {"required": ["answers"]}},
        "then": {"properties": {"patch": {"minLength": 1}, "FAIL_TO_PASS": {"minItems": 1}}},
        "else": {
            "if": {"properties": {"answers": {"const": "none"}}},
            "then": {"required": ["null_run"], "properties": {"FAIL_TO_PASS": {"minItems": 1}}},
            "else": {
                "if": {"properties": {"answers": {"const": "script"}}},
                "then": {"required": ["verifier_tar"]},
            },
        },
    }
    instance_id: str = field(
        "<owner>__<repo>.<rev8>.<bug type>__<hash>; also a file name",
        pattern="^[A-Za-z0-9_.+-]+$",
        maxLength=200,
    )
    repo: str = field("name of the mirror repository")
    patch: str = field("unified diff that introduces the bug; its reverse is the gold fix")
    problem_statement: str = field("issue text with the symptom and the failing test, without the fix")
    FAIL_TO_PASS: list[TestName] = field("tests that fail with the bug and must pass after the fix")
    PASS_TO_PASS: list[TestName] = field("tests that pass with the bug and must still pass after the fix")
    image_name: str = field("name of the image in which the task runs", minLength=1)
    answers: Literal["private", "none", "script", ""] = field(
        "private: patch and tests are not published; none: there are tests, but no repair is "
        "known; script: a script of the task gives a reward, and there is no list of tests; "
        "all other rows have patch and tests",
        default="",
        enum=["private", "none", "script"],
    )
    verifier_tar: str = field(
        "base64 of a tar of the judging files, in rows with `answers: script`; its test.sh writes the reward",
        default="",
    )
    verifier_env: dict[str, str] = field("environment variables of test.sh", default={})
    solution_tar: str = field("base64 of a tar of the files of the solution; solve.sh runs first", default="")
    base_commit: Any = field("commit of the checkout before the patch", default="")
    repo_recipe: str = field(
        "name of the recipe under configs/repos from which the clean checkout is made", default=""
    )
    part: str = field(
        "folder of the repository archive from which the checkout is made; the whole archive if absent",
        default="",
        pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
    )
    test_cmd: str = field(
        "shell command that runs in the checkout and prints one status line per test", default=""
    )
    test_patch: str | None = field("unified diff that adds the tests of the fix", default=None)
    eval_script: str | None = field(
        "bash script that runs the tests, in rows that have their own script", default=None
    )
    eval_type: Literal["pass_and_fail", "fail_only"] | None = field(
        "what is judged: passing and failing tests, or only failures if the log names no passing tests",
        default=None,
    )
    log_parser: str = field("name of swebench's parser for the test log", default="")
    test_files: list[str] = field(
        "files that are restored from the clean checkout before grading", default=()
    )
    test_timeout: int = field("wall time of test_cmd, in seconds", default=0, minimum=1)
    source: str = field("origin of the task: forge, drill, or a dataset", default="")
    function: str = field("mutated function, path::Qual.name", default="")
    bug: str = field("hash of the bug's patch", default="")
    op: str = field("mutation operator", default="")
    hint: Any = field("path, line and name of the mutated function, for the scripted policy", default=None)
    hidden_tests: bool = field(
        "whether the files with tests to repair are missing from the agent's checkout", default=False
    )
    tests_left_out: Any = field("in forged rows: tests of the file with varying verdicts", default=())
    image: Any = field("image name with digest, in rows that name the image by digest", default=None)
    files: list[TaskFile] = field(
        "whole checkout with the bug, for tasks of a few files; in place of repo_recipe", default=()
    )
    entrypoint: str = field("command with which an agent runs the tests, from the row", default="")
    readonly: list[str] = field("files that the agent's tools must not change", default=())
    null_run: NullRun | None = field(
        "for rows without a repair: results of the tests on the unchanged code", default=None, type="object"
    )
    evaluation_set: str = field("published evaluation set to which the row belongs", default="")
    compat: Compat | None = field("published ways of judging the row", default=None, type="object")
    version: Any = field(
        "version of the repository, from which SWE-bench determines how to test it", default=None
    )

    @property
    def in_image(self) -> bool:
        """Whether the task runs in its own image. False if its code is in a repository archive or in the
        row."""
        return not (self.repo_recipe or self.files)

    @property
    def by_script(self) -> bool:
        """Whether the task is graded by its own script, which gives a reward."""
        return self.answers == "script"

    @property
    def is_bug(self) -> bool:
        """Whether the patch introduces the bug (SWE-smith). False if the patch is the repair (SWE-bench,
        SWE-Gym)."""
        return bool(self.patch) and not (self.test_patch or self.eval_script or self.version)

    @property
    def failing_files(self) -> list[str]:
        """The files that contain the tests in FAIL_TO_PASS. Test ids without a path inside the repository are
        ignored."""
        paths = {test.partition("::")[0] for test in self.FAIL_TO_PASS if "::" in test}
        return sorted(path for path in paths if not path.startswith("/") and ".." not in path.split("/"))


class Difficulty(TypedRecord):
    """The difficulty of a task as rated by a model, or the reason why there is no rating."""

    also = {
        "if": {"properties": {"outcome": {"const": "rated"}}},
        "then": {"properties": {"difficulty": {"type": "string"}, "rating": {"type": "integer"}}},
        "else": {"properties": {"difficulty": {"type": "null"}, "rating": {"type": "null"}}},
    }
    instance_id: str = field("id of the task", minLength=1)
    outcome: Annotated[str, one_of("RATING_ENDS")] = field(
        "rated; or why not: no answer was one of the words, the task does not fit into the "
        "model's context, or the model did not answer"
    )
    difficulty: str | None = field("the model's word: easy, medium, hard")
    rating: int | None = field("rating for the word: 1, 5, 9")
    answer: str = field("last answer, shortened, or the error")
    attempts: Count = field("number of requests")
    usage: dict[str, Any] = field("tokens of all requests", default=None)
    cost: float = field("dollars of all requests", default=0.0, minimum=0)


class Gate(TypedRecord):
    """The settings with which a subset was validated, from `validate` in the recipe."""

    gold_runs: Count = field("number of runs of each gold patch; 0 if tasks have no gold patch")
    null_runs: int = field(
        "number of runs of the unchanged code, for tasks without a repair; absent if there are none",
        default=0,
        minimum=1,
    )
    together: bool = field("whether tasks of one repository shared runs", default=False)
    allow_leaks: bool = field("whether tasks with a readable answer are kept", default=False)
    guard: str = field("value of `guard` in the recipe", default="whole")


class KeptTask(ClosedRecord):
    """A task that passed validation, or whose answers are private."""

    instance_id: str = field("id of the task")
    task: str = field("hash of the task's row")
    place: str = field("digest of the task's repository archive or image")
    seconds: float = field("wall time of the slowest gold run that contained the task, in seconds", minimum=0)
    validated: Literal["null only", ""] = field(
        "null only: no repair is known, so it was not shown that the tests can pass; absent: "
        "the gold patch was resolved in every run",
        default="",
        enum=[NULL_ONLY],
    )
    fails: list[str] = field("for null only: tests that the unchanged code does not pass", default=())
    collected: int = field(
        "for null only: number of tests that pytest collects if the imports work", default=0, minimum=1
    )
    imports: bool = field("for null only: false if the unchanged code cannot be imported", default=True)
    witness: GradeWitness | None = field(
        "strength of the witness evidence for the gold patch, the maximum for any patch; "
        "absent if no witness questions were run",
        default=None,
        type="object",
    )


class DroppedTask(ClosedRecord):
    """A task that did not pass validation."""

    instance_id: str = field("id of the task")
    reason: str = field("reason in one line", minLength=1)
    gold_resolved: Count = field("number of gold runs that resolved the task")


class Leak(ClosedRecord):
    """A place where an agent can read the answer of a task."""

    instance_id: str = field('id of the task; "" if the leak concerns every task of an image')
    what: str = field("file or history that reveals the answer")


class Lock(ClosedRecord):
    """The result of validation: which tasks of a subset may be used.

    A task passes if its gold patch is resolved in every run, and an empty or reversed patch in no run. A task
    without a known repair passes if the same tests fail in every run of its unchanged code.
    """

    tasks_digest: str = field("hash of the subset's rows")
    total: Count = field("number of rows in the subset")
    settings: Gate = field("value of `validate` in the recipe")
    kept: list[KeptTask] = field("tasks to attempt, in the subset's order")
    private: int = field(
        "number of kept tasks that were not run because their answers are private", default=0, minimum=1
    )
    null_tasks: int = field(
        "number of rows without a repair, validated only by runs of the unchanged code; absent "
        "if there are none",
        default=0,
        minimum=1,
    )
    flaky: list[DroppedTask] = field("tasks whose gold patch was resolved in some runs only")
    broken: list[DroppedTask] = field("tasks that can never be graded correctly")
    unjudged: list[DroppedTask] = field(
        "tasks for which the grader itself failed, so they were not judged; absent if there are none",
        default=(),
    )
    leaks: list[Leak] = field(
        "files readable by the agent that reveal answers of tasks; absent if there are none", default=()
    )
