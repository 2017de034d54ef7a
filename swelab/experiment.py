"""An experiment with every recipe that it names, loaded and checked against one another."""

from pathlib import Path

from swelab import recipes
from swelab.records import InputError, Record


def load_experiment(name: str, configs: Path = recipes.CONFIGS) -> Record:
    """The experiment `name` as {"name", "expert", "sft", "policies", "benchmarks", "compare"} after checks.

    Raises InputError: an unknown name anywhere below it, a compared policy that is not scored, a
    subset that is trained on and scored.
    """
    path = recipes.path_of("experiment", name, configs)
    experiment = recipes.load("experiment", path)
    train, benchmarks = experiment["expert"]["subsets"], experiment["benchmarks"]
    for policy in [experiment["expert"]["policy"], *experiment["policies"]]:
        check_policy(policy, configs)
    for subset in [*train, *benchmarks]:
        for repo in recipes.named("subset", subset, configs).get("repos", []):
            recipes.named("repo", repo, configs)
    sft = recipes.named("sft", experiment["sft"], configs)
    recipes.named("model", sft["base"], configs)
    for policy in experiment["compare"]:
        if policy not in experiment["policies"]:
            hint = recipes.nearest(policy, experiment["policies"])
            raise InputError(f"compare: {policy!r} is not among policies{hint}", path)
    both = sorted(set(train) & set(benchmarks))
    if both:
        raise InputError(f"subset {both[0]!r} is trained on and scored", path, "disjoint subsets")
    return {"name": name, **experiment}


def check_policy(name: str, configs: Path = recipes.CONFIGS) -> None:
    """Loads a policy, its scaffold and what its weights are made from. Raises InputError."""
    policy = recipes.named("policy", name, configs)
    recipes.named("scaffold", policy["scaffold"], configs)
    kind, _, weights = policy.get("weights", "").partition(":")
    if kind in ("sft", "model") and weights:
        recipes.named(kind, weights, configs)


def weights_paths(policy: Record) -> tuple[str, str]:
    """Folder and manifest of a checkpoint policy's weights; ('', '') when it has none or a site serves it."""
    weights = policy.get("weights", "")
    kind, _, name = weights.partition(":")
    if not weights or policy.get("endpoint"):
        return "", ""
    if kind == "sft" and name:
        return f"results/sft/{name}/checkpoint", f"results/sft/{name}/checkpoint.json"
    if kind == "model" and name:
        return f"results/models/{name}", f"results/models/{name}.json"
    return weights, ""
