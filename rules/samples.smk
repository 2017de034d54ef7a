"""Which files hold the shards and the samples of a policy's runs, and what a base model is made from. No rules.

in:  `shards` and `samples` of configs/policies/{policy}.yaml; configs/models/{model}.yaml
"""

from swelab.configs.experiment import NO_RESULT, files_of_model, sample_paths, shard_paths, training_runs
from swelab.jobs.shards import sample_of, sample_suffix


def rollout_settings(wildcards):
    """What a rollout depends on."""
    settings = policy_settings(wildcards)
    return {key: settings[key] for key in settings if key not in NO_RESULT}


def shards(pattern):
    """Input function: `pattern` for every shard of a sample of the wildcards' policy on their subset."""
    return lambda names: shard_paths(
        pattern, names.policy, names.subset, sample=names.sample
    )


def samples(pattern):
    """Input function: `pattern` for every sample of the wildcards' policy on their subset."""
    return lambda names: sample_paths(pattern, names.policy, names.subset)


def expert_reports(wildcards):
    """Reports of the expert on every train subset."""
    pattern = "results/grades/{policy}/{subset}/report{sample}.json"
    return [
        path
        for subset in EXPERT["subsets"]
        for path in sample_paths(pattern, EXPERT["policy"], subset)
    ]


def shard_predictions(wildcards):
    """The predictions that a shard's are among."""
    name = f"preds{sample_suffix(sample_of(wildcards.shard))}.json"
    return f"results/rollouts/{wildcards.policy}/{wildcards.subset}/{name}"


def training_shards(pattern):
    """Input function: `pattern` for every shard of the runs that an SFT recipe takes its rows from."""
    return lambda names: [
        path
        for policy, subset in training_runs(EXPERIMENT, names.sft)
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
