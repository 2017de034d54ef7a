"""Names, paths and settings for all stages. No rules, no heavy imports."""

import os
import re
import sys
from shlex import quote

from swelab.choices import BACKENDS
from swelab.configs import kinds, recipes
from swelab.configs.experiment import check_keys, load_experiment, parts_of
from swelab.configs.trained_on import rl_recipes, sft_recipes, training_subsets
from swelab.lineage import KINDS, Wildcards, pattern
from swelab.grading import versions
from swelab.jobs import snakemake_records
from swelab.jobs.journal import lock
from swelab.jobs.shards import SHAPES
from swelab.records import Fault, share_with_group
from swelab.scores.verification import other_recipe
from swelab.console.run_display import INTO_LOG, take_over
from swelab.cluster.site import check_site, chosen_experiment, shell_setup, submission
from swelab.cluster.slurm import require_controller

try:
    SETTINGS = recipes.complete(kinds.CONFIG, config, "configs/config.yaml")
    EXPERIMENT = load_experiment(SETTINGS.experiment)
    for kind in recipes.FOLDERS:
        recipes.names(kind)
    if SITE := SETTINGS.site:
        check_site(SITE, EXPERIMENT)
except Fault as fault:
    print(f"error: {fault}", file=sys.stderr)
    sys.exit(2)

if workflow.is_main_process and (said := chosen_experiment(SETTINGS)):
    print(said, file=sys.stderr)
RUN = Wildcards({"experiment": SETTINGS.experiment})
WORKERS = SETTINGS.workers
GRADER = [versions.RUN, versions.GRADER, versions.GATE]
HELD = []

# Jobs run this Python, activated or not. Their sandboxes use this backend and see this toolbox.
# The output of a job goes only to its log; --verbose also prints it.
shell.prefix(
    (
        f"export PATH={quote(os.path.dirname(sys.executable))}:$PATH"
        f" SWELAB_BACKEND={quote(SETTINGS.backend)}"
        f" SWELAB_TOOLBOX={quote(SETTINGS.toolbox)}"
        f" SWELAB_EXECUTOR={SETTINGS.executor} SWELAB_WORKERS={WORKERS}"
        f" SWELAB_IMAGE_PREFIX={quote(SETTINGS.image_prefix)}"
        f" SWELAB_IMAGES_MAY_FAIL={SETTINGS.images_may_fail}; "
        + ("" if workflow.output_settings.verbose else INTO_LOG)
        + shell_setup(SITE)
    )
    .replace("{", "{{")
    .replace("}", "}}")
)
take_over(workflow)
snakemake_records.keep_paid_outputs()
snakemake_records.forget_places()
snakemake_records.compare_values()
snakemake_records.look_behind_ancient_files()
snakemake_records.ask_manifests(other_recipe)
os.environ.update(submission(SITE))


def hold_results():
    """Refuses to start while another run uses results/. However the process ends, its lock ends too."""
    share_with_group("results")
    try:
        HELD.append(lock("results/.lock"))
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


def names_regex(kind):
    """Regular expression that matches the existing recipes."""
    return "|".join(map(re.escape, recipes.names(kind))) or "(?!)"


wildcard_constraints:
    **SHAPES,
    experiment=names_regex("experiment"),
    subset=names_regex("subset"),
    repo=names_regex("repo"),
    policy=names_regex("policy"),
    model=names_regex("model"),
    sft=names_regex("sft"),
    rater=names_regex("rater"),
    rl=names_regex("rl"),
