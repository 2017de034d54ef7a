"""What published subsets are made from and rated by. No rules.

in:  `exclude` and `ratings` of configs/subsets, `policy` of configs/raters
"""

rater_settings = settings("rater")


wildcard_constraints:
    rater=either("rater"),


def subset_excluded(wildcards):
    """Subsets whose tasks no row of a published set may share."""
    names = subset_settings(wildcards).get("exclude", [])
    return expand("results/tasks/{subset}.json", subset=names)


def subset_rows(wildcards):
    """Files of one's own that a subset's rows are in."""
    return local_files(subset_settings(wildcards).get("path"))


def subset_ratings(wildcards):
    """Difficulties that a published set's rows are kept by, if they are."""
    rated = subset_settings(wildcards).get("ratings", {})
    made = "results/difficulty/{rater}/{subset}.jsonl"
    return rated.get("path") or (made.format(**rated) if rated else [])


def pulled_images(wildcards):
    """Record of a subset's images where they were pulled: an export tells their digests then."""
    path = f"results/images/{wildcards.subset}.json"
    return path if os.path.exists(path) else ""


def raters_of(*kinds):
    """Regular expression of the raters whose policy is of one of these kinds."""
    names = recipes.names_with(
        "rater", "policy", recipes.names_with("policy", "kind", kinds)
    )
    return "|".join(names) or "(?!)"


def rater_policy(wildcards):
    """The policy that rates."""
    return recipes.named("policy", rater_settings(wildcards)["policy"])


def rater_policy_path(wildcards):
    return ancient(f"configs/policies/{rater_settings(wildcards)['policy']}.yaml")


def rater_weights(wildcards):
    """Manifests or files of the weights that a rater is served from."""
    return policy_files(rater_policy(wildcards))


def rater_workers(wildcards):
    """Tasks rated at once: bounded by the servers of the rater's policy."""
    job = rater_policy(wildcards).get("job", {"nodes": 1, "servers": 1})
    return SETTINGS["rollouts_at_once"] * job["nodes"] * job["servers"]


def rater_job(wildcards):
    """What a rating job asks a cluster for."""
    plain = {"cpus": 1, "gpus": 0, "mem_mb": 2000, "minutes": 480}
    return rater_policy(wildcards).get("job", plain)
