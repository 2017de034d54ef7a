"""Jobs that meet with accidents on a cluster. Each notes its tries in accidents/<rule>.tries."""


configfile: "configs/config.yaml"


include: "rules/common.smk"
include: "rules/lineage.smk"
include: "rules/jobs.smk"


def small_job(wildcards):
    return Job(cpus=1, mem_mb=900, minutes=1)


def gpu_job(wildcards):
    return Job(cpus=1, gpus=1, mem_mb=900, minutes=10)


NOTE = "echo $SLURM_JOB_ID $SLURMD_NODENAME {resources.mem_mb} {resources.runtime} >> accidents/{rule}.tries; "
FIRST = "[ $(wc -l < accidents/{rule}.tries) = 1 ]"


rule accidents:
    default_target: True
    input:
        expand(
            "accidents/{name}",
            name=["fails", "late", "hungry", "moved", "cancelled"],
        ),
    localrule: True


rule fails:
    output:
        "accidents/fails",
    resources:
        **ask(small_job),
    shell:
        NOTE + "echo half > {output}; exit 3"


rule late:
    output:
        "accidents/late",
    resources:
        **ask(small_job),
    shell:
        NOTE + FIRST + " && sleep 300; touch {output}"


rule hungry:
    output:
        "accidents/hungry",
    resources:
        **ask(small_job),
    shell:
        NOTE
        + "python -c 'import time; x = bytearray(900 << 20); time.sleep(4)'; touch {output}"


rule moved:
    output:
        "accidents/moved",
    resources:
        **ask(gpu_job),
    shell:
        NOTE + FIRST + " && sleep 300; echo $CUDA_VISIBLE_DEVICES > {output}"


rule cancelled:
    output:
        "accidents/cancelled",
    resources:
        **ask(small_job),
    shell:
        NOTE + FIRST + " && sleep 300; touch {output}"
