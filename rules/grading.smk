"""Each prediction against its task's tests, in a fresh sandbox.

in:  results/tasks/{subset}.json, results/rollouts/{policy}/{subset}/preds.json
out: results/grades/{policy}/{subset}/{shard}.jsonl   a verdict per instance
     results/grades/{policy}/{subset}/report.json     in SWE-bench's report schema
"""


rule grade:
    input:
        tasks="results/tasks/{subset}.json",
        predictions="results/rollouts/{policy}/{subset}/preds.json",
        sandbox=sandbox_image,
    output:
        grades="results/grades/{policy}/{subset}/{shard}.jsonl",
    log:
        "results/logs/grade/{policy}/{subset}/{shard}.log",
    benchmark:
        "results/benchmarks/grade/{policy}/{subset}/{shard}.tsv"
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.grade \
            --tasks {input.tasks:q} \
            --predictions {input.predictions:q} \
            --repos-dir results/repos \
            --policy {wildcards.policy:q} \
            --subset {wildcards.subset:q} \
            --shard {wildcards.shard:q} \
            --progress results/progress/grade/{wildcards.policy}/{wildcards.subset}/{wildcards.shard}.jsonl \
            --workers {threads} \
            --output {output.grades:q}
        """


rule report_grades:
    input:
        tasks="results/tasks/{subset}.json",
        grades=shards("results/grades/{policy}/{subset}/{shard}.jsonl"),
    output:
        report="results/grades/{policy}/{subset}/report.json",
    log:
        "results/logs/report_grades/{policy}/{subset}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.report_grades \
            --tasks {input.tasks:q} \
            --grades {input.grades:q} \
            --policy {wildcards.policy:q} \
            --subset {wildcards.subset:q} \
            --output {output.report:q}
        """
