"""A subset in other programs' formats, and the difficulty of its tasks. Made only on request."""


rule export_tasks:
    """Instance and image names, rows for harnesses, prompts for RL trainers (docs/subsets.md). On request.

    in:  tasks       results/tasks/{subset}.json
         recipe      configs/subsets/{subset}.yaml
    out: ids         results/exports/{subset}/instance_ids.txt
         images      results/exports/{subset}/docker_images.txt
         evaluation  results/exports/{subset}/evaluation.jsonl
         gold        results/exports/{subset}/gold.jsonl
         slime       results/exports/{subset}/slime.jsonl
         miles       results/exports/{subset}/miles.jsonl
         manifest    results/exports/{subset}/manifest.json
    """
    input:
        **needs("exports"),
    output:
        **made("exports"),
    log:
        "results/logs/export_tasks/{subset}.log",
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    params:
        images=pulled_images,
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.export_tasks \
            --tasks {input.tasks:q} \
            --images {params.images} \
            --recipe {input.recipe:q} \
            --output "$(dirname {output.manifest:q})" \
            --manifest {output.manifest:q}
        """


rule rate_difficulty:
    """A rater's `difficulty` of each task, or the reason why there is none. On request.

    in:  weights   manifests of the weights of the rater's policy
         rater     configs/raters/{rater}.yaml
         policy    configs/policies/{policy}.yaml
         tasks     results/tasks/{subset}.json
    out: ratings   results/difficulty/{rater}/{subset}.jsonl  a rating of each task, or why there is none
         manifest  results/difficulty/{rater}/{subset}.manifest.json
    """
    input:
        **needs("difficulty"),
    output:
        **made("difficulty"),
    log:
        "results/logs/rate_difficulty/{rater}/{subset}.log",
    wildcard_constraints:
        rater=raters_of("checkpoint", "scripted", "recorded"),
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(rater_job),
        rollouts=lambda wildcards: servers_at_once(rater_policy(wildcards)),
    params:
        **slices("difficulty"),
    shell:
        r"""
        with_servers
        SWELAB_LOG={log:q} python -m scripts.rate_difficulty \
            --tasks {input.tasks:q} \
            --rater {input.rater:q} \
            --policy {input.policy:q} \
            --progress results/progress/rate_difficulty/{wildcards.rater}/{wildcards.subset}.jsonl \
            --workers {resources.rollouts} \
            --output {output.ratings:q} \
            --manifest {output.manifest:q}
        """


use rule rate_difficulty as rate_difficulty_hosted with:
    wildcard_constraints:
        rater=raters_of("hosted"),
    localrule: FETCH_HERE
