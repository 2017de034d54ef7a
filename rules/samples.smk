"""Which files hold the shards and the samples of a policy's runs, and what a base model is made from. No rules.

in:  `shards` and `samples` of configs/policies/{policy}.yaml; configs/models/{model}.yaml
"""

from functools import cache

from swelab.configs.experiment import rollout_slice, sample_paths, shard_paths
from swelab.configs.trained_on import files_of_model, training_runs
from swelab.jobs.shards import sample_of, sample_suffix


@cache
def named_experiment(name):
    """An experiment, checked with all that it names."""
    try:
        return load_experiment(name)
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


def of_experiment(key):
    """Function of the wildcards: what their experiment has under a key."""
    return lambda wildcards: named_experiment(wildcards.experiment)[key]


def rollout_settings(wildcards):
    """What a rollout depends on."""
    return rollout_slice(policy_settings(wildcards))


def shards(pattern):
    """Input function: `pattern` for every shard of a sample of the wildcards' policy on their subset."""
    return lambda names: shard_paths(
        pattern, names.policy, names.subset, sample=names.sample
    )


def samples(pattern):
    """Input function: `pattern` for every sample of the wildcards' policy on their subset."""
    return lambda names: sample_paths(pattern, names.policy, names.subset)


def expert_reports(wildcards):
    """Reports of an experiment's expert on every train subset."""
    expert = named_experiment(wildcards.experiment)["expert"]
    pattern = "results/grades/{policy}/{subset}/report{sample}.json"
    return [
        path
        for subset in expert["subsets"]
        for path in sample_paths(pattern, expert["policy"], subset)
    ]


def experiment_scores(wildcards):
    """Scores of all policies of an experiment on all of its benchmarks."""
    experiment = named_experiment(wildcards.experiment)
    return expand(
        "results/scores/{policy}/{subset}.json",
        subset=experiment["benchmarks"],
        policy=experiment["policies"],
    )


def experiment_checkpoints(wildcards):
    """Manifests of all checkpoints that are trained for an experiment or scored in it."""
    names = trained(named_experiment(wildcards.experiment))
    return expand("results/sft/{sft}/checkpoint.json", sft=names)


def trained_tasks(wildcards):
    """Tasks that an experiment trains on."""
    names = training_subsets(named_experiment(wildcards.experiment))
    return expand("results/tasks/{subset}.json", subset=names)


def scored_tasks(wildcards):
    """Tasks that an experiment scores."""
    names = named_experiment(wildcards.experiment)["benchmarks"]
    return expand("results/tasks/{subset}.json", subset=names)


def sft_tasks(wildcards):
    """Tasks that an SFT recipe trains on."""
    names = dict.fromkeys(subset for _, subset in sft_runs(wildcards))
    return expand("results/tasks/{subset}.json", subset=names)


def scored_beside(wildcards):
    """Tasks that the experiment of this run scores, where it trains or scores an SFT recipe; else none."""
    names = EXPERIMENT["benchmarks"] if wildcards.sft in trained(EXPERIMENT) else []
    return expand("results/tasks/{subset}.json", subset=names)


def shard_predictions(wildcards):
    """The predictions that a shard's are among."""
    name = f"preds{sample_suffix(sample_of(wildcards.shard))}.json"
    return f"results/rollouts/{wildcards.policy}/{wildcards.subset}/{name}"


def sft_runs(wildcards):
    """Runs that an SFT recipe takes its rows from."""
    try:
        return training_runs(wildcards.sft)
    except Fault as fault:  # Snakemake would show a traceback
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


def training_shards(pattern):
    """Input function: `pattern` for every shard of the runs that an SFT recipe takes its rows from."""
    return lambda names: [
        path
        for policy, subset in sft_runs(names)
        for path in shard_paths(pattern, policy, subset)
    ]


def service_run(wildcards):
    """Run at SWE-bench's service that a shard's verdicts are in, where that judges the subset."""
    name = f"service{sample_suffix(sample_of(wildcards.shard))}.json"
    run = f"results/grades/{wildcards.policy}/{wildcards.subset}/{name}"
    return run if subset_settings(wildcards).get("scorer") == "sb-cli" else []


def model_repo(wildcards):
    """The repository whose world the base model is pre-trained on; nothing for a downloaded model."""
    repo = model_settings(wildcards).get("repo")
    return f"results/repos/{repo}.tar" if repo else []


def model_files(wildcards):
    """Files of the folder that a model recipe names: an edited one is taken anew."""
    try:
        return files_of_model(model_settings(wildcards))
    except Fault as fault:  # Snakemake would show a traceback
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)
