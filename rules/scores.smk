"""Resolve rates with intervals, paired comparisons, and the HTML page."""


rule score:
    """A policy's resolve rate with its interval, runs, pass@k, repositories and costs (docs/scores.md).

    in:  tasks     results/tasks/{subset}.kept.json
         reports   results/grades/{policy}/{subset}/report{sample}.json
         usage     results/rollouts/{policy}/{subset}/usage{sample}.json
    out: score     results/scores/{policy}/{subset}.json  one policy on one benchmark
         table     results/scores/{policy}/{subset}.csv  a line for each attempt
         manifest  results/scores/{policy}/{subset}.manifest.json
    """
    input:
        **needs("score"),
    output:
        **made("score"),
    log:
        "results/logs/score/{policy}/{subset}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.score \
            --tasks {input.tasks:q} \
            --report {input.reports:q} \
            --usage {input.usage:q} \
            --policy {wildcards.policy:q} \
            --subset {wildcards.subset:q} \
            --output {output.score:q} \
            --table {output.table:q}
        """


rule score_experiment:
    """An experiment's result, with the manifest of all files on which it depends.

    in:  expert       results/grades/{policy}/{subset}/report{sample}.json,
                      results/rollouts/{policy}/{subset}/preds{sample}.json
         disjoint     results/disjoint/{experiment}.json
         scores       results/scores/{policy}/{subset}.json
         checkpoints  results/sft/{sft}/checkpoint.json
    out: score        results/experiments/{experiment}/verified_score.json  an experiment's result and the manifest behind it
    """
    input:
        **needs("verified_score"),
    output:
        **made("verified_score"),
    log:
        "results/logs/score_experiment/{experiment}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        names=at(lambda names: load_experiment(names.names["experiment"]).plain()),
        compare=at(lambda names: names.recipe(kinds.EXPERIMENT).compare),
        benchmark=at(lambda names: names.recipe(kinds.EXPERIMENT).benchmarks[0]),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.score_experiment \
            --experiment {wildcards.experiment:q} \
            --compare {params.compare:q} \
            --benchmark {params.benchmark:q} \
            --scores {input.scores:q} \
            --also {input.disjoint:q} {input.checkpoints:q} {input.expert:q} \
            --output {output.score:q}
        """


rule report:
    """The result as one self-contained HTML page.

    in:  score  results/experiments/{experiment}/verified_score.json
    out: page   results/experiments/{experiment}/report.html  the same as one self-contained page
    """
    input:
        **needs("page"),
    output:
        **made("page"),
    log:
        "results/logs/report/{experiment}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.report \
            --experiment {wildcards.experiment:q} \
            --score {input.score:q} \
            --output {output.page:q}
        """


rule copy_result:
    """A copy of the last experiment's result. `manifest.experiment` of the score names the experiment.

    in:  made       results/experiments/{experiment}/verified_score.json
    out: published  results/verified_score.json  results/report.html       copies of those of the experiment that is run
    """
    input:
        made=RUN.path("verified_score"),
    output:
        **made("published"),
    log:
        "results/logs/copy_result/score.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.copy_result --file {input.made:q} --output {output.published:q}
        """


use rule copy_result as copy_page with:
    input:
        made=RUN.path("page"),
    output:
        **made("published_page"),
    log:
        "results/logs/copy_result/page.log",
    localrule: True
