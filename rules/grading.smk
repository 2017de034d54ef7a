"""Grading: each prediction is tested by its task's tests in a fresh sandbox.

A policy's further samples are {shard}s1.jsonl, report.s1.json and so on.
"""


rule grade:
    """A shard of `grade` rows: the status of each prediction, and the results of its tests.

    in:  tasks         results/tasks/{subset}.kept.json
         witness       results/tasks/{subset}.witness.zip
         images        results/images/{subset}.json
         trajectories  results/rollouts/{policy}/{subset}/{shard}.jsonl
         policy        configs/policies/{policy}.yaml
         service       results/grades/{policy}/{subset}/service{sample}.json
         sandbox       results/images/sandbox/image.json, where the backend needs one
    out: grades        results/grades/{policy}/{subset}/{shard}.jsonl  a verdict per instance
         manifest      results/grades/{policy}/{subset}/{shard}.manifest.json
    """
    input:
        **needs("grades"),
        sandbox=sandbox_image,
    output:
        **made("grades"),
    log:
        "results/logs/grade/{policy}/{subset}/{shard}.log",
    benchmark:
        "results/benchmarks/grade/{policy}/{subset}/{shard}.tsv"
    priority: 5
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    resources:
        **ask(plain_job(cpus=WORKERS, **SANDBOXES)),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.grade \
            --tasks {input.tasks:q} \
            --trajectories {input.trajectories:q} \
            --images {input.images:q} \
            --service {input.service:q} \
            --witness {input.witness:q} \
            --repos-dir results/repos \
            --runs results/progress/runs \
            --policy {wildcards.policy:q} \
            --recipe {input.policy:q} \
            --subset {wildcards.subset:q} \
            --shard {wildcards.shard:q} \
            --progress results/progress/grade/{wildcards.policy}/{wildcards.subset}/{wildcards.shard}.jsonl \
            --workers {resources.cpus_per_task} \
            --output {output.grades:q}
        """


rule report_grades:
    """SWE-bench's report (schema 2) with additional fields and the figures of the validation.

    in:  tasks     results/tasks/{subset}.kept.json
         lock      results/tasks/{subset}.lock.json
         grades    results/grades/{policy}/{subset}/{shard}.jsonl
    out: report    results/grades/{policy}/{subset}/report{sample}.json  in SWE-bench's report schema
         manifest  results/grades/{policy}/{subset}/report{sample}.manifest.json
    """
    input:
        **needs("report"),
    output:
        **made("report"),
    log:
        "results/logs/report_grades/{policy}/{subset}{sample}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.report_grades \
            --tasks {input.tasks:q} \
            --lock {input.lock:q} \
            --grades {input.grades:q} \
            --policy {wildcards.policy:q} \
            --subset {wildcards.subset:q} \
            --output {output.report:q}
        """


rule regrade:
    """New verdicts on stored test runs, and the verdicts that changed. On request.

    in:  tasks        results/tasks/{subset}.kept.json
         witness      results/tasks/{subset}.witness.zip
         images       results/images/{subset}.json
         predictions  results/rollouts/{policy}/{subset}/preds{sample}.json
         grades       results/grades/{policy}/{subset}/{shard}.jsonl
    out: regrades     results/regrades/{policy}/{subset}{sample}.json  kept runs judged again; nothing is executed
    """
    input:
        **needs("regrades"),
    output:
        **made("regrades"),
    log:
        "results/logs/regrade/{policy}/{subset}{sample}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.regrade \
            --tasks {input.tasks:q} \
            --predictions {input.predictions:q} \
            --grades {input.grades:q} \
            --images {input.images:q} \
            --witness {input.witness:q} \
            --repos-dir results/repos \
            --runs results/progress/runs \
            --output {output.regrades:q}
        """


rule check_cheats:
    """Verdicts on every cheat, forgery, honest fix and gold patch. On request.

    in:  tasks     results/tasks/{subset}.kept.json
         sandbox   results/images/sandbox/image.json, where the backend needs one
    out: verdicts  results/cheats/{subset}.json  the grader tried with cheats
    """
    input:
        **needs("cheats"),
        sandbox=sandbox_image,
    output:
        **made("cheats"),
    log:
        "results/logs/check_cheats/{subset}.log",
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    resources:
        **ask(plain_job(cpus=WORKERS, **SANDBOXES)),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.check_cheats \
            --tasks {input.tasks:q} \
            --repos-dir results/repos \
            --workers {resources.cpus_per_task} \
            --output {output.verdicts:q}
        """
