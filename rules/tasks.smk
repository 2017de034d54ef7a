"""Repositories, and the tasks that are made in them."""

MADE_HERE = ("forge", "drill", "kodcode")


rule build_repo:
    """A clean checkout of a repository as a deterministic tar, and its manifest.

    in:  recipe    configs/repos/{repo}.yaml
         rows      files that the recipe names
    out: archive   results/repos/{repo}.tar  a clean checkout, deterministic
         manifest  results/repos/{repo}.json
    """
    input:
        **needs("repo"),
    output:
        **made("repo"),
    log:
        "results/logs/build_repo/{repo}.log",
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job()),
    params:
        **slices("repo"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.build_repo \
            --recipe {input.recipe:q} \
            --cache results/downloads \
            --output {output.archive:q} \
            --manifest {output.manifest:q}
        """


rule make_tasks:
    """The `task` rows of a subset (SWE-smith's schema). The manifest counts dropped rows by reason.

    in:  recipe     configs/subsets/{subset}.yaml
         repos      results/repos/{repo}.tar
         rows       files that the recipe names
         exclude    results/tasks/{subset}.json of the sets that the recipe excludes
         ratings    results/difficulty/{rater}/{subset}.jsonl that the recipe names
         attempted  results/tasks/{subset}.kept.json of the set that policies attempted
         grades     results/grades/{policy}/{subset}/{shard}.jsonl of those attempts
         sandbox    results/images/sandbox/image.json, where the backend needs one
    out: tasks      results/tasks/{subset}.json  task rows in SWE-smith's schema
         manifest   results/tasks/{subset}.manifest.json
    """
    input:
        **needs("tasks"),
        sandbox=sandbox_image,
    output:
        **made("tasks"),
    log:
        "results/logs/make_tasks/{subset}.log",
    benchmark:
        "results/benchmarks/make_tasks/{subset}.tsv"
    wildcard_constraints:
        subset=names_matching("subset", "source", *MADE_HERE),
    priority: 1
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    resources:
        **ask(plain_job(cpus=WORKERS, **SANDBOXES)),
    params:
        **slices("tasks"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.make_tasks \
            --recipe {input.recipe:q} \
            --repos-dir results/repos \
            --exclude {input.exclude:q} \
            --ratings {input.ratings:q} \
            --progress results/progress/make_tasks/{wildcards.subset}.jsonl \
            --workers {resources.cpus_per_task} \
            --output {output.tasks:q} \
            --manifest {output.manifest:q}
        """


# Tasks for training come first. Tasks for scores are made and validated while the model trains.
use rule make_tasks as make_training_tasks with:
    wildcard_constraints:
        subset=matching(
            sorted(
                {*training_subsets(EXPERIMENT)}
                & {*recipes.names_with("subset", "source", MADE_HERE)}
            )
        ),
    priority: 2


ruleorder: make_training_tasks > make_tasks


use rule make_tasks as fetch_tasks with:
    wildcard_constraints:
        subset=names_matching("subset", "source", "dataset", "harbor"),
    localrule: FETCH_HERE


rule validate_tasks:
    """The tasks that passed validation, the reasons for all others, and the witness questions with values.

    in:  tasks      results/tasks/{subset}.json
         recipe     configs/subsets/{subset}.yaml
         repos      results/repos/{repo}.tar
         images     results/images/{subset}.json
         validated  results/tasks/{subset}.lock.json and .witness.zip of the set that this one is a part of
         sandbox    results/images/sandbox/image.json, where the backend needs one
    out: lock       results/tasks/{subset}.lock.json  which of them passed validation, and why others did not
         kept       results/tasks/{subset}.kept.json  those that passed: what policies attempt and graders judge
         witness    results/tasks/{subset}.witness.zip
         manifest   results/tasks/{subset}.lock.manifest.json
    """
    input:
        **needs("lock"),
        sandbox=sandbox_image,
    output:
        **made("lock"),
    log:
        "results/logs/validate_tasks/{subset}.log",
    benchmark:
        "results/benchmarks/validate_tasks/{subset}.tsv"
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    resources:
        **ask(plain_job(cpus=WORKERS, **SANDBOXES)),
    params:
        **slices("lock"),
        grader=GRADER,
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.validate_tasks \
            --tasks {input.tasks:q} \
            --recipe {input.recipe:q} \
            --images {input.images:q} \
            --repos-dir results/repos \
            --runs results/progress/runs \
            --progress results/progress/validate_tasks/{wildcards.subset}.jsonl \
            --workers {resources.cpus_per_task} \
            --output {output.lock:q} \
            --kept {output.kept:q} \
            --witness {output.witness:q}
        """


use rule validate_tasks as validate_training_tasks with:
    wildcard_constraints:
        subset=matching(training_subsets(EXPERIMENT)),
    priority: 3


ruleorder: validate_training_tasks > validate_tasks


rule check_disjoint:
    """Proof that no scored instance, bug, function or starting commit is in the training data.

    in:  train     results/tasks/{subset}.json
         heldout   results/tasks/{subset}.json
    out: verdict   results/disjoint/{experiment}.json  proof that nothing scored was trained on
         manifest  results/disjoint/{experiment}.manifest.json
    """
    input:
        **needs("disjoint"),
    output:
        **made("disjoint"),
    log:
        "results/logs/check_disjoint/{experiment}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        **slices("disjoint"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.check_disjoint \
            --train {input.train:q} \
            --heldout {input.heldout:q} \
            --same-commit {params.same_commit} \
            --output {output.verdict:q}
        """
