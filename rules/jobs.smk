"""How large jobs are, what they ask a cluster for, and which may not leave this machine. No rules.

in:  `site` of configs/site.yaml, where the profile gives it; `job` of the recipes
"""

from functools import partial
from types import SimpleNamespace

from swelab.cluster.site import plain_job, resources, sandboxes_mb
from swelab.configs.kinds.policy import Job, policy_job

ask = partial(resources, SITE)
# Compute nodes without a network: what fetches runs where Snakemake does.
FETCH_HERE = bool(SITE) and not SITE.network
# What a job of WORKERS sandboxes asks for.
SANDBOXES = {"mem_mb": sandboxes_mb(WORKERS), "minutes": 480}


def names_matching(kind, key, *values):
    """Regular expression of the recipes whose `key` has one of these values."""
    return matching(recipes.names_with(kind, key, values))


def matching(names):
    """Regular expression of these names; nothing matches that of none."""
    return "|".join(names) or "(?!)"


def servers_at_once(policy):
    """Conversations at once that the servers of a policy's job take."""
    job = policy_job(policy)
    return SETTINGS.rollouts_at_once * (job.nodes * job.servers if job else 1)


def rollout_workers(wildcards):
    """Rollouts at once: bounded by cores for a scripted policy, by its servers for a model."""
    settings = policy_settings(wildcards)
    if settings.kind == "scripted":
        return WORKERS
    return servers_at_once(settings)


def rollout_threads(wildcards):
    """Cores of a rollout job: the sandboxes of a model mostly wait for it."""
    return WORKERS if policy_settings(wildcards).kind == "scripted" else 1


def model_threads(wildcards):
    model = model_settings(wildcards)
    return model.train.threads if model.source == "drill" else 1


def rollout_job(wildcards):
    """What a rollout job asks a cluster for."""
    plain = Job(cpus=rollout_workers(wildcards), **SANDBOXES)
    return policy_job(policy_settings(wildcards)) or plain


def sft_job(wildcards):
    """What a training job asks a cluster for."""
    settings = sft_settings(wildcards)
    job = settings.job
    return Job(
        cpus=settings.train.threads * (job.gpus or job.ranks),
        **{key: getattr(job, key) for key in ("nodes", "gpus", "mem_mb", "minutes")},
    )


def rl_job(wildcards):
    """What a job of reinforcement learning asks a cluster for."""
    settings = rl_settings(wildcards)
    if "job" in settings.model_fields_set:
        return settings.job
    return Job(cpus=settings.train.threads * settings.train.ranks, **SANDBOXES)


def rl_sandbox_image(wildcards):
    return sandbox_image(SimpleNamespace(subset=rl_settings(wildcards).subset))


def raters_of(*kinds):
    """Regular expression of the raters whose policy is of one of these kinds."""
    return names_matching(
        "rater", "policy", *recipes.names_with("policy", "kind", kinds)
    )


def rater_job(wildcards):
    """What a rating job asks a cluster for."""
    return policy_job(rater_policy(wildcards)) or Job(cpus=1, mem_mb=2000)


@at
def rater_policy(wildcards):
    return wildcards.recipe(kinds.POLICY, wildcards.recipe(kinds.RATER).policy)


def pulled_images(wildcards):
    """Record of a subset's images where they were pulled: an export tells their digests then."""
    path = pattern("images").format(subset=wildcards.subset)
    return path if os.path.exists(path) else ""
