"""Subsets that are chosen by a policy's success rate on each task."""


rule choose_tasks:
    """The tasks whose success rate is in the recipe's range. The manifest says why others are not chosen.

    in:  recipe     configs/subsets/{subset}.yaml
         repos      results/repos/{repo}.tar
         rows       files that the recipe names
         exclude    results/tasks/{subset}.json of the sets that the recipe excludes
         ratings    results/difficulty/{rater}/{subset}.jsonl that the recipe names
         attempted  results/tasks/{subset}.kept.json of the set that policies attempted
         grades     results/grades/{policy}/{subset}/{shard}.jsonl of those attempts
    out: tasks      results/tasks/{subset}.json  tasks whose pass rate is within the bounds
         manifest   results/tasks/{subset}.manifest.json
    """
    input:
        **needs("tasks"),
    output:
        **made("tasks"),
    log:
        "results/logs/choose_tasks/{subset}.log",
    wildcard_constraints:
        subset=names_matching("subset", "source", "attempted"),
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        **slices("tasks"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.choose_tasks \
            --recipe {input.recipe:q} \
            --attempted {input.attempted:q} \
            --grades {input.grades:q} \
            --output {output.tasks:q} \
            --manifest {output.manifest:q}
        """


rule lock_chosen_tasks:
    """The lock of tasks that were chosen from a validated subset, taken from that subset's lock.

    in:  tasks      results/tasks/{subset}.json
         recipe     configs/subsets/{subset}.yaml
         repos      results/repos/{repo}.tar
         images     results/images/{subset}.json
         validated  results/tasks/{subset}.lock.json and .witness.zip of the set that this one is a part of
    out: lock       results/tasks/{subset}.lock.json  their entries in the validated subset's lock
         kept       results/tasks/{subset}.kept.json  the same tasks, for policies and graders
         witness    results/tasks/{subset}.witness.zip
         manifest   results/tasks/{subset}.lock.manifest.json
    """
    input:
        **needs("lock"),
    output:
        **made("lock"),
    log:
        "results/logs/lock_chosen_tasks/{subset}.log",
    wildcard_constraints:
        subset=names_matching("subset", "source", "attempted"),
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        **slices("lock"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.lock_chosen_tasks \
            --tasks {input.tasks:q} \
            --validated {input.validated:q} \
            --output {output.lock:q} \
            --kept {output.kept:q} \
            --witness {output.witness:q}
        """


ruleorder: lock_chosen_tasks > validate_training_tasks > validate_tasks
