"""Records about results: a policy's score on a benchmark, and an experiment's verified score."""

from typing import Annotated, Any

from swelab.outcomes import GradeEnd
from swelab.records.attempt_records import Verdict
from swelab.records.report_records import Validation
from swelab.records.typed import Bounds, ClosedRecord, Count, TypedRecord, field

Sha256 = Annotated[str, Bounds(pattern="^[0-9a-f]{64}$")]


class Code(ClosedRecord):
    """Version of the code that ran."""

    commit: str = field("git commit; empty where git does not say")
    dirty: bool | None = field("the tree differed from the commit; null where git does not say")


class UsedRecipe(ClosedRecord):
    """The settings of a recipe that a stage used."""

    sha256: Sha256 = field("hash of the settings that were used")
    used: dict[str, Any] = field("settings that the stage depends on, with defaults")


class Manifest(TypedRecord):
    """Describes how a stage made its outputs: the code, inputs, recipes and packages that it used. A stage
    may add further fields."""

    rule: str = field("the rule that made the outputs")
    code: Code = field("version of the code")
    inputs: dict[str, dict[str, Sha256]] = field(
        "hashes of the files that were read, by role and path; one hash per folder"
    )
    recipes: dict[str, UsedRecipe] = field("maps the path of each recipe to the settings that were used")
    outputs: dict[str, Sha256] = field("hashes of the files that were written, by path")
    packages: dict[str, str] = field("versions of Python and packages")
    wall_seconds: float = field("wall time of the stage's last run, in seconds", minimum=0)
    place: dict[str, Any] = field(
        "where the stage ran: backend, executor, partition, workers, the service that "
        "responded; a change here reruns nothing",
        default=None,
    )


Rate = Annotated[float, Bounds(minimum=0, maximum=1)]
Number = Annotated[float, Bounds(minimum=0)]
Interval = Annotated[list[Rate], Bounds(minItems=2, maxItems=2)]
StatusCounts = Annotated[
    dict[str, int],
    Bounds(
        required=[str(end) for end in GradeEnd],
        properties={
            str(end): {"type": "integer", "description": f"attempts graded {end}", "minimum": 0}
            for end in GradeEnd
        },
        additionalProperties=False,
    ),
]
"""Maps each verdict to its number of attempts. Verdicts with the count 0 are included."""
Difference = Annotated[float, Bounds(minimum=-1, maximum=1)]


class Benchmark(ClosedRecord):
    """The benchmark of a score."""

    name: str = field("name of the subset")
    hash: Sha256 = field("SHA-256 of the canonical JSON of its task rows")
    size: int = field("number of tasks", minimum=1)


class CountedRate(ClosedRecord):
    """A rate with its counts. The rate is null if there are no attempts."""

    resolve_rate: Rate | None = field("resolved / total")
    interval: Interval | None = field("confidence interval of resolve_rate")
    resolved: Count = field("number of resolved attempts")
    total: Count = field("number of attempts that were not lost")


class Run(ClosedRecord):
    """The result of one run."""

    resolved: Count = field("number of resolved tasks")
    resolve_rate: Rate = field("resolved / number of tasks")
    infra_errors: Count = field("number of tasks lost to infrastructure")


class Spread(ClosedRecord):
    """How much the results of several runs vary."""

    sd: Number = field("standard deviation of the runs' rates")
    expected_sd: Number = field(
        "standard deviation that the randomness of attempts alone would give: root of the "
        "variance within tasks / tasks"
    )
    lowest: Rate = field("rate of the lowest run")
    highest: Rate = field("rate of the highest run")
    p_value: Rate | None = field(
        "Cochran's Q: whether runs differ by more than the randomness of attempts; null if "
        "every task has the same result in all runs"
    )


class Estimate(ClosedRecord):
    """An estimate for one value of k in pass@k or pass^k."""

    rate: Rate = field("the estimate")
    interval: Interval = field("confidence interval over tasks")


class Differences(ClosedRecord):
    """For one number of runs, the smallest true differences between two policies that the runs can detect."""

    same_tasks_hard: Rate | None = field(
        "if the same tasks are hard for the other policy; null if attempts at a task do not "
        "vary, or each task has one attempt"
    )
    unrelated: Rate = field("if the results of the two policies are independent")


