"""The site file's effect on jobs: partitions by role, growth by attempt, options, set-up on nodes."""

import pytest

from swelab.cluster.doctor import needs
from swelab.cluster.site import (
    check_site,
    chosen_experiment,
    environment,
    on_nodes,
    plain_job,
    resources,
    shell_setup,
    submission,
)
from swelab.configs import recipes
from swelab.configs.experiment import load_experiment
from swelab.configs.kinds import CONFIG, SFT
from swelab.configs.kinds.policy import Job, ScriptedPolicy
from swelab.configs.kinds.sft import Sft
from swelab.records import InputError
from tests.conftest import run_program

SCRIPTED = ScriptedPolicy(kind="scripted", scaffold="x")
GPU_JOB = Job(cpus=8, gpus=4, mem_mb=1000, minutes=100)


def site(**changes):
    settings = {"experiment": "demo", "site": {"partitions": {"cpu": "short", "gpu": "a100"}, **changes}}
    return recipes.complete(CONFIG, settings, "site.yaml").site


def asked(resources, attempt=1, threads=3):
    """Returns the values that Snakemake makes of a rule's resources."""
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
    several = asked(
        resources(site(gpu_type="h100"), lambda wildcards: GPU_JOB.model_copy(update={"nodes": 2}))
    )
    assert several == {
        "slurm_partition": "a100", "cpus_per_task": 8, "gres": "gpu:h100:4", "nodes": 2, "mpi": "srun",
        "tasks": 2, "tasks_per_gpu": 0, "mem_mb": 1000, "runtime": 100,
    }  # fmt: skip
    on_cpus = asked(resources(site(), lambda wildcards: GPU_JOB.model_copy(update={"gpus": 0, "nodes": 3})))
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
    assert submission(None) == {}
    assert submission(site(sbatch={"account": "mine", "qos": "long"})) == {
        "SBATCH_ACCOUNT": "mine",
        "SBATCH_QOS": "long",
        "SBATCH_SIGNAL": "URG@60",
    }


def test_set_up_happens_on_nodes_only():
    assert on_nodes(site()) == ""
    line = on_nodes(site(modules=["cuda/13.0"], scratch="/fast disk/x"))
    script = f'module() {{ echo "$@"; }}; {line}echo "scratch=${{SWELAB_SCRATCH:-}}"'
    for job, expected in (("1", "load cuda/13.0\nscratch=/fast disk/x\n"), ("", "scratch=\n")):
        done = run_program(["bash", "-uc", script], env={"SLURM_JOB_ID": job}, check=True)
        assert done.stdout == expected


MODULE = 'module() { [ "$1" = load ] && export PATH="$FAKE/$3:$FAKE/$2:$PATH"; }; export -f module; '
CONTAINER = """#!/bin/sh
[ "$1 $2 $3 $5 $7 $8" = "exec --nv --bind --pwd /images/gpu.sif python3" ] && [ "$4" = "$6" ] || exit 9
shift 8
exec "$FAKE/in" "$@"
"""


def stand_in(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("name", ["train", "serve"])
@pytest.mark.parametrize("chosen", ["", "/folder", "/images/gpu.sif", ["gpu/2", "sglang/1"]])
def test_a_rule_runs_in_its_environment(tmp_path, name, chosen):
    """The programs apptainer and module are stand-ins, because neither can be installed here."""
    for place in ("plain", "folder/bin", "in", "gpu/2", "sglang/1"):
        path = tmp_path / place if place == "in" else tmp_path / place / "python"
        stand_in(path, f'#!/bin/sh\necho "{place} $*"\n')
    (tmp_path / "sglang/1/python").rename(tmp_path / "sglang/1/python3")
    stand_in(tmp_path / "plain/apptainer", CONTAINER)
    folder = f"{tmp_path}/folder" if chosen == "/folder" else chosen
    line = shell_setup(site(environments={name: folder}))
    command = "python" if name == "train" else '"${SWELAB_SERVE_PYTHON:-python}"'
    env = {"SLURM_JOB_ID": "1", "FAKE": str(tmp_path), "PATH": f"{tmp_path}/plain:/usr/bin:/bin"}
    enter = "in_training" if name == "train" else "with_servers"
    script = f"set -eu; {MODULE}{line}{enter}; X=1 {command} -m x 'a b'"
    done = run_program(["bash", "-c", script], env=env)
    where = {"": "plain", "/folder": "folder/bin", "/images/gpu.sif": "in"}.get(str(chosen), "sglang/1")
    assert done.stdout == f"{where} -m x a b\n", done.stderr
    assert environment(site(environments={name: folder}), "none") == ""
    here = run_program(["bash", "-c", script], env={**env, "SLURM_JOB_ID": ""})
    assert here.stdout == "plain -m x a b\n", "off the nodes nothing changes"


def test_an_image_cannot_train_on_several_nodes(monkeypatch):
    plan = load_experiment("demo")
    monkeypatch.setattr(
        recipes, "load_named", lambda kind, name: Sft(base="x", job={"nodes": 2}) if kind is SFT else SCRIPTED
    )
    check_site(site(environments={"train": "/a/folder"}), plan)
    with pytest.raises(InputError, match="on 2 nodes, and site.environments.train is an image"):
        check_site(site(environments={"train": "/a/gpu.sif"}), plan)


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("swesmith-32b", {"gpus": 8, "cpus": 64, "mem_mb": 800_000}),
        ("swepdb-14b", {"gpus": 8, "cpus": 64, "mem_mb": 768_000}),
        ("demo-rl", {"gpus": 0, "cpus": 4}),
    ],
)
def test_the_doctor_looks_for_nodes_on_which_each_training_fits(name, need):
    settings = recipes.complete(CONFIG, {"experiment": name, "workers": 4}, "site.yaml")
    job = needs(settings, load_experiment(name))["gpu" if need["gpus"] else "cpu"]
    assert {key: getattr(job, key) for key in need} == need


def test_a_module_that_is_no_name_is_refused():
    with pytest.raises(InputError, match="modules"):
        site(modules=["cuda; rm -rf /"])


def test_gpus_need_a_partition(tmp_path, monkeypatch):
    plan = load_experiment("demo")
    check_site(site(partitions={"cpu": "short"}), plan)
    monkeypatch.setattr(
        recipes, "load_named", lambda kind, name: Sft(base="x", job={"gpus": 2}) if kind is SFT else SCRIPTED
    )
    with pytest.raises(InputError, match="asks for 2 GPUs; expected a partition"):
        check_site(site(partitions={"cpu": "short"}), plan)


def test_the_shipped_site_file_is_sound():
    recipes.load("config", recipes.CONFIGS / "site.yaml")


def test_the_experiment_that_the_site_file_chose_is_said_with_the_reason(tmp_path):
    (tmp_path / "config.yaml").write_text("experiment: demo\n")
    (tmp_path / "site.yaml").write_text("experiment: large\nsite: {partitions: {cpu: a}}\n")

    def said(experiment, cluster=True):
        cluster_keys = {"site": {"partitions": {"cpu": "a"}}} if cluster else {}
        given = recipes.complete(CONFIG, {"experiment": experiment, **cluster_keys}, "given")
        return chosen_experiment(given, tmp_path)

    assert said("large") == (
        f"experiment large: {tmp_path}/site.yaml names it, which --profile slurm reads; "
        "without the profile it is demo; --config experiment=demo builds that here"
    )
    assert not said("demo") and not said("other") and not said("large", cluster=False)
