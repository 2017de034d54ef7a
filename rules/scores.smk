"""Resolve rates with intervals, the paired comparison, and the page a person reads.

in:  results/grades/{policy}/{subset}/report.json and results/rollouts/{policy}/{subset}/usage.json of every
     sample of every policy on every benchmark
out: results/scores/{policy}/{subset}.json   one policy on one benchmark
     results/verified_score.json             the experiment's result and the manifest behind it
     results/report.html                     the same as one self-contained page
"""


rule score:
    input:
        tasks="results/tasks/{subset}.json",
        lock="results/tasks/{subset}.lock.json",
        reports=samples("results/grades/{policy}/{subset}/report{sample}.json"),
        usage=samples("results/rollouts/{policy}/{subset}/usage{sample}.json"),
    output:
        score="results/scores/{policy}/{subset}.json",
        manifest="results/scores/{policy}/{subset}.manifest.json",
    log:
        "results/logs/score/{policy}/{subset}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.score \
            --tasks {input.tasks:q} \
            --lock {input.lock:q} \
            --report {input.reports:q} \
            --usage {input.usage:q} \
            --policy {wildcards.policy:q} \
            --subset {wildcards.subset:q} \
            --output {output.score:q}
        """


rule score_experiment:
    input:
        scores=expand(
            "results/scores/{policy}/{subset}.json", subset=BENCHMARKS, policy=POLICIES
        ),
        disjoint=f"results/disjoint/{EXPERIMENT['name']}.json",
        expert=expert_reports,
        checkpoint=f"results/sft/{EXPERIMENT['sft']}/checkpoint.json",
    output:
        score="results/verified_score.json",
    log:
        "results/logs/score_experiment/all.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        experiment=EXPERIMENT["name"],
        names=EXPERIMENT,
        compare=EXPERIMENT["compare"],
        benchmark=BENCHMARKS[0],
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.score_experiment \
            --experiment {params.experiment:q} \
            --compare {params.compare:q} \
            --benchmark {params.benchmark:q} \
            --scores {input.scores:q} \
            --also {input.disjoint:q} {input.checkpoint:q} {input.expert:q} \
            --output {output.score:q}
        """


rule report:
    input:
        score="results/verified_score.json",
    output:
        page="results/report.html",
    log:
        "results/logs/report/all.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    params:
        experiment=EXPERIMENT["name"],
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.report \
            --experiment {params.experiment:q} \
            --score {input.score:q} \
            --output {output.page:q}
        """