class Detectable(ClosedRecord):
    """For several numbers of runs, the smallest true differences between two policies that the runs can
    detect."""

    power: Number = field("probability of finding the differences")
    runs: dict[str, Differences] = field("maps the number of runs of each policy to the differences")


class RepoRate(ClosedRecord):
    """The resolve rate on the tasks of one repository."""

    tasks: Count = field("number of tasks")
    resolve_rate: Rate = field("resolved / total")
    interval: Interval = field("confidence interval, as for all repositories")
    resolved: Count = field("number of resolved attempts")
    total: Count = field("number of attempts")


class TotalUsage(ClosedRecord):
    """Tokens, dollars and wall time of all attempts."""

    attempts: Count = field("number of attempts whose usage was read")
    prompt_tokens: int | None = field("number of prompt tokens", minimum=0)
    prompt_tokens_known: Count = field("number of attempts with known prompt tokens")
    completion_tokens: int | None = field("number of tokens that the model generated", minimum=0)
    completion_tokens_known: Count = field("number of attempts with known completion tokens")
    reasoning_tokens: int | None = field(
        "number of generated tokens that are thoughts; absent if no call reported it",
        default=None,
        type="integer",
        minimum=0,
    )
    cost: float | None = field("cost in dollars, as the service charges it", minimum=0)
    cost_known: Count = field("number of attempts with a known cost")
    seconds: float | None = field(
        "wall time of the attempts whose time is known, in seconds; absent if none is known",
        default=None,
        type="number",
        minimum=0,
    )
    seconds_known: Count = field("number of attempts with a known wall time", default=0)
    tokens_per_resolved: float | None = field(
        "tokens of all attempts (prompt and completion) / resolved attempts; null if no attempt is resolved",
        minimum=0,
    )
    cost_per_resolved: float | None = field(
        "dollars of all attempts / resolved attempts; null if no attempt is resolved", minimum=0
    )


class PolicyScore(ClosedRecord):
    """The results of a policy on a benchmark."""

    resolve_rate: Rate = field(
        "resolved / total; every task of the benchmark counts, including tasks lost to infrastructure"
    )
    interval: Interval = field(
        "Wilson score interval of resolve_rate; with several runs, over tasks and runs: "
        "Wilson's at the effective number of attempts"
    )
    resolved: Count = field("number of resolved attempts; one attempt per task and run")
    total: int = field("number of attempts: tasks of the benchmark times runs", minimum=1)
    infra_errors: Count = field("number of attempts without a verdict because the infrastructure failed")
    without_infra_errors: CountedRate = field(
        "the same rate without lost attempts in both counts; null if every attempt was lost"
    )
    statuses: StatusCounts = field("number of attempts by verdict")
    witness: dict[str, Count] = field(
        "number of resolved attempts by strength of the witness evidence: witnessed, weakly, "
        "not; absent if no witness questions were run",
        default=None,
    )
    outcomes: dict[str, Count] = field("number of attempts by outcome of the rollout")
    runs: list[Run] = field(
        "each of several runs, in order of samples; absent for one run", default=(), minItems=2
    )
    spread: Spread | None = field("variation between several runs", default=None, type="object")
    pass_at: dict[str, Estimate] = field(
        "pass@k by k: the share of tasks that one of k attempts resolves, unbiased (Chen et al. 2021)",
        default=None,
    )
    pass_all: dict[str, Estimate] = field(
        "pass^k by k: the share of tasks that all of k attempts resolve, unbiased (Yao et al. 2024)",
        default=None,
    )
    detectable: Detectable | None = field(
        "for planning: true differences from this policy that the given number of runs of "
        "these tasks would detect",
        default=None,
        type="object",
    )
    usage: TotalUsage | None = field(
        "tokens and dollars of all attempts; null if they are unknown for an attempt",
        default=None,
        type="object",
    )


class Score(PolicyScore):
    """A policy's resolve rate on a benchmark, and the counts from which the rate is computed."""

    policy: str = field("name of the policy", minLength=1)
    subset: str = field("name of the benchmark", minLength=1)
    benchmark: Benchmark = field("the benchmark")
    confidence: float = field("confidence level of the intervals", const=0.95)
    repos: dict[str, RepoRate] = field("resolve rate by repository", default=None)
    validation: Validation | None = field("the validation of the tasks", default=None, type="object")
    instances: dict[str, Verdict | Annotated[list[Verdict], Bounds(minItems=2)]] = field(
        "maps each instance id to its verdict, so that scores can be paired; with several "
        "runs, to one verdict per run",
        minProperties=1,
    )


