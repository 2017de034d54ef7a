"""Records about tasks: the rows of a subset, their difficulty, the lock of usable rows, and images."""

from typing import Annotated, Any, Literal

from swelab.records.attempt_records import GradeWitness
from swelab.records.typed import Bounds, ClosedRecord, Count, TypedRecord, field, one_of

TestName = Annotated[str, Bounds(minLength=1)]


NULL_ONLY: Literal["null only"] = "null only"
"""How a task without a known repair was validated: only its unchanged code was run, and its tests failed."""


NullEnd = Literal["ran", "too long", "broken off"]


class TaskFile(ClosedRecord):
    """A file of a task. The rows of small tasks contain all files of the repository."""

    path: str = field("path in the checkout", minLength=1)
    content: str = field("its text")


class NullRun(ClosedRecord):
    """The test results on the unchanged code of a task that has no known repair."""

    collected: int = field("tests that pytest collects in a run in which the imports work", minimum=1)
    imports: bool = field("the tests can be imported with the code as it is")
    collected_by: Literal["code", "stand-in"] = field(
        "what the tests imported when they were collected: the code as it is, or, where that cannot be "
        "imported, a module that has every name"
    )
    ended: NullEnd = field(
        "how the run ended; with another word than `ran`, tests without a result count as failing"
    )
    skipped: list[str] = field("tests that skip themselves, which are not listed", default=())


class Compat(ClosedRecord):
    """Published ways of judging that differ from swelab's way. An absent field means that swelab's strict way
    is used."""

    final_eval: bool = field(
        "false: a repair counts only if the last call of the agent's own tool `eval` passed", default=True
    )
    skip_counts_as_pass: bool = field("true: a skipped test is a passed one", default=False)


class Task(TypedRecord):
    """One row of a subset: a bug in a repository, in SWE-smith's schema with further fields of swelab."""

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
    problem_statement: str = field("the issue text: symptom and failing test, not the fix")
    FAIL_TO_PASS: list[TestName] = field("tests that fail with the bug and must pass after the fix")
    PASS_TO_PASS: list[TestName] = field("tests that pass with the bug and must go on passing")
    image_name: str = field("what the task runs in", minLength=1)
    answers: Literal["private", "none", "script", ""] = field(
        "private: patch and tests are not published; none: there are tests and no repair is known; script: "
        "a script of the task gives a reward, there is no list of tests. All other rows have both",
        default="",
        enum=["private", "none", "script"],
    )
    verifier_tar: str = field(
        "base64 of a tar of the files that judge, of rows with `answers: script`: test.sh writes the reward",
        default="",
    )
    verifier_env: dict[str, str] = field("variables that test.sh is started with", default={})
    solution_tar: str = field("base64 of a tar of the files that solve it, solve.sh first", default="")
    base_commit: Any = field("the commit that the checkout starts from", default="")
    repo_recipe: str = field(
        "stem of the file under configs/repos that the clean checkout is made from", default=""
    )
    part: str = field(
        "folder of that archive that the checkout is made from; the whole archive where absent",
        default="",
        pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
    )
    test_cmd: str = field("shell command run in the checkout; prints one status line a test", default="")
    test_patch: str | None = field("unified diff that brings the tests of the fix", default=None)
    eval_script: str | None = field("bash that runs the tests, of rows that bring their own", default=None)
    eval_type: Literal["pass_and_fail", "fail_only"] | None = field(
        "what is judged: tests that pass and fail, or, where the log names only failures, those", default=None
    )
    log_parser: str = field("name of the parser of that log in swebench", default="")
    test_files: list[str] = field("files restored from the clean checkout before grading", default=())
    test_timeout: int = field("seconds of wall time for test_cmd", default=0, minimum=1)
    source: str = field("what made the task: forge, drill, or a dataset", default="")
    function: str = field("the mutated function, path::Qual.name", default="")
    bug: str = field("hash of the bug's patch", default="")
    op: str = field("mutation operator", default="")
    hint: Any = field("path, line and name of the mutated function, for the scripted policy", default=None)
    hidden_tests: bool = field("files with tests to repair are not in the agent's checkout", default=False)
    tests_left_out: Any = field("tests of the file whose verdict varies, in forged rows", default=())
    image: Any = field("the image by its digest, of rows that name it so", default=None)
    files: list[TaskFile] = field(
        "the whole checkout with the bug, of tasks that are a few files; instead of repo_recipe", default=()
    )
    entrypoint: str = field("the command by which an agent runs the tests, as the row gives it", default="")
    readonly: list[str] = field("files that the agent's tools must not change", default=())
    null_run: NullRun | None = field(
        "of rows without a repair: what the tests said of the code as it is", default=None, type="object"
    )
    evaluation_set: str = field("the published evaluation set that the row is of", default="")
    compat: Compat | None = field("published ways of judging it", default=None, type="object")
    version: Any = field("version of the repository, by which SWE-bench knows how to test it", default=None)

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
        """The files that contain the tests to repair. Test ids that name no file inside the repository are
        ignored."""
        paths = {test.partition("::")[0] for test in self.FAIL_TO_PASS if "::" in test}
        return sorted(path for path in paths if not path.startswith("/") and ".." not in path.split("/"))


