"""Reinforcement learning: a policy learns from the test results of its own attempts."""


# A changed benchmark dates this file, not the weights: training waits for it and does not run because of it.
use rule check_disjoint as check_rl_tasks with:
    input:
        **needs("rewarded_check"),
        heldout=kept_from_rl,
    output:
        **made("rewarded_check"),
    log:
        "results/logs/check_disjoint/rl-{rl}.log",
    localrule: True
    params:
        same_commit=EXPERIMENT.same_commit,


rule train_rl:
    """Weights of a policy after reinforcement learning on its own attempts, and the metrics of each step.

    in:  start            results/sft/{sft}/checkpoint.json, or a folder of weights
         start_files      the files in that folder
         recipe           configs/rl/{rl}.yaml
         scaffold         configs/scaffolds/{scaffold}.yaml
         disjoint         results/rl/{rl}/disjoint.json
         tasks            results/tasks/{subset}.kept.json
         images           results/images/{subset}.json
         witness          results/tasks/{subset}.witness.zip
         judge            configs/policies/{policy}.yaml
         held_out_tasks   results/tasks/{subset}.kept.json
         held_out_images  results/images/{subset}.json
         sandbox          results/images/sandbox/image.json, where the backend needs one
    out: checkpoint       results/rl/{rl}/checkpoint  weights in Hugging Face layout
         stage            results/rl/{rl}/checkpoint.manifest.json
         metrics          results/rl/{rl}/metrics.jsonl  a line for each step
         validation       results/rl/{rl}/validation.jsonl  attempts at tasks that nothing is trained on
         rollouts         results/rl/{rl}/rollouts  a folder for each rollout: its conversation, its patch, how it was sampled
         tensorboard      results/rl/{rl}/tensorboard  the figures of the steps as curves
         manifest         results/rl/{rl}/checkpoint.json  what they are
    """
    input:
        **needs("rewarded"),
        sandbox=rl_sandbox_image,
    output:
        **made("rewarded"),
    log:
        "results/logs/train_rl/{rl}.log",
    benchmark:
        "results/benchmarks/train_rl/{rl}.tsv"
    conda:
        "../envs/workflow.yaml"
    threads: lambda wildcards: rl_job(wildcards).cpus
    resources:
        **ask(rl_job),
    params:
        **slices("rewarded"),
    shell:
        r"""
        with_servers
        in_training
        SWELAB_LOG={log:q} python -m scripts.train_rl \
            --start {input.start:q} \
            --tasks {input.tasks:q} \
            --images {input.images:q} \
            --witness {input.witness:q} \
            --held-out-tasks {input.held_out_tasks:q} \
            --held-out-images {input.held_out_images:q} \
            --repos-dir results/repos \
            --recipe {input.recipe:q} \
            --progress results/progress/train_rl/{wildcards.rl} \
            --checkpoint {output.checkpoint:q} \
            --manifest {output.manifest:q}
        """
