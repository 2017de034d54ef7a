"""SWE-RL's names, options and variables, as its users type them."""

import json
import os
import subprocess
import sys

import pytest

from swelab.records import read_json, read_jsonl
from tests.conftest import ROOT, make_repos, make_task

pytestmark = pytest.mark.real
HERE = ROOT / "swe-rl"


def run(name, *arguments, cwd=None, **variables):
    told = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SWE_", "SWELAB_", "HF_CKPT"))
    }
    told |= {"PYTHON_BIN": sys.executable, "ENV_SWE": "/dev/null"}
    told |= {key: str(value) for key, value in variables.items()}
    command = [HERE / name, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=told, capture_output=True, text=True)


@pytest.fixture
def echo(tmp_path):
    """In place of Python: prints what it was asked to run, and the variables that matter."""
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


def test_servers_take_their_ports_and_variables(echo):
    urls = "http://a:5000, http://b:5000"
    given = {"PYTHON_BIN": echo, "SWE_EXEC_SERVER_URLS": urls, "SWE_MAX_CONTAINERS_PER_NODE": 15}
    name = "server/swe_env_pool_server.py"
    words = run(name, SWELAB_NODE_TOKEN_FILE="t", SWE_ENV_SERVER_PORT=18091, **given).stdout.split()
    told = "-m scripts.pool_server --host 127.0.0.1 --port 18091 --max-leases 30"
    assert words == [*told.split(), *"--node http://a:5000 --node http://b:5000 --node-token t".split()]
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
    given |= {"TRAIN": tmp_path / "train.jsonl", "MAX_RETRIES": 2}
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
