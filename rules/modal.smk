"""Fine-tuning on rented GPUs. A policy uses it by `weights: results/modal/{sft}/checkpoint`."""


rule train_on_modal:
    """The same weights, trained on rented GPUs (docs/modal.md). On request.

    in:  dataset     results/sft/{sft}/dataset.jsonl
         disjoint    results/sft/{sft}/disjoint.json
         base        results/models/{model}.json, results/sft/{sft}/checkpoint.json
         recipe      configs/sft/{sft}.yaml
    out: checkpoint  results/modal/{sft}/checkpoint
         loss        results/modal/{sft}/loss.jsonl
         manifest    results/modal/{sft}/checkpoint.json
    """
    input:
        **needs("modal"),
    output:
        **made("modal"),
    log:
        "results/logs/train_on_modal/{sft}.log",
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=1440)),
    params:
        **slices("modal"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.train_on_modal \
            --dataset {input.dataset:q} \
            --base {input.base:q} \
            --recipe {input.recipe:q} \
            --log results/progress/train_on_modal/{wildcards.sft}.log \
            --output "$(dirname {output.manifest:q})"
        """
