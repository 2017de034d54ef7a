"""Records about results: a policy's score on a benchmark, and an experiment's verified score."""

from typing import Annotated, Any

from swelab.outcomes import GradeEnd
from swelab.records.attempt_records import Verdict
from swelab.records.report_records import Validation
from swelab.records.stage_records import Code, Sha256
from swelab.records.typed import Bounds, ClosedRecord, Count, TypedRecord, field

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
    interval: Interval | None = field("as of resolve_rate")
    resolved: Count = field("attempts resolved")
    total: Count = field("attempts not lost")


class Run(ClosedRecord):
    """The result of one run."""

    resolved: Count = field("tasks resolved")
    resolve_rate: Rate = field("resolved / tasks")
    infra_errors: Count = field("tasks lost to infrastructure")


class Spread(ClosedRecord):
    """How much the results of several runs vary."""

    sd: Number = field("standard deviation of the runs' rates")
    expected_sd: Number = field(
        "what it is from the luck of attempts alone: root of the variance within tasks / tasks"
    )
    lowest: Rate = field("rate of the lowest run")
    highest: Rate = field("rate of the highest run")
    p_value: Rate | None = field(
        "Cochran's Q: whether runs differ by more than the luck of attempts; null when no task separates them"
    )


class Estimate(ClosedRecord):
    """An estimate for one value of k in pass@k or pass^k."""

    rate: Rate = field("the estimate")
    interval: Interval = field("over tasks")


class Differences(ClosedRecord):
    """The smallest differences that a number of runs would detect."""

    same_tasks_hard: Rate | None = field(
        "where the other policy finds the same tasks hard; null where attempts at a task do not vary, or "
        "there "
        "is one"
    )
    unrelated: Rate = field("where what one resolves says nothing of the other")


class Detectable(ClosedRecord):
    """The smallest true differences that a given number of runs would detect."""

    power: Number = field("chance of finding them")
    runs: dict[str, Differences] = field("by number of runs of each policy")


class RepoRate(ClosedRecord):
    """The resolve rate on the tasks of one repository."""

    tasks: Count = field("its tasks")
    resolve_rate: Rate = field("resolved / total")
    interval: Interval = field("as of the whole")
    resolved: Count = field("attempts resolved")
    total: Count = field("attempts")


class TotalUsage(ClosedRecord):
    """Tokens and dollars of all attempts."""

    attempts: Count = field("attempts whose usage was read")
    prompt_tokens: int | None = field("tokens sent", minimum=0)
    prompt_tokens_known: Count = field("attempts where they are known")
    completion_tokens: int | None = field("tokens that the model wrote", minimum=0)
    completion_tokens_known: Count = field("attempts where they are known")
    cost: float | None = field("dollars that the service charges", minimum=0)
    cost_known: Count = field("attempts where they are known")
    tokens_per_resolved: float | None = field(
        "tokens sent and written, of all attempts, for each resolved one; null when none is", minimum=0
    )
    cost_per_resolved: float | None = field(
        "dollars of all attempts for each resolved one; null when none is", minimum=0
    )


class PolicyScore(ClosedRecord):
    """The results of a policy on a benchmark."""

    resolve_rate: Rate = field(
        "resolved / total; every task of the benchmark counts, those lost to infrastructure too"
    )
    interval: Interval = field(
        "Wilson score interval of resolve_rate; of several runs, over tasks and runs: Wilson's at the "
        "effective "
        "number of attempts"
    )
    resolved: Count = field("attempts resolved: one attempt a task and run")
    total: int = field("attempts: tasks of the benchmark times runs", minimum=1)
    infra_errors: Count = field("attempts without a verdict because the infrastructure failed")
    without_infra_errors: CountedRate = field(
        "the same rate with lost attempts left out of both counts; null when every one was lost"
    )
    statuses: StatusCounts = field("attempts by verdict")
    witness: dict[str, Count] = field(
        "resolved attempts by how well they are witnessed: witnessed, weakly, not; absent where nobody asked",
        default=None,
    )
    outcomes: dict[str, Count] = field("attempts by the way the rollout ended")
    runs: list[Run] = field(
        "each of several runs, in order of samples; not there for one run", default=(), minItems=2
    )
    spread: Spread | None = field("how far several runs lie apart", default=None, type="object")
    pass_at: dict[str, Estimate] = field(
        "pass@k by k: the share of tasks that one of k attempts resolves, unbiased (Chen et al. 2021)",
        default=None,
    )
    pass_all: dict[str, Estimate] = field(
        "pass^k by k: the share of tasks that all of k attempts resolve, unbiased (Yao et al. 2024)",
        default=None,
    )
    detectable: Detectable | None = field(
        "for planning: true differences from this policy that so many runs of these tasks would find",
        default=None,
        type="object",
    )
    usage: TotalUsage | None = field(
        "tokens and dollars of all attempts; null where those of some attempt are not known",
        default=None,
        type="object",
    )


