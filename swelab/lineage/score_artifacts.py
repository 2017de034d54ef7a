"""Kinds of artifacts about scores: a policy's score on a benchmark, an experiment's verified score, and its
page."""

from swelab.configs import kinds
from swelab.configs.trained_on import sft_recipes
from swelab.lineage.common_needs import files_at
from swelab.lineage.graph import Kind, Wildcards


def _expert_runs(at: Wildcards) -> list[str]:
    expert = at.recipe(kinds.EXPERIMENT).expert
    named = [(file, each) for file in ("report", "predictions") for each in expert.subsets]
    return [path for file, each in named for path in at.samples(file, policy=expert.policy, subset=each)]


def _scores(at: Wildcards) -> list[str]:
    """Returns the paths of the scores of all policies on all benchmarks."""
    plan = at.recipe(kinds.EXPERIMENT)
    return [
        at.path("score", policy=policy, subset=benchmark)
        for benchmark in plan.benchmarks
        for policy in plan.policies
    ]


def _checkpoints(at: Wildcards) -> list[str]:
    return at.each("checkpoint.manifest", sft_recipes(at.recipe(kinds.EXPERIMENT), at.configs))


SCORE_ARTIFACTS = {
    "score": Kind(
        rules="score",
        files=files_at("results/scores/{policy}/{subset}", score=".json", table=".csv"),
        needs={
            "tasks": "lock.kept",
            "reports": lambda at: at.samples("report"),
            "usage": lambda at: at.samples("predictions.usage"),
        },
    ),
    "verified_score": Kind(
        rules="score_experiment",
        files={"score": "results/experiments/{experiment}/verified_score.json"},
        needs={
            "expert": _expert_runs,
            "disjoint": "disjoint",
            "scores": _scores,
            "checkpoints": _checkpoints,
        },
    ),
    "page": Kind(
        rules="report",
        files={"page": "results/experiments/{experiment}/report.html"},
        needs={"score": "verified_score"},
    ),
    "published": Kind(rules="copy_result", files={"published": "results/verified_score.json"}),
    "published_page": Kind(rules="copy_page", files={"published": "results/report.html"}),
}
