"""A benchmark that SWE-bench's service grades, not this machine (`scorer: sb-cli` in its recipe).

A policy's further samples are service.s1.json and so on.
"""


rule submit_predictions:
    """A run at SWE-bench's service, if the service grades the subset: its verdicts and its unchanged report.

    in:  tasks        results/tasks/{subset}.kept.json
         predictions  results/rollouts/{policy}/{subset}/preds{sample}.json
         recipe       configs/subsets/{subset}.yaml
    out: run          results/grades/{policy}/{subset}/service{sample}.json  the run at the service: its verdicts, and its report as it came
         manifest     results/grades/{policy}/{subset}/service{sample}.manifest.json
    """
    input:
        **needs("service"),
    output:
        **made("service"),
    log:
        "results/logs/submit_predictions/{policy}/{subset}{sample}.log",
    wildcard_constraints:
        subset=names_matching("subset", "scorer", "sb-cli"),
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=480)),
    params:
        **slices("service"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.submit_predictions \
            --tasks {input.tasks:q} \
            --predictions {input.predictions:q} \
            --recipe {input.recipe:q} \
            --policy {wildcards.policy:q} \
            --progress results/progress/submit_predictions/{wildcards.policy}/{wildcards.subset}{wildcards.sample} \
            --output {output.run:q}
        """
