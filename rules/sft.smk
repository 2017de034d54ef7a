"""The expert's resolved trajectories as a dataset; the fine-tuned checkpoint.

in:  results/models/{model}.json, configs/sft/{sft}.yaml, the expert's rollouts and grades
out: results/sft/{sft}/dataset.jsonl        messages of resolved trajectories only
     results/sft/{sft}/checkpoint/          fine-tuned weights in Hugging Face layout
"""


rule build_sft_dataset:
    input:
        trajectories=training_shards("results/rollouts/{policy}/{subset}/{shard}.jsonl"),
        grades=training_shards("results/grades/{policy}/{subset}/{shard}.jsonl"),
        base=sft_base,
        recipe=ancient("configs/sft/{sft}.yaml"),
    output:
        dataset="results/sft/{sft}/dataset.jsonl",
        manifest="results/sft/{sft}/dataset.manifest.json",
        lengths="results/sft/{sft}/dataset.lengths.tsv",
        stats="results/sft/{sft}/dataset.stats.json",
    log:
        "results/logs/build_sft_dataset/{sft}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=4000, minutes=240)),
    params:
        selection=sft_selection,
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
    input:
        dataset="results/sft/{sft}/dataset.jsonl",
        disjoint=ancient("results/sft/{sft}/disjoint.json"),
        preflight="results/sft/{sft}/preflight.json",
        base=sft_base,
        recipe=ancient("configs/sft/{sft}.yaml"),
    output:
        checkpoint=update(directory("results/sft/{sft}/checkpoint")),
        manifest=update("results/sft/{sft}/checkpoint.json"),
        stage=update("results/sft/{sft}/checkpoint.manifest.json"),
        loss=update("results/sft/{sft}/loss.jsonl"),
        metrics=update("results/sft/{sft}/metrics.tsv"),
        plot=update("results/sft/{sft}/training.svg"),
        tensorboard=update(directory("results/sft/{sft}/tensorboard")),
    log:
        "results/logs/train_sft/{sft}.log",
    benchmark:
        "results/benchmarks/train_sft/{sft}.tsv"
    # The held-out tasks and the base model's rollouts that are left run at the same time.
    priority: 2
    conda:
        "../envs/workflow.yaml"
    threads: lambda wildcards: sft_settings(wildcards)["train"]["threads"]
    resources:
        **ask(sft_job),
    params:
        training=sft_training,
    shell:
        r"""
        in_training
        SWELAB_LOG={log:q} python -m scripts.train_sft \
            --dataset {input.dataset:q} \
            --base {input.base:q} \
            --recipe {input.recipe:q} \
            --progress results/progress/train_sft/{wildcards.sft} \
            --checkpoint {output.checkpoint:q} \
            --manifest {output.manifest:q} \
            --loss {output.loss:q} \
            --metrics {output.metrics:q}
        """
