"""The size of jobs, their resources on a cluster, and the jobs that must run on this machine. No rules.

in:  `site` of configs/site.yaml, where the profile gives it; `job` of the recipes
"""

from functools import partial
from types import SimpleNamespace

from swelab.cluster import site as cluster_jobs
from swelab.cluster.site import SANDBOX_MINUTES, plain_job, resources, sandboxes_mb
from swelab.configs.kinds.policy import Job, policy_job

ask = partial(resources, SITE)
# If compute nodes have no network, jobs that download run where Snakemake runs.
FETCH_HERE = bool(SITE) and not SITE.network
# The resources of a job with WORKERS sandboxes.
SANDBOXES = {"mem_mb": sandboxes_mb(WORKERS), "minutes": SANDBOX_MINUTES}


def names_matching(kind, key, *values):
    """Regular expression of the recipes whose `key` has one of these values."""
    return matching(recipes.names_with(kind, key, values))


def matching(names):
    """Regular expression that matches these names; without names, it matches nothing."""
    return "|".join(names) or "(?!)"


def servers_at_once(policy):
    """Maximum number of conversations at the same time on the servers of a policy's job."""
    job = policy_job(policy)
    return SETTINGS.rollouts_at_once * (job.nodes * job.servers if job else 1)


def rollout_workers(wildcards):
    """Maximum number of rollouts at the same time: limited by cores for a scripted policy, by servers for a
    model."""
    settings = policy_settings(wildcards)
    if settings.kind == "scripted":
        return WORKERS
    return servers_at_once(settings)


def rollout_threads(wildcards):
    """Cores of a rollout job; one for a model, because its sandboxes mostly wait for the model."""
    return WORKERS if policy_settings(wildcards).kind == "scripted" else 1


def model_threads(wildcards):
    model = model_settings(wildcards)
    return model.train.threads if model.source == "drill" else 1


def rollout_job(wildcards):
    """Resources that a rollout job requests from a cluster."""
    plain = Job(cpus=rollout_workers(wildcards), **SANDBOXES)
    return policy_job(policy_settings(wildcards)) or plain


def sft_job(wildcards):
    """Resources that a training job requests from a cluster."""
    return cluster_jobs.sft_job(sft_settings(wildcards))


def rl_job(wildcards):
    """Resources that a job of reinforcement learning requests from a cluster."""
    return cluster_jobs.rl_job(rl_settings(wildcards), WORKERS)


def rl_sandbox_image(wildcards):
    return sandbox_image(SimpleNamespace(subset=rl_settings(wildcards).subset))


def raters_of(*kinds):
    """Regular expression of the raters whose policy is of one of these kinds."""
    return names_matching(
        "rater", "policy", *recipes.names_with("policy", "kind", kinds)
    )


def rater_job(wildcards):
    """Resources that a rating job requests from a cluster."""
    return policy_job(rater_policy(wildcards)) or Job(cpus=1, mem_mb=2000)


@at
def rater_policy(wildcards):
    return wildcards.recipe(kinds.POLICY, wildcards.recipe(kinds.RATER).policy)


def pulled_images(wildcards):
    """Record of a subset's pulled images, from which an export takes digests; "" if none were pulled."""
    path = pattern("images").format(subset=wildcards.subset)
    return path if os.path.exists(path) else ""
