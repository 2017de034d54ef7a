"""Kinds of artifacts about attempts: recorded and live trajectories, predictions, grades, reports."""

from swelab.configs import experiment, kinds
from swelab.configs.experiment import is_published
from swelab.configs.recipes import recipe_file
from swelab.jobs.shards import sample_of, sample_suffix
from swelab.lineage.common_needs import GRADED, POLICY, SUBSET, files_at, files_of, images, setting
from swelab.lineage.graph import Kind, Wildcards, policy_files


def _recordings(at: Wildcards) -> list[str]:
    policy = at.recipe(kinds.POLICY)
    return [at.path("recordings.manifest")] * (policy.kind == "recorded" and is_published(policy))


def _scaffold(at: Wildcards) -> list[str]:
    return at.each(recipe_file("scaffold"), [setting(at, kinds.POLICY, "scaffold")])


def _service(at: Wildcards) -> list[str]:
    """Returns the result file of the scoring service for the shard's sample. Returns [] if the service does
    not judge the subset."""
    if setting(at, kinds.SUBSET, "scorer") != "sb-cli":
        return []
    return [at.path("service", sample=sample_suffix(sample_of(at.names["shard"])))]


ATTEMPT_ARTIFACTS = {
    "recordings": Kind(
        rules="unpack_trajectories",
        files=files_at("results/recordings/{policy}", folder="", manifest=".json", stage=".manifest.json"),
        params={"policy": lambda at: at.recipe(kinds.POLICY).plain()},
        needs={"recipe": POLICY, "rows": files_of(kinds.POLICY)},
    ),
    "trajectories": Kind(
        rules="rollout rollout_hosted",
        files=files_at("results/rollouts/{policy}/{subset}/{shard}", trajectories=".jsonl"),
        params={
            "policy": lambda at: experiment.rollout_slice(at.recipe(kinds.POLICY)),
            "scaffold": lambda at: experiment.scaffold_of(at.recipe(kinds.POLICY), at.configs),
        },
        paid=True,
        needs={
            "tasks": "lock.kept",
            "images": images,
            "policy": POLICY,
            "recordings": _recordings,
            "scaffold": _scaffold,
            "sources": lambda at: policy_files(at.recipe(kinds.POLICY)),
        },
    ),
    "predictions": Kind(
        rules="collect_predictions",
        files=files_at(
            "results/rollouts/{policy}/{subset}/",
            predictions="preds{sample}.json",
            usage="usage{sample}.json",
            manifest="preds{sample}.manifest.json",
        ),
        needs={"tasks": "lock.kept", "trajectories": lambda at: at.shards("trajectories")},
    ),
    "service": Kind(
        rules="submit_predictions",
        files=files_at("results/grades/{policy}/{subset}/service{sample}", run=".json"),
        params={"service": lambda at: at.recipe(kinds.SUBSET).model_dump(include={"scorer", "service"})},
        needs={"tasks": "lock.kept", "predictions": "predictions", "recipe": SUBSET},
    ),
    "grades": Kind(
        rules="grade",
        files=files_at("results/grades/{policy}/{subset}/{shard}", grades=".jsonl"),
        needs={**GRADED, "trajectories": "trajectories", "policy": POLICY, "service": _service},
    ),
    "report": Kind(
        rules="report_grades",
        files=files_at("results/grades/{policy}/{subset}/report{sample}", report=".json"),
        needs={"tasks": "lock.kept", "lock": "lock", "grades": lambda at: at.shards("grades")},
    ),
    "regrades": Kind(
        rules="regrade",
        files={"regrades": "results/regrades/{policy}/{subset}{sample}.json"},
        needs={**GRADED, "predictions": "predictions", "grades": lambda at: at.shards("grades")},
    ),
    "cheats": Kind(
        rules="check_cheats",
        files={"verdicts": "results/cheats/{subset}.json"},
        needs={"tasks": "lock.kept"},
    ),
}
