"""SWE-RL's names, options and variables, as its users type them."""

import argparse
import json
import os
import re

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import POLICY, RL, SCAFFOLD, SUBSET
from swelab.records import InputError, read_json, read_jsonl
from tests.conftest import ROOT, make_repos, make_task
from tests.contract import slime_names
from tests.contract.slime_names import NONE, missing, run_script, train

pytestmark = pytest.mark.real


def run(name, *words, **given):
    return run_script(f"swe-rl/{name}", *words, **given)


@pytest.fixture
def echo(tmp_path):
    """Replaces Python: prints its command line and the relevant variables."""
    path = tmp_path / "echo"
    path.write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" "${SWELAB_BACKEND-} ${SWELAB_POOL-} ${SWE_EVAL_API_KEY-}"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def world(tmp_path):
    make_repos(tmp_path)
    (tmp_path / "oracle.yaml").write_text("{kind: scripted, scaffold: demo}")
    rows = [make_task() | {"instance_id": f"task-{n}"} for n in range(2)]
    (tmp_path / "verified_eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / ".env.swe").write_text(
        '# theirs\nexport VERIFIED_DIR="/nowhere"\nSTEP_LIMIT=7\nEVAL_MODEL_PATH=$(touch pwned)\n'
    )
    return tmp_path


def test_verified_is_evaluated_by_its_script_and_exports_win_over_the_file(world):
    out = world / "out"
    given = {"EVAL_MODEL_PATH": world / "oracle.yaml", "VERIFIED_DIR": world, "OUTPUT_DIR": out}
    further = (
        "--scaffold",
        ROOT / "configs/scaffolds/demo.yaml",
        "--repos-dir",
        world / "repos",
        "--no-checks",
    )
    name = "scripts/eval_swe_verified_local.sh"
    done = run(name, *further, cwd=world, ENV_SWE=world / ".env.swe", **given)
    assert done.returncode == 0, done.stderr
    assert "run_eval_swe.sh stands for `python -m scripts.evaluate`" in done.stderr
    told = read_json(out / "summary.json")
    assert (told["resolved"], told["total"], told["args"]["step_limit"]) == (2, 2, 7)
    row = next(read_jsonl(out / "results.jsonl"))
    assert {"traj.json", "patch.diff", "meta.json"} == {
        path.name for path in (out / row["run_dir"]).iterdir()
    }
    assert not (world / "pwned").exists()
    lost = run(name, cwd=world, ENV_SWE=world / ".env.swe")
    assert lost.returncode == 2
    assert lost.stderr.startswith("error: /nowhere/verified_eval.jsonl: no such file; data/export")


@pytest.mark.parametrize(
    ("name", "options", "of_file", "exported", "wanted"),
    [
        (
            "scripts/run_minisweagent_eval.sh",
            "--sglang-url http://h:1 --no-grade",
            "PROMPT_DATA=/theirs.jsonl",
            {"VERIFIED_DIR": "/mine"},
            "--data /mine/verified_eval.jsonl",
        ),
        ("eval/run_eval_swe.sh", "", "EVAL_MODEL_PATH=a\nPROMPT_DATA=d", {"HF_CKPT": "b"}, "--model b"),
        (
            "eval/run_eval_swe.sh",
            "",
            "MAX_CONCURRENT=3\nHF_CKPT=b\nPROMPT_DATA=d",
            {"SWE_MAX_CONCURRENT": 9},
            "--max-concurrent 9",
        ),
        (
            "scripts/launch_sglang_cluster_4nodes.sh",
            "",
            "MODEL_PATH=/usr\nNODES=1",
            {"MODEL_27B": "/tmp"},
            "--weights /tmp",
        ),
    ],
)
def test_an_export_wins_over_another_name_of_the_same_thing_in_the_file(
    echo, tmp_path, name, options, of_file, exported, wanted
):
    (tmp_path / "env").write_text(of_file + "\n")
    given = {"PYTHON_BIN": echo, "ENV_SWE": tmp_path / "env", "EXPORT_ROOT": tmp_path / "out"}
    done = run(name, *options.split(), **given, **exported)
    assert done.returncode == 0, done.stderr
    assert f" {wanted} " in " ".join(done.stdout.split())


