"""Steps before a training: pairs for preference learning, and checks."""


ruleorder: build_sft_pairs > build_sft_dataset


rule build_sft_pairs:
    """Pairs for DPO: a resolved and an unresolved conversation about the same task.

    in:  trajectories  results/rollouts/{policy}/{subset}/{shard}.jsonl
         grades        results/grades/{policy}/{subset}/{shard}.jsonl
         base          results/models/{model}.json, results/sft/{sft}/checkpoint.json
         recipe        configs/sft/{sft}.yaml
    out: dataset       results/sft/{sft}/dataset.jsonl  for DPO: pairs of a resolved and an unresolved trajectory of one task
         lengths       results/sft/{sft}/dataset.lengths.tsv
         stats         results/sft/{sft}/dataset.stats.json
         manifest      results/sft/{sft}/dataset.manifest.json
    """
    input:
        **needs("dataset"),
    output:
        **made("dataset"),
    log:
        "results/logs/build_sft_pairs/{sft}.log",
    wildcard_constraints:
        sft=names_matching("sft", "recipe", "full_dpo_distributed"),
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=4000, minutes=240)),
    params:
        **slices("dataset"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.build_sft_pairs \
            --trajectories {input.trajectories:q} \
            --grades {input.grades:q} \
            --base {input.base:q} \
            --recipe {input.recipe:q} \
            --dataset {output.dataset:q} \
            --manifest {output.manifest:q} \
            --lengths {output.lengths:q} \
            --stats {output.stats:q}
        """


rule preflight:
    """The estimated memory and disk space of a training, and the lengths of its rows. Written only if the check finds no error.

    in:  dataset  results/sft/{sft}/dataset.jsonl
         stats    results/sft/{sft}/dataset.stats.json
         base     results/models/{model}.json, results/sft/{sft}/checkpoint.json
         recipe   configs/sft/{sft}.yaml
    out: report   results/sft/{sft}/preflight.json  the estimate of memory and disk and the lengths of all rows, when nothing was found at fault
    """
    input:
        **needs("preflight"),
    output:
        **made("preflight"),
    log:
        "results/logs/preflight/{sft}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job()),
    params:
        **slices("preflight"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.preflight \
            --recipe {input.recipe:q} \
            --base {input.base:q} \
            --dataset {input.dataset:q} \
            --stats {input.stats:q} \
            --progress results/progress/train_sft/{wildcards.sft} \
            --report {output.report:q}
        """


# A changed benchmark updates this file, not the dataset. Training waits for this file, but does not rerun because of it.
use rule check_disjoint as check_training with:
    input:
        **needs("training_check"),
        heldout=scored_by_this_run,
    output:
        **made("training_check"),
    log:
        "results/logs/check_disjoint/sft-{sft}.log",
    localrule: True
    params:
        same_commit=EXPERIMENT.same_commit,
