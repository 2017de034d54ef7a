"""Wrong input of the scripts with SWE-RL's names gives one line with the fault, and exit code 2."""

import os
import shutil
import sys

import pytest

from tests.conftest import ROOT, run_program
from tests.contract.slime_names import OURS, run_script

pytestmark = pytest.mark.real
HERE = ROOT / "swe-rl"


@pytest.fixture
def place(tmp_path):
    """A folder with stand-ins of docker and sbatch, and with an `echo` in place of Python."""
    for name in ("docker", "sbatch", "echo"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/bash\necho "$@" "${SWE_MAX_CONTAINERS_PER_NODE-}"\n')
        path.chmod(0o755)
    (tmp_path / "weights").mkdir()
    (tmp_path / "broken.jsonl").write_bytes(b"\xff{broken\n")
    return tmp_path


def run(place, name, *words, **variables):
    told = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "SWELAB_SETTINGS": place / "none"}
    told |= {"EXPORT_ROOT": "out", "PYTHON": place / "bin/echo", "SSH": "false"}  # what goes on does no harm
    return run_script(f"swe-rl/{name}", *words, cwd=place, **told | variables)


LAUNCH, DEPLOY = "scripts/launch_sglang_cluster_4nodes.sh", "scripts/deploy_sglang_cluster_4nodes.sh"
POOL, TRAIN = "server/swe_env_pool_server.py", "scripts/run_swe_rl_8b_remote_2nodes.sh"
PRM = "scripts/run_swe_rl_8b_prm_5nodes_remote.sh"
WRONG = [
    (TRAIN, "", {"HF_CKPT": "/no/weights"}, "HF_CKPT=/no/weights: no such folder; expected weights"),
    (
        TRAIN,
        "",
        {},
        "HF_CKPT is not set, and models/Qwen3-8B, the weights of configs/rl/swerl-8b-2nodes.yaml",
    ),
    (
        PRM,
        "--hf-checkpoint model:tiny",
        {},
        "--prm-model-path is not set, and models/Qwen3-4B, the weights of",
    ),
    (
        TRAIN,
        "",
        {"SWE_EXEC_SERVER_URLS": "http://a:1"},
        "SWE_EXEC_SERVER_URLS is set, but nodes reach no pool",
    ),
    (TRAIN, "--actor-num-gpus-per-node 0 --rollout-num-gpus 8", {}, "--actor-num-gpus-per-node 0; expected"),
    (
        TRAIN,
        "--configs configs",
        {"EXPORT_ROOT": "/proc/none"},
        "cannot be made; expected EXPORT_ROOT, SAVE_CKPT",
    ),
    (TRAIN, "", {"ENV_SWE": "/no/env"}, "ENV_SWE=/no/env: no such file; expected NAME=VALUE lines"),
    (LAUNCH, "", {"ROUTER_PORT": "door"}, "ROUTER_PORT=door; expected a whole number of at least 1"),
    (LAUNCH, "", {"MODEL_PATH": "weights", "TP": "16"}, "TP=16 with GPUS=8; expected a server that fits"),
    ("scripts/setup_minisweagent_ces.sh", "--sglang-url here", {}, "--sglang-url here; expected an address"),
    ("scripts/run_minisweagent_eval.sh", "stray", {}, "stray: no option; expected --sglang-url URL"),
    (POOL, "", {"SWE_EXEC_SERVER_URLS": "here"}, "SWE_EXEC_SERVER_URLS=here; expected http://host:5000"),
    ("server/swe_exec_server.py", "", {"SWE_MAX_CONTAINERS_PER_NODE": "x"}, "SWE_MAX_CONTAINERS_PER_NODE=x"),
    ("data/pull_swe_images.sh", "", {"TRAIN": "broken.jsonl"}, "broken.jsonl, line 1: no row of tasks"),
    ("data/pull_swebench_verified_images.sh", "--all", {}, "--all: no option is known; expected the"),
    ("data/preprocess_swe_dataset.py", "--max-samples -4", {}, "--max-samples -4; expected 0 or more"),
    ("eval/eval_swe.py", "--data= --model m", {}, "--data is empty; expected a value"),
]


@pytest.mark.parametrize(("name", "options", "variables", "said"), WRONG)
def test_a_wrong_input_gets_one_line(place, trainer, name, options, variables, said):
    done = run(place, name, *options.split(), **variables)
    (line,) = (line for line in done.stderr.splitlines() if " stands for " not in line)
    assert line.startswith("error: ") and said in line
    assert done.returncode == 2 and done.stdout == "" and not (place / "out").exists()


def test_lines_of_the_settings_file_are_read_as_a_shell_reads_them(place):
    text = "  export MODEL_PATH='weights'  # mine\r\nROUTER_PORT=8000   # a port\nSGLANG_ARGS=\"--a # b\"\n"
    (place / "env").write_text(f"{text}PYTHON_BIN={place}/bin/echo\nSERVED_MODEL_NAME=~/name\nGPUS=0\n")
    told = {name: value for name, value in os.environ.items() if not name.startswith((*OURS, "PYTHON_BIN"))}
    told |= {"ENV_SWE": "env", "NODES": "1", "HOME": "/home/me"}
    done = run_program([HERE / LAUNCH], cwd=place, env=told)
    assert done.returncode == 0, done.stderr
    assert "--weights weights --name /home/me/name" in done.stdout
    assert "--port 8000" in done.stdout and "--sglang-args --a # b" in done.stdout


def test_scripts_that_were_copied_to_a_host_by_themselves(place):
    alone = place / "home"
    alone.mkdir()
    for name in (
        "server/swe_exec_server.py",
        "data/pull_swe_images.sh",
        "data/pull_swebench_verified_images.sh",
    ):
        shutil.copyfile(HERE / name, alone / name.partition("/")[2])  # without the mark of a program
    done = run_program([sys.executable, alone / "swe_exec_server.py"])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "is alone; expected it in" in done.stderr
    (place / "list").write_text("a/b:1\n")
    told = os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "IMAGE_LIST": str(place / "list")}
    told["SWELAB_SETTINGS"] = str(place / "none")
    command = ["bash", alone / "pull_swebench_verified_images.sh"]
    done = run_program(command, env=told)
    assert done.returncode == 0 and done.stdout.endswith("0 pulled, 1 were there, 0 could not be had\n")


def test_a_host_is_not_set_up_for_a_list_that_is_not_there(place):
    for name in ("swe-rl/server", "swe-rl/data"):
        shutil.copytree(ROOT / name, place / "clone" / name)
    (place / "clone/hosts").mkdir()
    shutil.copy(place / "bin/echo", place / "clone/hosts/host.sh")
    command = place / "clone/swe-rl/server/setup_ecs_seed.sh"
    for name, list_of in (("TRAIN", "/no/rows"), ("IMAGE_LIST", "/no/names")):
        done = run_program([command], env=os.environ | {name: list_of})
        assert done.returncode == 2 and done.stdout == ""
        assert f"error: {list_of}: no such file; expected TRAIN=<prompt rows>" in done.stderr
    told = os.environ | {"HOME": str(place), "TRAIN": "", "IMAGE_LIST": ""}
    done = run_program([command], env=told)
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == [
        "setup",
        "verify",
    ]