def test_eval_swe_takes_the_options_that_it_took(echo):
    options = (
        "--data a.jsonl --model openai/Qwen/Qwen3-32B --api-base http://h:8000/v1 --output-dir o"
        " --max-concurrent 8 --max-instances 50 --step-limit 20 --max-tokens 8192"
        " --api-key sk-1 --data-source x/SWE-bench_V"
    )
    given = {"PYTHON_BIN": echo, "SWE_ENV_SERVER_URL": "http://p:1"}
    done = run("eval/eval_swe.py", *options.split(), **given)
    words = done.stdout.split()
    assert words[:2] == ["-m", "scripts.evaluate"] and "sk-1" not in words[:-1]
    pairs = {a: b for a, b in zip(words, words[1:], strict=False) if a.startswith("--")}
    assert pairs["--model"] == "openai/Qwen/Qwen3-32B" and pairs["--api-base"] == "http://h:8000/v1"
    assert (pairs["--max-concurrent"], pairs["--max-instances"], pairs["--max-tokens"]) == ("8", "50", "8192")
    assert pairs["--image-convention"] == "swe-bench" and pairs["--temperature"] == "0"
    assert pairs["--api-key-env"] == "SWE_EVAL_API_KEY" and words[-3:] == ["remote", "http://p:1", "sk-1"]


def test_servers_take_their_ports_and_variables(echo, tmp_path):
    urls = "http://a:5000, http://b:5000"
    given = {"PYTHON_BIN": echo, "SWE_EXEC_SERVER_URLS": urls, "SWE_MAX_CONTAINERS_PER_NODE": 15}
    given["EXPORT_ROOT"] = tmp_path
    name = "server/swe_env_pool_server.py"
    words = run(name, SWELAB_NODE_TOKEN_FILE="t", SWE_ENV_SERVER_PORT=18091, **given).stdout.split()
    told = "-m scripts.pool_server --host 127.0.0.1 --port 18091 --max-leases 30"
    nodes = "--node http://a:5000 --node http://b:5000 --node-token t --state".split()
    assert words[:-1] == [*told.split(), *nodes] and words[-1].startswith(str(tmp_path / "pools"))
    other = given | {"SWE_EXEC_SERVER_URLS": "http://c:5000", "SWELAB_NODE_TOKEN_FILE": "t"}
    assert run(name, SWE_ENV_SERVER_PORT=18091, **other).stdout.split()[-1] != words[-1]
    refused = run(name, **given)
    assert refused.returncode == 2 and "SWELAB_NODE_TOKEN_FILE is not set" in refused.stderr
    words = run("server/swe_exec_server.py", "--port", "5001", **given).stdout.split()
    assert words == "-m scripts.exec_server --max-containers 15 --port 5001".split()


