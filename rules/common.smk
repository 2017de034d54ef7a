"""Names, paths and settings shared by every stage. No rules, no heavy imports."""

import os
import re
import sys
from shlex import quote

from swelab.configs import recipes
from swelab.configs.experiment import check_keys, load_experiment, local_files
from swelab.configs.experiment import policy_files, recordings_path, scaffold_of
from swelab.configs.experiment import selection_slice, tasks_slice, training_slice
from swelab.configs.trained_on import base_manifest, trained, training_subsets
from swelab.grading import versions
from swelab.jobs import workflow_records
from swelab.jobs.journal import lock
from swelab.records import Fault, share_with_group
from swelab.console.run_display import INTO_LOG, take_over
from swelab.cluster.site import check_site, shell_setup, submission

try:
    SETTINGS = recipes.complete("config", config, "configs/config.yaml")
    EXPERIMENT = load_experiment(SETTINGS["experiment"])
    for kind in recipes.FOLDERS:
        recipes.names(kind)
    if SITE := SETTINGS.get("site"):
        check_site(SITE, EXPERIMENT)
except Fault as fault:
    print(f"error: {fault}", file=sys.stderr)
    sys.exit(2)

WORKERS = SETTINGS["workers"]
GRADER = [versions.RUN, versions.GRADER, versions.GATE]
HELD = []

# Jobs run this very Python, activated or not; their sandboxes are of this backend and see this toolbox.
# What a job says goes into its log alone, unless --verbose wants it on the terminal too.
shell.prefix(
    (
        f"export PATH={quote(os.path.dirname(sys.executable))}:$PATH"
        f" SWELAB_BACKEND={quote(SETTINGS['backend'])}"
        f" SWELAB_TOOLBOX={quote(SETTINGS['toolbox'])}"
        f" SWELAB_EXECUTOR={SETTINGS['executor']} SWELAB_WORKERS={WORKERS}"
        f" SWELAB_IMAGE_PREFIX={quote(SETTINGS['image_prefix'])}"
        f" SWELAB_IMAGES_MAY_FAIL={SETTINGS['images_may_fail']}; "
        + ("" if workflow.output_settings.verbose else INTO_LOG)
        + shell_setup(SITE or {})
    )
    .replace("{", "{{")
    .replace("}", "}}")
)
take_over(workflow)
workflow_records.keep_paid_outputs()
workflow_records.forget_places()
workflow_records.look_behind_ancient_files()
os.environ.update(submission(SITE or {}))


def hold_results():
    """Refuses a second run beside this one; the lock ends with the process, however it ends."""
    share_with_group("results")
    try:
        HELD.append(lock("results/.lock"))
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


def either(kind):
    """Regular expression of the recipes that are there."""
    return "|".join(map(re.escape, recipes.names(kind))) or "(?!)"


wildcard_constraints:
    experiment=either("experiment"),
    subset=either("subset"),
    repo=either("repo"),
    policy=either("policy"),
    model=either("model"),
    sft=either("sft"),
    shard=r"\d{3}of\d{3}(s[1-9]\d*)?",
    sample=r"(\.s[1-9]\d*)?",


def settings(kind):
    """Function of the wildcards: their recipe of a kind, checked and complete."""
    return lambda wildcards: recipes.named(kind, getattr(wildcards, kind))


repo_settings = settings("repo")
subset_settings = settings("subset")
policy_settings = settings("policy")
model_settings = settings("model")
sft_settings = settings("sft")


def subset_repos(wildcards):
    """Archives that a subset's tasks are made from; none for a published dataset."""
    names = subset_settings(wildcards).get("repos", [])
    return expand("results/repos/{repo}.tar", repo=names)


def subset_images(wildcards):
    """Record of the images that a published set's tasks run in; tasks that we make run in none."""
    published = subset_settings(wildcards)["source"] == "dataset"
    return f"results/images/{wildcards.subset}.json" if published else []


def sandbox_image(wildcards):
    """Record of the image for tasks without one of their own, where the backend cannot do without."""
    needed = SETTINGS["backend"] in ("docker", "apptainer") and not subset_images(
        wildcards
    )
    return ancient("results/images/sandbox/image.json") if needed else []


def scaffold_path(wildcards):
    """The policy's scaffold; trajectories recorded elsewhere have none."""
    scaffold = policy_settings(wildcards).get("scaffold")
    return ancient(f"configs/scaffolds/{scaffold}.yaml") if scaffold else []


def scaffold_settings(wildcards):
    return scaffold_of(policy_settings(wildcards))


def policy_inputs(wildcards):
    """What stands for a policy's weights or recordings: manifests of what we made, files of one's own."""
    return policy_files(policy_settings(wildcards))


def policy_rows(wildcards):
    """Files of one's own that a recorded policy's rows are in."""
    return local_files(policy_settings(wildcards).get("path"))


def sft_selection(wildcards):
    return selection_slice(sft_settings(wildcards))


def sft_training(wildcards):
    return training_slice(sft_settings(wildcards))


def sft_base(wildcards):
    return base_manifest(sft_settings(wildcards))
