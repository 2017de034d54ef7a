"""swelab: from nothing to results/verified_score.json.

The rule files follow the data: tasks, images, rollouts, grades, SFT, scores. Each opens with its contract.
"""

import os
import time

from snakemake.utils import min_version

min_version("9.0")
# Snakemake needs the user's name; in a container a user may have no name.
os.environ.setdefault("LOGNAME", str(os.getuid()))
# Containers of all jobs of one workflow carry the name of its run.
os.environ.setdefault(
    "SWELAB_RUN", f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"
)


configfile: "configs/config.yaml"


include: "rules/common.smk"
include: "rules/lineage.smk"
include: "rules/jobs.smk"
include: "rules/tasks.smk"
include: "rules/choosing.smk"
include: "rules/exports.smk"
include: "rules/images.smk"
include: "rules/rollouts.smk"
include: "rules/grading.smk"
include: "rules/service.smk"
include: "rules/models.smk"
include: "rules/sft.smk"
include: "rules/training.smk"
include: "rules/rl.smk"
include: "rules/modal.smk"
include: "rules/scores.smk"
include: "rules/targets.smk"


onstart:
    require_keys()
    hold_results()


localrules:
    all,


rule all:
    default_target: True
    input:
        "results/verified_score.json",
        "results/report.html",
