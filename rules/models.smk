"""Base models: trained here, downloaded, or taken from a folder of the user."""


rule make_base_model:
    """A base model in Hugging Face layout: trained here, downloaded, or links to a folder of yours.

    in:  recipe    configs/models/{model}.yaml
         files     files that the recipe names
         repo      results/repos/{repo}.tar
    out: folder    results/models/{model}  base model and tokenizer in Hugging Face layout
         stage     results/models/{model}.manifest.json
         loss      results/models/{model}.loss.jsonl
         manifest  results/models/{model}.json  hash of the weights, hash and size of each file
    """
    input:
        **needs("model"),
    output:
        **made("model"),
    log:
        "results/logs/make_base_model/{model}.log",
    benchmark:
        "results/benchmarks/make_base_model/{model}.tsv"
    wildcard_constraints:
        model=names_matching("model", "source", "drill"),
    # The longest job needs few other jobs first, so it starts early; tasks are made at the same time.
    priority: 6
    conda:
        "../envs/workflow.yaml"
    threads: model_threads
    resources:
        **ask(plain_job(cpus=model_threads, mem_mb=4000, minutes=240)),
    params:
        **slices("model"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.make_base_model \
            --recipe {input.recipe:q} \
            --repo {input.repo:q} \
            --output {output.folder:q} \
            --manifest {output.manifest:q} \
            --loss {output.loss:q}
        """


rule fetch_model:
    """A base model that is downloaded from the Hugging Face hub.

    in:  recipe    configs/models/{model}.yaml
         files     files that the recipe names
         repo      results/repos/{repo}.tar
    out: folder    results/models/{model}  base model and tokenizer in Hugging Face layout
         manifest  results/models/{model}.json  hash of the weights, hash and size of each file
         stage     results/models/{model}.manifest.json
    """
    input:
        **needs("model"),
    output:
        **made("model", "folder", "manifest", "stage"),
    log:
        "results/logs/fetch_model/{model}.log",
    wildcard_constraints:
        model=names_matching("model", "source", "hub"),
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=720)),
    params:
        **slices("model"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.fetch_model \
            --recipe {input.recipe:q} \
            --progress results/progress/fetch_model/{wildcards.model} \
            --output {output.folder:q} \
            --manifest {output.manifest:q}
        """


rule take_model:
    """A base model as links to a folder of yours.

    in:  recipe    configs/models/{model}.yaml
         files     files that the recipe names
         repo      results/repos/{repo}.tar
    out: folder    results/models/{model}  base model and tokenizer in Hugging Face layout
         manifest  results/models/{model}.json  hash of the weights, hash and size of each file
         stage     results/models/{model}.manifest.json
    """
    input:
        **needs("model"),
    output:
        **made("model", "folder", "manifest", "stage"),
    log:
        "results/logs/take_model/{model}.log",
    wildcard_constraints:
        model=names_matching("model", "source", "folder"),
    priority: 100
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        **slices("model"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.take_model \
            --recipe {input.recipe:q} \
            --output {output.folder:q} \
            --manifest {output.manifest:q}
        """


rule convert_model:
    """A base model that is converted from a GGUF file, as llama.cpp and ollama use it.

    in:  recipe    configs/models/{model}.yaml
         files     files that the recipe names
         repo      results/repos/{repo}.tar
    out: folder    results/models/{model}  base model and tokenizer in Hugging Face layout
         manifest  results/models/{model}.json  hash of the weights, hash and size of each file
         stage     results/models/{model}.manifest.json
    """
    input:
        **needs("model"),
    output:
        **made("model", "folder", "manifest", "stage"),
    log:
        "results/logs/convert_model/{model}.log",
    wildcard_constraints:
        model=names_matching("model", "source", "gguf"),
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=4000, minutes=120)),
    params:
        **slices("model"),
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.convert_model \
            --recipe {input.recipe:q} \
            --progress results/progress/convert_model/{wildcards.model} \
            --output {output.folder:q} \
            --manifest {output.manifest:q}
        """