class Difficulty(TypedRecord):
    """A rater's difficulty of a task, or the reason why there is no rating."""

    also = {
        "if": {"properties": {"outcome": {"const": "rated"}}},
        "then": {"properties": {"difficulty": {"type": "string"}, "rating": {"type": "integer"}}},
        "else": {"properties": {"difficulty": {"type": "null"}, "rating": {"type": "null"}}},
    }
    instance_id: str = field("the task", minLength=1)
    outcome: Annotated[str, one_of("RATING_ENDS")] = field(
        "rated; or no answer was one of the words, the task does not fit into the model's context, the model "
        "did not answer"
    )
    difficulty: str | None = field("the word that was answered: easy, medium, hard")
    rating: int | None = field("what the word stands for: 1, 5, 9")
    answer: str = field("the last answer, shortened, or what was wrong")
    attempts: Count = field("answers that were asked for")
    usage: dict[str, Any] = field("tokens of all attempts", default=None)
    cost: float = field("dollars of all attempts", default=0.0, minimum=0)


class Gate(TypedRecord):
    """The recipe's `validate` settings, with which a subset was validated."""

    gold_runs: Count = field("runs of each gold patch; 0 where tasks come without one")
    null_runs: int = field(
        "runs of the code as it is, of tasks without a repair; absent where there are none",
        default=0,
        minimum=1,
    )
    together: bool = field("tasks of one repository shared runs", default=False)
    allow_leaks: bool = field("tasks whose answer can be read are kept", default=False)
    guard: str = field("the recipe's `guard`", default="whole")


class KeptTask(ClosedRecord):
    """A task that passed validation, or whose answers are private."""

    instance_id: str = field("the task")
    task: str = field("hash of its row")
    place: str = field("digest of its repository's archive or its image")
    seconds: float = field("wall time of the slowest gold run that it was in", minimum=0)
    validated: Literal["null only", ""] = field(
        "null only: no repair is known, so nobody showed that its tests can pass; absent: the gold patch was "
        "resolved in every run",
        default="",
        enum=[NULL_ONLY],
    )
    fails: list[str] = field("null only: the tests that its code as it is does not pass", default=())
    collected: int = field(
        "null only: tests that pytest collects where the imports work", default=0, minimum=1
    )
    imports: bool = field("null only: false where the code as it is cannot be imported", default=True)
    witness: GradeWitness | None = field(
        "how well its gold patch is witnessed, which no other patch can exceed; absent where nobody asked",
        default=None,
        type="object",
    )


class DroppedTask(ClosedRecord):
    """A task that did not pass validation."""

    instance_id: str = field("the task")
    reason: str = field("one line", minLength=1)
    gold_resolved: Count = field("gold runs that resolved it")


class Leak(ClosedRecord):
    """A place where an agent can read the answer of a task."""

    instance_id: str = field('the task; "" when it holds for every task of an image')
    what: str = field("what tells it")


class Lock(ClosedRecord):
    """The result of validation: which tasks of a subset may be used.

    A task passes if its gold patch is always resolved, and an empty or reversed patch never is. A task
    without a repair passes if the same tests fail in every run of its unchanged code.
    """

    tasks_digest: str = field("hash of the subset's rows")
    total: Count = field("rows of the subset")
    settings: Gate = field("the recipe's `validate`")
    kept: list[KeptTask] = field("tasks to work with, in the subset's order")
    private: int = field(
        "of the kept tasks those that were not run: their answers are private", default=0, minimum=1
    )
    null_tasks: int = field(
        "rows without a repair: validated by runs of the code as it is alone; absent where there are none",
        default=0,
        minimum=1,
    )
    flaky: list[DroppedTask] = field("tasks whose gold patch was resolved in some runs only")
    broken: list[DroppedTask] = field("tasks that can never be graded rightly")
    unjudged: list[DroppedTask] = field(
        "tasks with which the grader itself failed, which says nothing about them; absent where there are "
        "none",
        default=(),
    )
    leaks: list[Leak] = field(
        "what tells the answers of tasks in files that the agent can read; absent where nothing does",
        default=(),
    )


class HeldImage(ClosedRecord):
    """An image from which sandboxes can start."""

    digest: str = field(
        "of the manifest for this platform; of the file for an apptainer file",
        pattern="^sha256:[0-9a-f]{64}$",
    )
    bytes: Count = field("of its files, shared layers counted in full")
    folder: str = field(
        'unpacked root or apptainer file, relative to this record; "" when an engine holds it'
    )
    workdir: str = field("where its repository lies", pattern="^/")
    install: str = field(
        'why an install step of its tasks\' eval scripts failed; "" when all ran; absent: there are none',
        default="",
    )


class PulledImage(HeldImage):
    """An image that was pulled, with the leaks that were found inside."""

    pulled: str = field("time of the pull, UTC")
    checked: Count = field("how many tasks were looked at in it for history and copies that tell the answer")
    leaks: list[Leak] = field("what tells an answer; a task with a leak is refused")


class FailedImage(ClosedRecord):
    """An image that could not be pulled, and the reason."""

    reason: str = field("the word it is counted under")
    error: str = field("one line")


class Images(ClosedRecord):
    """The images of a subset's tasks: images that were pulled, and images that could not be pulled."""

    images: dict[str, PulledImage] = field("by the name in the tasks' rows")
    failed: dict[str, FailedImage] = field("by name: why the image could not be had")
    counts: dict[str, Count] = field("named, pulled, kept from before, leaking, and failed by reason")