def test_images_are_pulled_from_a_mirror_and_named_as_rows_name_them(tmp_path):
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/bash\necho "$@" >>"$LOG"\n[ "$1" != image ] && [[ "$*" != *gone* ]]\n')
    docker.chmod(0o755)
    rows = [
        {"metadata": {"instance": {"instance_id": "getmoto__moto-1"}, "data_source": "x/SWE-Gym-Subset"}},
        {"metadata": {"instance": {"instance_id": "a__b-2", "image_name": "own/gone:1"}}},
        {"instance_id": "django__django-3"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"PATH": f"{docker.parent}:{os.environ['PATH']}", "LOG": tmp_path / "log", "RETRY_SLEEP": 0}
    given |= {"TRAIN": tmp_path / "train.jsonl", "MAX_RETRIES": 2, "SWELAB_SETTINGS": tmp_path}
    (tmp_path / "images").write_text("own/*\n")
    given |= {"SRC_PREFIX": "docker.io/swebench", "PROXY_PREFIX": "mirror.example/swebench"}
    done = run("data/pull_swe_images.sh", **given)
    calls = [line for line in (tmp_path / "log").read_text().splitlines() if not line.startswith("image")]
    plain = "docker.io/swebench/sweb.eval.x86_64.django_1776_django-3:latest"
    mirrored = plain.replace("docker.io", "mirror.example")
    assert calls == [
        "pull --quiet docker.io/xingyaoww/sweb.eval.x86_64.getmoto_s_moto-1:latest",
        *["pull --quiet own/gone:1"] * 2,
        f"pull --quiet {mirrored}",
        f"tag {mirrored} {plain}",
    ]
    assert done.returncode == 2 and done.stdout == "2 pulled, 0 were there, 1 could not be had\n"
    moto = "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-1:latest"
    allowed = (tmp_path / "images").read_text().splitlines()
    assert allowed == ["own/*", f"docker.io/{moto}", plain]
    (tmp_path / "list").write_text(f"# images\n{plain}\nother/x:1\n")
    (tmp_path / "log").unlink()
    done = run("data/pull_swebench_verified_images.sh", **given, IMAGE_LIST=tmp_path / "list", N=1)
    assert done.returncode == 0 and done.stdout.startswith("1 pulled")


def test_data_scripts_write_what_they_wrote(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps([make_task() | {"eval_script": "set -e\npytest tests\n"}]))
    name = "data/preprocess_swe_dataset.py"
    done = run(name, "--train-data-source", tmp_path / "rows.json", "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    row = next(read_jsonl(tmp_path / "out/train.jsonl"))
    assert set(row) == {"text", "metadata"} and set(row["metadata"]) == {"instance", "data_source"}
    name = "data/export_swebench_verified_assets.py"
    done = run(name, "--dataset", tmp_path / "rows.json", "--output-dir", tmp_path / "verified")
    assert done.returncode == 0, done.stderr
    names = {"instance_ids.txt", "docker_images.txt", "verified_eval.jsonl"}
    assert {path.name for path in (tmp_path / "verified").iterdir()} == names


SCRIPTS = {
    "run_swe_rl_32b_remote_8nodes.sh": ("swerl-32b-8nodes", "swe-rl-32b-remote-8nodes"),
    "run_swe_rl_32b_remote_8nodes_resume.sh": ("swerl-32b-8nodes-resume", "swe-rl-32b-remote-8nodes"),
    "run_swe_rl_32b_remote_4nodes.sh": ("swerl-32b-4nodes", "swe-rl-32b-remote-4nodes"),
    "run_swe_rl_8b_remote_2nodes.sh": ("swerl-8b-2nodes", "swe-rl-8b-remote-2nodes"),
    "run_swe_rl_8b_prm_5nodes_remote.sh": ("swerl-8b-prm-5nodes", "swe-rl-8b-prm-5nodes-remote"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_training_script_runs_its_rule_and_leaves_its_names(trainer, name):
    recipe, old = SCRIPTS[name]
    done = train(trainer, f"swe-rl/scripts/{name}")
    assert done.returncode == 0, done.stderr
    assert (
        f"{name} stands for rule `train_rl`, `snakemake results/rl/{recipe}/checkpoint.json`" in done.stderr
    )
    assert done.stdout.split()[0] == f"results/rl/{recipe}/checkpoint.json"
    (kept,) = (trainer.parent / "out/ckpt").iterdir()
    assert kept.name.startswith(f"{old}_") and kept.readlink() == ROOT / f"results/rl/{recipe}/checkpoint"
    assert (kept.name == f"{old}_fixed") == ("resume" in name)
    (tried,) = (trainer.parent / "out/swe_rollouts").iterdir()
    assert tried.readlink() == ROOT / f"results/rl/{recipe}/rollouts"


def test_options_of_a_training_script_become_a_recipe_of_its_own(trainer):
    options = "--prm-enable --prm-m 5 --prm-num-gpus 16 --prm-step-coef 0.5 --prm-model-path /models/judge"
    options = options.replace("/models", str(trainer.parent))
    options += " --rollout-max-context-len 16384 --n-samples-per-prompt 8 --lr 2e-6 --adam-beta2 0.95"
    options += " --dynamic_history --advantage-estimator step_wise --rollout-num-gpus 16"
    places = {"SAVE_CKPT": trainer.parent / "a/ckpt", "SWE_SAVE_TRAJ_DIR": trainer.parent / "b/trajs"}
    for folder in ("mine", "judge"):
        (trainer.parent / folder).mkdir()
        (trainer.parent / folder / "config.json").write_text("{}")
    given = {"HF_CKPT": trainer.parent / "mine", "SWE_MAX_CONCURRENT": 16, **places}
    name = "swe-rl/scripts/run_swe_rl_8b_remote_2nodes.sh"
    done = train(trainer, name, *options.split(), **given)
    assert done.returncode == 0, done.stderr
    configs = trainer.parent / "configs"
    recipe = done.stdout.split()[0].split("/")[2]
    assert recipe.startswith("swerl-8b-2nodes-") and f"configs/rl/{recipe}.yaml" in done.stderr
    made = recipes.load_named(RL, recipe, configs)
    assert made.start == str(trainer.parent / "mine")
    assert (made.rollouts.at_once, made.rollouts.samples) == (16, 8)
    assert (made.rollouts.context_length, made.train.lr, made.train.betas) == (16384, 2e-6, [0.9, 0.95])
    assert (made.judge.votes, made.judge.coefficient, made.method.advantage) == (5, 0.5, "step-wise")
    assert (made.cluster.judge.nodes, made.cluster.rollout.nodes, made.job.nodes) == (2, 2, 5)
    assert recipes.load_named(POLICY, made.judge.policy, configs).weights == str(trainer.parent / "judge")
    assert places["SAVE_CKPT"].readlink() == ROOT / f"results/rl/{recipe}/checkpoint"
    assert places["SWE_SAVE_TRAJ_DIR"].readlink() == ROOT / f"results/rl/{recipe}/rollouts"
    again = train(trainer, name, *options.split(), **given)
    assert again.stdout == done.stdout


def test_rows_of_ones_own_become_the_subset(trainer):
    rows = trainer.parent / "train.jsonl"
    rows.write_text(json.dumps({"text": "x", "metadata": {"instance": make_task()}}) + "\n")
    done = train(trainer, "examples/experimental/swe-agent/run-qwen3-4b-instruct.sh", PROMPT_DATA=rows)
    assert done.returncode == 0, done.stderr
    configs, recipe = trainer.parent / "configs", done.stdout.split()[0].split("/")[2]
    subset = recipes.load_named(SUBSET, recipes.load_named(RL, recipe, configs).subset, configs)
    assert (subset.path, subset.images) == (str(rows), "swe-gym") and recipe.startswith("miles-4b-")
    kept = trainer.parent / "out/qwen3-4B-Instruct-2507_miles"
    assert kept.readlink() == ROOT / f"results/rl/{recipe}/checkpoint"


PAGE = (ROOT / "docs/coming-from-swe-rl.md").read_text()
ORIGINALS = """
--accumulate-allreduce-grads-in-fp32 --actor-num-gpus-per-node --actor-num-nodes --adam-beta1 --adam-beta2
--advantage-estimator --attention-backend --attention-dropout --attention-softmax-in-fp32 --balance-data
--context-parallel-size --custom-generate-function-path --custom-rm-path --dynamic_history --entropy-coef
--eps-clip --eps-clip-high --expert-model-parallel-size --expert-tensor-parallel-size --hf-checkpoint
--hidden-dropout --input-key --kl-loss-coef --kl-loss-type --load --log-probs-chunk-size --lr
--lr-decay-style --max-tokens-per-gpu --megatron-to-hf-mode --metadata-key --n-samples-per-prompt
--num-rollout --num-steps-per-rollout --optimizer --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d
--pipeline-model-parallel-size --prm-enable --prm-m --prm-max-new-tokens --prm-model-path --prm-num-gpus
--prm-num-gpus-per-engine --prm-step-coef --prm-temperature --prompt-data --recompute-granularity
--recompute-method --recompute-num-layers --ref-load --reward-key --rollout-batch-size
--rollout-max-context-len --rollout-max-response-len --rollout-num-gpus --rollout-num-gpus-per-engine
--rollout-shuffle --rollout-temperature --save --save-interval --sequence-parallel
--sglang-mem-fraction-static --sglang-router-port --tensor-model-parallel-size --use-dynamic-batch-size
--use-kl-loss --use-precision-aware-optimizer --use-wandb --wandb-group --wandb-key --wandb-project
--weight-decay --swe-cm-head-ratio --swe-prm-max-history-steps --swe-prm-max-history-output-len
--swe-prm-max-output-len --swe-prm-max-problem-len --swe-prm-skip-submit
""".split()
"""Options that the five training scripts of SWE-RL pass to slime, and those that its pages mention."""
VARIABLES = """
ACTOR_GPUS_PER_NODE DEBUG_MODE ENABLE_RESUME_LOAD EXPORT_ROOT HF_CKPT LITELLM_MODEL_REGISTRY_PATH LOG_DIR
MASTER_ADDR MEGATRON_LM_PATH MLP_ROLE_INDEX MLP_WORKER_0_HOST MSWEA_DOCKER_EXEC_MODE NUM_GPUS_PER_NODE
NUM_NODES OPENAI_API_KEY OPENAI_BASE_URL PRM_ENABLE PRM_GPUS_PER_ENGINE PRM_GPUS_TOTAL PRM_M
PRM_MAX_NEW_TOKENS PRM_MODEL_PATH PRM_STEP_COEF PRM_TEMPERATURE PROMPT_DATA PYTORCH_CUDA_ALLOC_CONF
RAY_JOB_SUBMISSION_ID RAY_health_check_failure_threshold RAY_health_check_period_ms
RAY_health_check_timeout_ms RAY_num_heartbeats_timeout REF_LOAD RESUME_LOAD ROLLOUT_GPUS_PER_NODE
ROLLOUT_GPUS_TOTAL ROLLOUT_NUM_GPUS_PER_ENGINE RUN_LOG RUN_TIMESTAMP SAVE_CKPT SWE_ENV_SERVER_BIND_HOST
SWE_ENV_SERVER_HOST SWE_ENV_SERVER_PORT SWE_ENV_SERVER_URL SWE_EXEC_SERVER_URLS SWE_LITELLM_MODEL_NAME
SWE_MAX_CONCURRENT SWE_MAX_CONTAINERS_PER_NODE SWE_POOL_LOG SWE_SAVE_TRAJ_DIR TRAIN_NUM_NODES WANDB_API_KEY
WANDB_KEY WANDB_PROJECT WORKER_IP SWE_CONFIG_PATH SWE_ROLLOUT_TIMEOUT SWE_ENV_HTTP_MAX_RETRIES
SWE_EVALUATE_MAX_RETRIES SWE_PRM_MAX_CONCURRENCY NO_PROXY no_proxy PYTHONUNBUFFERED PYTHONFAULTHANDLER
CUDA_DEVICE_MAX_CONNECTIONS NCCL_NVLS_ENABLE
""".split()
"""Variables that those scripts and their programs read or set."""


def test_every_name_of_the_training_scripts_is_on_the_page_and_known(trainer):
    done = train(trainer, "swe-rl/scripts/run_swe_rl_8b_remote_2nodes.sh", "--help")
    taken, refused = set(re.findall(r"--[\w-]+", done.stdout)), {f"--{name}" for name in NONE}
    assert set(ORIGINALS) <= taken | refused and not taken & refused
    ours = {"--help", "--recipe", "--configs", "--dynamic-history"}
    assert missing(sorted((taken | refused) - ours), PAGE) == []
    assert missing([*VARIABLES, *slime_names.VARIABLES], PAGE) == []


def test_what_has_no_counterpart_is_refused_with_its_reason(trainer):
    parser = argparse.ArgumentParser()
    slime_names.add_options(parser)
    for option, why in NONE.items():
        for words in ([f"--{option}"], [f"--{option}", "x"], [f"--{option}=x"]):
            with pytest.raises(InputError) as told:
                parser.parse_args(words)
            assert str(told.value) == f"--{option} has no counterpart: {why}; expected it left out"
    done = train(trainer, "swe-rl/scripts/run_swe_rl_8b_remote_2nodes.sh", "--wandb-key", "x")
    assert done.returncode == 2 and done.stdout == ""
    (line,) = (line for line in done.stderr.splitlines() if " stands for " not in line)
    assert line.startswith("error: --wandb-key has no counterpart: other users of the machine see")


def made_by(trainer, name, *options, **variables):
    done = train(trainer, f"swe-rl/scripts/{name}", *options, **variables)
    assert done.returncode == 0, done.stderr
    return recipes.load_named(RL, done.stdout.split()[0].split("/")[2], trainer.parent / "configs")


def test_options_and_variables_of_the_judge_are_its_policy_s(trainer):
    name, judge = "run_swe_rl_8b_prm_5nodes_remote.sh", trainer.parent / "judge"
    judge.mkdir()
    (judge / "config.json").touch()
    given = {"PRM_MODEL_PATH": judge, "PRM_GPUS_TOTAL": 16, "PRM_GPUS_PER_ENGINE": 4, "PRM_M": 5}
    given |= {"PRM_STEP_COEF": 0.5, "PRM_TEMPERATURE": 0.7, "PRM_MAX_NEW_TOKENS": 512}
    made = made_by(trainer, name, "--prm-m", "7", **given, SWE_PRM_MAX_CONCURRENCY=9)
    assert (made.judge.votes, made.judge.coefficient, made.judge.at_once) == (7, 0.5, 9)
    assert (made.cluster.judge.nodes, made.cluster.judge.tensor_parallel, made.job.nodes) == (2, 4, 6)
    policy = recipes.load_named(POLICY, made.judge.policy, trainer.parent / "configs")
    assert (policy.weights, policy.sampling.temperature, policy.sampling.max_tokens) == (str(judge), 0.7, 512)
    without = made_by(trainer, name, "--advantage-estimator", "grpo", PRM_ENABLE=0)
    assert without.judge is None and without.cluster.judge is None and without.job.nodes == 4
    done = train(trainer, "swe-rl/scripts/run_swe_rl_8b_remote_2nodes.sh", PRM_M=5)
    assert done.stdout.split()[0] == "results/rl/swerl-8b-2nodes/checkpoint.json"


def test_nodes_and_gpus_of_the_variables(trainer):
    name = "run_swe_rl_8b_remote_2nodes.sh"
    made = made_by(trainer, name, NUM_NODES=4, ROLLOUT_NUM_GPUS_PER_ENGINE=4)
    assert (made.cluster.trainer.nodes, made.cluster.rollout.nodes, made.job.nodes) == (2, 2, 4)
    assert made.cluster.rollout.tensor_parallel == 4
    made = made_by(trainer, name, NUM_NODES=4, ACTOR_GPUS_PER_NODE=2, ROLLOUT_GPUS_PER_NODE=6)
    assert (made.cluster.trainer.nodes, made.cluster.rollout.nodes, made.job.nodes) == (1, 3, 4)
    prm = "run_swe_rl_8b_prm_5nodes_remote.sh"
    made = made_by(trainer, prm, TRAIN_NUM_NODES=8, NUM_NODES=9)
    assert (made.cluster.trainer.nodes, made.cluster.rollout.nodes, made.job.nodes) == (4, 4, 9)
    same = train(trainer, f"swe-rl/scripts/{prm}", NUM_NODES=5, TRAIN_NUM_NODES=4, NUM_GPUS_PER_NODE=8)
    assert same.stdout.split()[0] == "results/rl/swerl-8b-prm-5nodes/checkpoint.json"


def test_other_words_of_the_originals(trainer):
    name, earlier = "run_swe_rl_8b_remote_2nodes.sh", trainer.parent / "global_step_4"
    (earlier / "actor").mkdir(parents=True)
    saved = trainer.parent / "kept/here"
    options = ["--load", str(earlier), "--save", str(saved), "--wandb-project", "mine", "--use-wandb"]
    options += ["--recompute-granularity", "full", "--optimizer-cpu-offload", "--swe-cm-head-ratio", "0.4"]
    made = made_by(trainer, name, *options, SWE_ROLLOUT_TIMEOUT=600, RUN_TIMESTAMP="then", DEBUG_MODE=1)
    assert (made.cluster.resume_from, made.wandb) == (str(earlier), "mine") and saved.is_symlink()
    assert (made.rollouts.head_share, made.rollouts.samples, made.train.steps) == (0.4, 2, 80)
    assert recipes.load_named(SCAFFOLD, made.scaffold, trainer.parent / "configs").wall_seconds == 600
    assert [path.name for path in (trainer.parent / "out/swe_rollouts").iterdir()] == [
        "swe-rl-8b-remote-2nodes_then"
    ]
    large = made_by(trainer, "run_swe_rl_32b_remote_8nodes_resume.sh", DEBUG_MODE=1, RESUME_LOAD=earlier)
    assert (large.train.steps, large.cluster.resume_from) == (40, str(earlier))
    both = made_by(trainer, name, "--colocate", "--actor-num-nodes", "2")
    assert (both.cluster.mode, both.cluster.rollout.nodes, both.rollouts.ahead) == ("sync", 0, 0)
    assert (both.job.nodes, both.cluster.trainer.offload) == (2, "all")


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ("", {"MLP_ROLE_INDEX": "1"}, "MLP_ROLE_INDEX=1: a job of N nodes is asked for by one call"),
        ("", {"NUM_NODES": "3"}, "NUM_NODES=3: 12 GPUs train, with 8 a node; expected whole nodes of them"),
        ("--max-tokens-per-gpu 2048", {}, "2048 x verl.trainer.context_parallel 2 is less than"),
        ("--rollout-num-gpus 12", {}, "--rollout-num-gpus 12 with 8 GPUs a node; expected whole nodes"),
        ("--prm-m 3", {}, "--prm-m without a judge; expected --prm-enable"),
        ("", {"PROMPT_DATA": "/none.jsonl"}, "PROMPT_DATA=/none.jsonl: no such file; expected task rows"),
        ("", {"SAVE_CKPT": "/usr"}, "/usr: is there already; expected a path at which a link can be made"),
    ],
)
def test_what_a_training_script_refuses(trainer, options, variables, said):
    name = "swe-rl/scripts/run_swe_rl_8b_remote_2nodes.sh"
    done = train(trainer, name, *options.split(), **variables)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
