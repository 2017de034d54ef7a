"""Rollouts: a policy (an expert or a trained model) attempts the tasks of a subset in sandboxes.

A policy's further samples are {shard}s1.jsonl, preds.s1.json, usage.s1.json and so on.
"""


rule rollout:
    """A shard of a policy's `trajectory` rows, in mini-swe-agent's format.

    in:  tasks         results/tasks/{subset}.kept.json
         images        results/images/{subset}.json
         policy        configs/policies/{policy}.yaml
         recordings    results/recordings/{policy}.json of a policy that replays
         scaffold      configs/scaffolds/{scaffold}.yaml
         sources       results/models/{model}.json, results/sft/{sft}/checkpoint.json,
                      results/rl/{rl}/checkpoint.json
         sandbox       results/images/sandbox/image.json, where the backend needs one
    out: trajectories  results/rollouts/{policy}/{subset}/{shard}.jsonl  trajectories
         manifest      results/rollouts/{policy}/{subset}/{shard}.manifest.json
    """
    input:
        **needs("trajectories"),
        sandbox=sandbox_image,
    output:
        **made("trajectories"),
    log:
        "results/logs/rollout/{policy}/{subset}/{shard}.log",
    benchmark:
        "results/benchmarks/rollout/{policy}/{subset}/{shard}.tsv"
    wildcard_constraints:
        policy=names_matching("policy", "kind", "scripted", "checkpoint", "recorded"),
    priority: 4
    conda:
        "../envs/workflow.yaml"
    threads: rollout_threads
    resources:
        **ask(rollout_job),
        rollouts=rollout_workers,
    params:
        **slices("trajectories"),
    shell:
        r"""
        with_servers
        SWELAB_LOG={log:q} python -m scripts.rollout \
            --tasks {input.tasks:q} \
            --images {input.images:q} \
            --repos-dir results/repos \
            --policy {input.policy:q} \
            --scaffold {input.scaffold:q} \
            --recordings {input.recordings:q} \
            --subset {wildcards.subset:q} \
            --shard {wildcards.shard:q} \
            --progress results/progress/rollout/{wildcards.policy}/{wildcards.subset}/{wildcards.shard}.jsonl \
            --workers {resources.rollouts} \
            --output {output.trajectories:q}
        """


use rule rollout as rollout_hosted with:
    wildcard_constraints:
        policy=names_matching("policy", "kind", "hosted"),
    localrule: FETCH_HERE


rule unpack_trajectories:
    """The trajectories of a published set, one per file. The manifest says why rows were left out.

    in:  recipe    configs/policies/{policy}.yaml
         rows      files that the recipe names
    out: folder    results/recordings/{policy}  trajectories of a published set in rows
         stage     results/recordings/{policy}.manifest.json
         manifest  results/recordings/{policy}.json
    """
    input:
        **needs("recordings"),
    output:
        **made("recordings"),
    log:
        "results/logs/unpack_trajectories/{policy}.log",
    wildcard_constraints:
        policy=names_matching("policy", "kind", "recorded"),
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    params:
        **slices("recordings"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.unpack_trajectories \
            --recipe {input.recipe:q} \
            --downloads results/downloads/datasets \
            --output {output.folder:q} \
            --manifest {output.manifest:q}
        """


rule collect_predictions:
    """Predictions in SWE-bench's format, and the calls, tokens and cost of each trajectory (null if unknown).

    in:  tasks         results/tasks/{subset}.kept.json
         trajectories  results/rollouts/{policy}/{subset}/{shard}.jsonl
    out: predictions   results/rollouts/{policy}/{subset}/preds{sample}.json  predictions in the SWE-bench format
         usage         results/rollouts/{policy}/{subset}/usage{sample}.json  tokens and cost of each trajectory
         manifest      results/rollouts/{policy}/{subset}/preds{sample}.manifest.json
    """
    input:
        **needs("predictions"),
    output:
        **made("predictions"),
    log:
        "results/logs/collect_predictions/{policy}/{subset}{sample}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.collect_predictions \
            --tasks {input.tasks:q} \
            --trajectories {input.trajectories:q} \
            --usage {output.usage:q} \
            --output {output.predictions:q}
        """