class Score(PolicyScore):
    """A policy's resolve rate on a benchmark, with every count behind the rate."""

    policy: str = field("who acted", minLength=1)
    subset: str = field("name of the benchmark", minLength=1)
    benchmark: Benchmark = field("the benchmark")
    confidence: float = field("confidence level of the intervals", const=0.95)
    repos: dict[str, RepoRate] = field("the rate by repository", default=None)
    validation: Validation | None = field("the gate that the tasks passed", default=None, type="object")
    instances: dict[str, Verdict | Annotated[list[Verdict], Bounds(minItems=2)]] = field(
        "verdict by instance id, so that scores can be paired; of several runs, one of each",
        minProperties=1,
    )


class Discordant(ClosedRecord):
    """Pairs on which the two policies differ."""

    gained: Count = field("resolved by `to` alone; of several runs, more often by `to`")
    lost: Count = field("resolved by `from` alone; of several runs, more often by `from`")


class Methods(ClosedRecord):
    """The statistical methods of a comparison."""

    test: str = field("behind p_value")
    interval: str = field("behind interval")


class RunsCompared(ClosedRecord):
    """The number of runs of each policy."""

    from_policy: Count = field("of the first", alias="from")
    to_policy: Count = field("of the second", alias="to")


class Comparison(ClosedRecord):
    """A comparison of two policies on the same tasks."""

    from_policy: str = field("the first policy", alias="from")
    to_policy: str = field("the second policy", alias="to")
    p_value: Rate | None = field(
        "McNemar's exact test, two-sided; of several runs the exact paired permutation test; null when no "
        "pair "
        "is left"
    )
    difference: Difference | None = field(
        "rate of `to` less rate of `from`, over the pairs; null when no pair is left"
    )
    interval: Annotated[list[Difference], Bounds(minItems=2, maxItems=2)] | None = field(
        "interval of the difference; null when no pair is left"
    )
    discordant: Discordant = field("pairs on which the two differ")
    both: Count = field("pairs resolved by both; of several runs, as often, and at all")
    neither: Count = field("pairs resolved by neither")
    pairs: Count = field("pairs compared")
    excluded_infra_errors: Count = field("tasks left out because either side was lost to infrastructure")
    minimum_detectable_difference: Rate | None = field(
        "smallest true difference found with `power` at the discordance seen; null also when there is none; "
        "null when no pair is left"
    )
    confidence: float = field("confidence level of the intervals", const=0.95)
    power: float = field("power of the minimum detectable difference")
    methods: Methods = field("names of the methods")
    runs: RunsCompared | None = field(
        "runs of each policy; not there when both have one", default=None, type="object"
    )
    p_adjusted: Rate | None = field(
        "p_value after Holm's correction over all pairs of policies on this benchmark", default=None
    )


class BenchmarkResult(ClosedRecord):
    """The scores of all policies on one benchmark, and a paired comparison of two policies."""

    benchmark: Benchmark = field("the benchmark")
    validation: Validation | None = field("the gate that the tasks passed", default=None, type="object")
    policies: dict[str, PolicyScore] = field("the policies' scores by name", minProperties=1)
    comparison: Comparison = field("two policies on the same tasks")
    pairwise: list[Comparison] = field(
        "every two policies compared, where there are more than two", default=()
    )


class FileBehind(ClosedRecord):
    """A file behind the score."""

    path: str = field("from the root of the repository")
    sha256: Sha256 = field("hash of its bytes")
    bytes: Count = field("its size")


class Evidence(TypedRecord):
    """Everything behind the score. Two identical runs have scores that differ only in this record."""

    rule: str = field("the rule that wrote it")
    code: Code = field("which code ran")
    packages: dict[str, str] = field("versions of Python and packages")
    experiment: str = field("name of the experiment")
    recipes: dict[str, Any] = field("the recipes it rests on, by path, defaults filled in")
    files: list[FileBehind] = field("files behind the score")
    missing: list[str] = field("files that belong to the experiment but were not there")
    stages: dict[str, Any] = field("the manifests of the stages, by path")


class VerifiedScore(BenchmarkResult):
    """The scores of all policies on the first benchmark and on further benchmarks, with paired comparisons
    and all evidence."""

    others: list[BenchmarkResult] = field("the same for further benchmarks")
    manifest: Evidence = field(
        "everything behind the score; what differs between two identical runs is here and nowhere else"
    )