class Discordant(ClosedRecord):
    """The numbers of tasks on which two policies have different results."""

    gained: Count = field("number of tasks resolved only by `to`; with several runs, more often by `to`")
    lost: Count = field("number of tasks resolved only by `from`; with several runs, more often by `from`")


class Methods(ClosedRecord):
    """The statistical methods of a comparison."""

    test: str = field("method behind p_value")
    interval: str = field("method behind interval")


class RunsCompared(ClosedRecord):
    """The number of runs of each policy."""

    from_policy: Count = field("number of runs of the first policy", alias="from")
    to_policy: Count = field("number of runs of the second policy", alias="to")


class Comparison(ClosedRecord):
    """A comparison of two policies on the same tasks."""

    from_policy: str = field("the first policy", alias="from")
    to_policy: str = field("the second policy", alias="to")
    p_value: Rate | None = field(
        "McNemar's exact test, two-sided; with several runs the exact paired permutation test; "
        "null if there are no pairs"
    )
    difference: Difference | None = field(
        "rate of `to` minus rate of `from`, over the pairs; null if there are no pairs"
    )
    interval: Annotated[list[Difference], Bounds(minItems=2, maxItems=2)] | None = field(
        "confidence interval of the difference; null if there are no pairs"
    )
    discordant: Discordant = field("pairs with different results")
    both: Count = field(
        "number of pairs resolved by both; with several runs, equally often and at least once"
    )
    neither: Count = field("number of pairs resolved by neither")
    pairs: Count = field("number of compared pairs")
    excluded_infra_errors: Count = field(
        "number of tasks excluded because infrastructure lost an attempt on either side"
    )
    minimum_detectable_difference: Rate | None = field(
        "smallest true difference that is detected with `power` at the observed discordance; "
        "null if there is none, or no pairs"
    )
    confidence: float = field("confidence level of the intervals", const=0.95)
    power: float = field("power of the minimum detectable difference")
    methods: Methods = field("names of the statistical methods")
    runs: RunsCompared | None = field(
        "number of runs of each policy; absent if both have one run", default=None, type="object"
    )
    p_adjusted: Rate | None = field(
        "p_value after Holm's correction over all pairs of policies on this benchmark", default=None
    )


class BenchmarkResult(ClosedRecord):
    """The scores of all policies on one benchmark, and a paired comparison of two policies."""

    benchmark: Benchmark = field("the benchmark")
    validation: Validation | None = field("the validation of the tasks", default=None, type="object")
    policies: dict[str, PolicyScore] = field("maps each policy's name to its score", minProperties=1)
    comparison: Comparison = field("the comparison of two policies on the same tasks")
    pairwise: list[Comparison] = field(
        "the comparison of every two policies, if there are more than two", default=()
    )


class FileBehind(ClosedRecord):
    """A file that the score depends on."""

    path: str = field("path from the root of the repository")
    sha256: Sha256 = field("hash of the file's bytes")
    bytes: Count = field("size of the file")


class Evidence(TypedRecord):
    """Everything that the score depends on, such as code, recipes and files. The scores of two identical runs
    differ only in this record."""

    rule: str = field("rule that wrote the score")
    code: Code = field("version of the code")
    packages: dict[str, str] = field("versions of Python and packages")
    experiment: str = field("name of the experiment")
    recipes: dict[str, Any] = field(
        "maps the path of each recipe that the score depends on to the recipe with defaults"
    )
    files: list[FileBehind] = field("files that the score depends on")
    missing: list[str] = field("files that belong to the experiment but do not exist")
    stages: dict[str, Any] = field("the manifests of the stages, by path")


class VerifiedScore(BenchmarkResult):
    """The scores of all policies on all benchmarks, with paired comparisons, and everything that the scores
    depend on."""

    others: list[BenchmarkResult] = field("the same for further benchmarks")
    manifest: Evidence = field(
        "everything behind the score; what differs between two identical runs is here and nowhere else"
    )
