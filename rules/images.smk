"""The images of tasks: resolved to digests, pulled in advance, and searched for leaked answers."""


rule pull_images:
    """Digest, location and leaks of each image that tasks use, and the reason for each image that failed.

    Unpacked images are in results/images/{layers,roots}/ for all subsets. A Docker engine stores its own.

    in:  tasks     results/tasks/{subset}.json
    out: images    results/images/{subset}.json
         manifest  results/images/{subset}.manifest.json
    """
    input:
        **needs("images"),
    output:
        **made("images"),
    log:
        "results/logs/pull_images/{subset}.log",
    benchmark:
        "results/benchmarks/pull_images/{subset}.tsv"
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    threads: WORKERS
    resources:
        **ask(plain_job(cpus=WORKERS, mem_mb=8000, minutes=1440)),
        pulls=SETTINGS.images_at_once,
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.pull_images \
            --tasks {input.tasks:q} \
            --store results/images \
            --prefix="$SWELAB_IMAGE_PREFIX" \
            --may-fail "$SWELAB_IMAGES_MAY_FAIL" \
            --progress results/progress/pull_images/{wildcards.subset}.jsonl \
            --workers {resources.pulls} \
            --output {output.images:q}
        """


rule build_sandbox_image:
    """The image for tasks without their own image: digest and packages, an archive, and a folder.

    in:  pins     envs/sandbox.txt
    out: record   results/images/sandbox/image.json
         archive  results/images/sandbox/root.tar
         root     results/images/sandbox/root
    """
    input:
        **needs("sandbox_image"),
    output:
        **made("sandbox_image"),
    log:
        "results/logs/build_sandbox_image/sandbox.log",
    localrule: FETCH_HERE
    conda:
        "../envs/workflow.yaml"
    resources:
        **ask(plain_job(mem_mb=2000, minutes=240)),
    params:
        toolbox=SETTINGS.toolbox,
    shell:
        r"""
        SWELAB_LOG={log:q} python -m scripts.build_sandbox_image \
            --toolbox {params.toolbox:q} \
            --output "$(dirname {output.record:q})"
        """
