"""What the site file comes to in jobs: partitions by role, growth by attempt, options, set-up on nodes."""

import subprocess

import pytest

from swelab import recipes
from swelab.experiment import load_experiment
from swelab.records import InputError
from swelab.site import check_site, on_nodes, plain_job, resources, submission

GPU_JOB = {"cpus": 8, "gpus": 4, "mem_mb": 1000, "minutes": 100}


def site(**changes):
    settings = {"experiment": "demo", "site": {"partitions": {"cpu": "short", "gpu": "a100"}, **changes}}
    return recipes.complete("config", settings, "site.yaml")["site"]


def asked(resources, attempt=1, threads=3):
    """What Snakemake would make of a rule's resources."""
    known = {"attempt": attempt, "threads": threads}
    found = {}
    for name, value in resources.items():
        wanted = value.__code__.co_varnames[1 : value.__code__.co_argcount]
        found[name] = value("wildcards", **{key: known[key] for key in wanted})
    return {name: value for name, value in found.items() if value is not None}


def test_a_job_goes_to_the_partition_of_its_role():
    plain = asked(resources(site(), plain_job(cpus=lambda wildcards: 2, mem_mb=500, minutes=10)))
    assert plain == {"slurm_partition": "short", "cpus_per_task": 2, "mem_mb": 500, "runtime": 10}
    assert asked(resources(site(gpu_type="h100"), lambda wildcards: GPU_JOB)) == {
        "slurm_partition": "a100", "cpus_per_task": 8, "gpu": 4, "gpu_model": "h100", "nodes": 1,
        "mem_mb": 1000, "runtime": 100,
    }  # fmt: skip


def test_a_job_of_several_nodes_starts_its_own_processes():
    several = asked(resources(site(gpu_type="h100"), lambda wildcards: {**GPU_JOB, "nodes": 2}))
    assert several == {
        "slurm_partition": "a100", "cpus_per_task": 8, "gres": "gpu:h100:4", "nodes": 2, "mpi": "srun",
        "tasks": 2, "tasks_per_gpu": 0, "mem_mb": 1000, "runtime": 100,
    }  # fmt: skip
    on_cpus = asked(resources(site(), lambda wildcards: {**GPU_JOB, "gpus": 0, "nodes": 3}))
    assert on_cpus["tasks"] == 3 and on_cpus["slurm_partition"] == "short" and "gres" not in on_cpus


def test_a_job_sent_again_asks_for_more_but_never_for_too_long():
    third = asked(resources(site(max_minutes=240), lambda wildcards: GPU_JOB), attempt=3)
    assert third["mem_mb"] == 3000 and third["runtime"] == 240
    for most, mem_mb in ((2500, 2500), (500, 1000)):
        capped = asked(resources(site(max_mem_mb=most), lambda wildcards: GPU_JOB), attempt=3)
        assert capped["mem_mb"] == mem_mb
    assert "gpu_model" not in third


def test_without_a_cluster_a_job_has_the_threads_it_was_given():
    assert asked(resources(None, lambda wildcards: GPU_JOB)) == {"cpus_per_task": 3}


def test_options_of_every_submission():
    assert submission({}) == {}
    assert submission(site(sbatch={"account": "mine", "qos": "long"})) == {
        "SBATCH_ACCOUNT": "mine",
        "SBATCH_QOS": "long",
    }


def test_set_up_happens_on_nodes_only():
    assert on_nodes(site()) == ""
    line = on_nodes(site(modules=["cuda/13.0"], scratch="/fast disk/x"))
    script = f'module() {{ echo "$@"; }}; {line}echo "scratch=${{SWELAB_SCRATCH:-}}"'
    for job, expected in (("1", "load cuda/13.0\nscratch=/fast disk/x\n"), ("", "scratch=\n")):
        done = subprocess.run(
            ["bash", "-uc", script], env={"SLURM_JOB_ID": job}, capture_output=True, text=True, check=True
        )
        assert done.stdout == expected


def test_a_module_that_is_no_name_is_refused():
    with pytest.raises(InputError, match="modules"):
        site(modules=["cuda; rm -rf /"])


def test_gpus_need_a_partition(tmp_path, monkeypatch):
    plan = load_experiment("demo")
    check_site(site(partitions={"cpu": "short"}), plan)
    monkeypatch.setattr(recipes, "named", lambda kind, name: {"job": {"gpus": 2}})
    with pytest.raises(InputError, match="asks for 2 GPUs; expected a partition"):
        check_site(site(partitions={"cpu": "short"}), plan)


def test_recipes_by_a_value():
    assert "scripted" in recipes.names_with("policy", "kind", ("scripted", "hosted"))
    assert "base" not in recipes.names_with("policy", "kind", ("scripted", "hosted"))


def test_the_shipped_site_file_is_sound():
    recipes.load("config", recipes.CONFIGS / "site.yaml")
