"""Fine-tuning: a dataset of the expert's resolved trajectories, and the fine-tuned checkpoint."""


rule build_sft_dataset:
    """Training rows, the trajectories that each gate dropped, and token counts of conversations and rows.

    in:  trajectories  results/rollouts/{policy}/{subset}/{shard}.jsonl
         grades        results/grades/{policy}/{subset}/{shard}.jsonl
         base          results/models/{model}.json, results/sft/{sft}/checkpoint.json
         recipe        configs/sft/{sft}.yaml
    out: dataset       results/sft/{sft}/dataset.jsonl  messages of resolved trajectories only
         lengths       results/sft/{sft}/dataset.lengths.tsv
         stats         results/sft/{sft}/dataset.stats.json
         manifest      results/sft/{sft}/dataset.manifest.json
    """
    input:
        **needs("dataset"),
    output:
        **made("dataset"),
    log:
        "results/logs/build_sft_dataset/{sft}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=4000, minutes=240)),
    params:
        **slices("dataset"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.build_sft_dataset \
            --trajectories {input.trajectories:q} \
            --grades {input.grades:q} \
            --base {input.base:q} \
            --recipe {input.recipe:q} \
            --dataset {output.dataset:q} \
            --manifest {output.manifest:q} \
            --lengths {output.lengths:q} \
            --stats {output.stats:q}
        """


rule train_sft:
    """Fine-tuned weights in Hugging Face layout; loss, speed and memory of each step (docs/trainers.md).

    in:  dataset      results/sft/{sft}/dataset.jsonl
         disjoint     results/sft/{sft}/disjoint.json
         preflight    results/sft/{sft}/preflight.json
         base         results/models/{model}.json, results/sft/{sft}/checkpoint.json
         recipe       configs/sft/{sft}.yaml
    out: checkpoint   results/sft/{sft}/checkpoint  fine-tuned weights in Hugging Face layout
         stage        results/sft/{sft}/checkpoint.manifest.json
         loss         results/sft/{sft}/loss.jsonl
         metrics      results/sft/{sft}/metrics.tsv
         plot         results/sft/{sft}/training.svg
         tensorboard  results/sft/{sft}/tensorboard
         manifest     results/sft/{sft}/checkpoint.json
    """
    input:
        **needs("checkpoint"),
    output:
        **made("checkpoint"),
    log:
        "results/logs/train_sft/{sft}.log",
    benchmark:
        "results/benchmarks/train_sft/{sft}.tsv"
    # Training starts early; held-out tasks and the base model's rollouts run at the same time.
    priority: 6
    conda:
        "../envs/workflow.yaml"
    threads: lambda wildcards: sft_settings(wildcards).train.threads
    resources:
        **ask(sft_job),
    params:
        **slices("checkpoint"),
    shell:
        r"""
        in_training
        SWELAB_LOG={log:q} python -m scripts.train_sft \
            --dataset {input.dataset:q} \
            --base {input.base:q} \
            --recipe {input.recipe:q} \
            --preflight {input.preflight:q} \
            --progress results/progress/train_sft/{wildcards.sft} \
            --checkpoint {output.checkpoint:q} \
            --manifest {output.manifest:q} \
            --loss {output.loss:q} \
            --metrics {output.metrics:q}
        """
