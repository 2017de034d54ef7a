"""SWE-PDB's names, options and files, as its users type them."""

import json
import os
import re
import time

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD, SUBSET
from swelab.evaluation.debug_gym_run import Force, RunRequest, run_configuration
from swelab.records import InputError, read_json, read_jsonl
from tests.conftest import ROOT
from tests.contract.hosted_service import Service
from tests.contract.slime_names import run_script

pytestmark = pytest.mark.real
KEY = "sk-debug-71c0"
CODE = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return {double}\n"
TESTS = (
    "from solution import add, double\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\n"
    "def test_double():\n    assert double(4) == 8\n"
)
CALLS = [
    ("pdb", {"command": "start", "runner": "pytest", "file": "test.py"}),
    ("rewrite", {"path": "solution.py", "start": 2, "new_code": "    return a + b"}),
    ("eval", {}),
]


def called(turn, history):
    """A script that looks, repairs `add`, and then calls eval repeatedly."""
    name, arguments = CALLS[min(turn, 2)]
    call = json.dumps({"name": name, "arguments": arguments})
    return f"Turn {turn}.\n<tool_call>\n{call}\n</tool_call>"


def files(double="2 * a", tests=TESTS):
    return {"test.py": tests, "solution.py": CODE.format(double=double)}


def row(name, **changes):
    listed = [{"path": path, "content": text} for path, text in files(**changes).items()]
    extra = {"entrypoint": "python -m pytest --tb=no -s test.py", "files": listed, "task_name": name}
    told = {"task_id": name, "problem_statement": "It fails.", "prompt": json.dumps([])}
    return told | {"extra_info": extra}


@pytest.fixture
def vendor():
    service = Service(speak=called)
    yield service
    service.close()


def run(name, *words, **given):
    return run_script(f"swe-pdb/{name}", *words, **given)


def test_rows_of_a_parquet_file_are_debugged_and_scored(vendor, tmp_path):
    rows = [row("ace_1"), row("kod_2"), row("kod_3", double="3 * a")]
    rows.append(row("fine_4", tests="def test_add():\n    pass\n"))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rl_test.parquet")
    out = tmp_path / "out"
    given = ("--parquet_path", tmp_path / "rl_test.parquet", "--model_name", "/models/toy")
    given += ("--base_url", f"{vendor.url}/v1", "--n_parallel", 2, "--max_steps", 4, "--output_dir", out)
    done = run("run_kod_debug_gym.py", *given, "--api_key", KEY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run_kod_debug_gym.py stands for `python -m scripts.evaluate`" in done.stderr
    assert "1 refused, such as fine_4: all its tests pass as it is" in done.stderr
    assert "| resolved | 2 of 3, 66.7%" in done.stdout and "| pass@1 | 66.7% [" in done.stdout
    told = {line["instance_id"]: line for line in read_jsonl(out / "results.jsonl")}
    assert [told[name]["resolved"] for name in ("ace_1", "kod_2", "kod_3")] == [True, True, False]
    assert (told["ace_1"]["n_steps"], told["kod_3"]["exit_status"]) == (3, "step_limit")
    sent = vendor.requests[-1]["body"]
    assert sent["model"] == "/models/toy" and sent["temperature"] == 1.0
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert {each["function"]["name"] for each in sent["tools"]} >= {"pdb", "rewrite", "eval", "view"}
    assert not [path for path in out.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.fixture
def offline(vendor, tmp_path, monkeypatch):
    """Returns a configuration for three task folders, and a function that runs it."""
    for name, double in (("good_1", "2 * a"), ("good_2", "2 * a"), ("hard_3", "3 * a"), ("out_4", "a")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for path, text in files(double).items():
            (tmp_path / "data" / name / path).write_text(text)
    llm = {"toy": {"model": "toy", "endpoint": f"{vendor.url}/v1", "api_key": KEY}}
    (tmp_path / "llm.yaml").write_text(yaml.safe_dump(llm))
    base = {"output_path": str(tmp_path / "exps"), "benchmark": "kodcode", "problems": "all", "uuid": "one"}
    base |= {"env_kwargs": {"data_path": str(tmp_path / "data"), "run_timeout": 30}, "max_steps": 4}
    base |= {"llm_config_file_path": str(tmp_path / "llm.yaml"), "llm_name": "toy", "excluded_ids": ["out_4"]}
    agents = {"debug_agent": {"tools": ["grep", "pdb", "view", "rewrite", "eval"]}}
    agents |= {"rewrite_agent": {"tools": ["grep", "view", "rewrite", "eval"]}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"base": base, **agents}))
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("SWE_PDB_API_KEY", raising=False)

    def started(*params, force=Force.NONE, most=0, **asked):
        told = RunRequest(tmp_path / "config.yaml", **{"agent": "debug_agent", "params": params} | asked)
        return run_configuration(told, ROOT, force, most)

    return started


def statuses(runs):
    folders = [path for path in runs.iterdir() if path.is_dir() and path.name != "evaluation"]
    return {path.name: read_json(path / f"{path.name}_status.json")["status"] for path in sorted(folders)}


@pytest.mark.full
def test_an_offline_run_leaves_its_files_goes_on_and_is_forced(offline, vendor, tmp_path):
    runs = tmp_path / "exps/one"
    lines, errors = offline(most=2)
    assert (lines[0], lines[-3], errors) == ("resolved: ['good_1', 'good_2']", "acc: 66.67%", 0)
    lines, errors = offline(workers=2)
    assert errors == 0 and lines[:3] == [
        "resolved: ['good_1', 'good_2']",
        "unresolved: ['hard_3']",
        "error: ['out_4']",
    ]
    assert lines[3:7] == ["num_resolved: 2", "num_unresolved: 1", "num_error: 1", "acc: 50.00%"]
    assert (runs / "summary.txt").read_text().splitlines() == lines
    assert statuses(runs) == {
        "good_1": "skip-resolved",
        "good_2": "skip-resolved",
        "hard_3": "unresolved",
        "out_4": "error",
    }
    one = runs / "good_1"
    names = {"debug_gym.log", "good_1_status.json", "trajectory.json", "tool_calls.json"}
    assert {path.name for path in one.iterdir()} == names | {"conversation.jsonl", "debug_gym.patch"}
    status = read_json(one / "good_1_status.json")
    assert (status["score"], status["max_score"], status["step"], status["total_steps"]) == (2, 2, 3, 4)
    calls = read_json(one / "tool_calls.json")
    assert calls["counts"] == {"pdb": 1, "rewrite": 1, "eval": 1} and calls["calls"][1]["name"] == "rewrite"
    log = read_json(one / "trajectory.json")["log"]
    assert log[0]["action"]["arguments"]["command"] == "start" and "pytest" in log[0]["obs"]
    roles = [message["role"] for message in read_jsonl(one / "conversation.jsonl")]
    assert roles[:4] == ["system", "user", "assistant", "tool"]
    assert "return a + b" in (one / "debug_gym.patch").read_text()
    before = len(vendor.requests)
    assert offline(force=Force.FAILED)[1] == 0
    assert len(vendor.requests) == before + 4 + 1, "hard_3 alone is done again, after one look at the service"
    assert offline(force=Force.ALL, most=1)[1] == 0 and statuses(runs)["good_1"] == "resolved"
    assert len(vendor.requests) == before + 5 + 3 + 1
    assert len(list(read_jsonl(runs / "experiment_info.jsonl"))) == 4
    assert not [path for path in runs.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("params", "asked", "said"),
    [
        (("base.max_step=3",), {}, "unknown key max_step"),
        ((), {"agent": "solution_agent"}, "no agent 'solution_agent'"),
        ((), {"llm_name": "another"}, "no model 'another' in it"),
        (("base.problems=[none_9]",), {}, "problems: no problem is called 'none_9'"),
        (("base.env_kwargs.data_path=nowhere",), {}, "it is neither at nowhere nor at"),
        (("base.terminal={type: kubernetes}",), {}, "terminal.type 'kubernetes'"),
        (("base.uuid=../x",), {}, "uuid '../x'"),
        (("debug_agent.tools=[teleport]",), {}, "tools"),
    ],
)
def test_what_an_offline_run_refuses(offline, params, asked, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        offline(*params, **asked)
    assert "\n" not in str(caught.value)


def test_problems_are_listed_without_a_model(offline, tmp_path):
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    del config["base"]["llm_name"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    done = run("scripts/run.py", tmp_path / "config.yaml", "--list", "--max-problems", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["good_1", "good_2"] and not (tmp_path / "exps").exists()


def test_what_llm_yaml_says_wrongly(offline, tmp_path, monkeypatch):
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("llm_config_file_path", "save_patch"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LLM_CONFIG_FILE_PATH", raising=False)
    with pytest.raises(InputError, match="llm_name toy: there is no llm.yaml; expected ~/.config"):
        offline()
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "llm.yaml").write_text("toy: {model: toy, endpoint: 'http://h/v1', generate_kwargs: 5}")
    with pytest.raises(InputError, match="toy: generate_kwargs is no mapping; expected keys and values"):
        offline()


def train(trainer, name, *words, **variables):
    folder = trainer.parent
    given = {"PYTHON_BIN": trainer, "SWE_PDB_CONFIGS": folder / "configs"}
    given |= {"SWE_PDB_CHECKPOINT_BASE": folder / "ckpt", "ROLLOUT_DATA_DIR": folder / "rollouts"}
    given |= {"VALIDATION_DATA_DIR": folder / "val"}
    return run(name, *words, **given | variables)


SCRIPTS = {
    "train_swepdb_4b.sh": ("swepdb-4b", "swepdb-rl/swepdb-qwen3-4b-0115"),
    "train_swepdb_8b.sh": ("swepdb-8b", "swepdb-rl/swepdb-qwen3-8b-1224-pure"),
    "train_swepdb_14b.sh": ("swepdb-14b", "swepdb-rl/swepdb-qwen3-14b-1222"),
    "train_swepdb_14b_rewrite.sh": ("swepdb-14b-rewrite", "swepdb-ablation/rewrite-qwen3-14b"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_training_script_runs_its_rule_and_leaves_its_names(trainer, name):
    recipe, kept = SCRIPTS[name]
    done = train(trainer, name)
    assert done.returncode == 0, done.stderr
    target = f"results/rl/{recipe}/checkpoint.json"
    assert f"{name} stands for rule `train_rl`, `snakemake {target}`" in done.stderr
    assert done.stdout.split()[0] == target
    assert (trainer.parent / "ckpt" / kept).readlink() == ROOT / f"results/rl/{recipe}/checkpoint"
    assert (trainer.parent / "rollouts").readlink() == ROOT / f"results/rl/{recipe}/rollouts"
    validation = trainer.parent / "val/validation.jsonl"
    assert validation.readlink() == ROOT / f"results/rl/{recipe}/validation.jsonl"


def test_words_and_variables_become_a_recipe_of_its_own(trainer):
    rows = trainer.parent / "mine.parquets"
    rows.write_bytes(b"")
    words = "actor_rollout_ref.actor.optim.lr=2e-6 rllm.agent.max_steps=50 data.max_response_length=16000"
    words += (
        " +rllm.env.env_args.enable_grep=False rllm.agent.overlong_filter=False trainer.n_gpus_per_node=2"
    )
    words += " +rllm.agent.engine_args.n_parallel_agents=16 algorithm.adv_estimator=rloo"
    words += " actor_rollout_ref.rollout.tensor_model_parallel_size=2"
    words += " actor_rollout_ref.actor.ppo_mini_batch_size=8"
    words += " actor_rollout_ref.actor.fsdp_config.param_offload=False"
    mine = trainer.parent / "mine"
    mine.mkdir()
    (mine / "config.json").write_text("{}")
    given = {"SWE_PDB_MODEL_PATH": mine, "N_PARALLEL": 4, "CUDA_VISIBLE_DEVICES": "2,3"}
    done = train(trainer, "train_swepdb_4b.sh", *words.split(), **given, TRAIN_DATA_FILES=rows)
    assert done.returncode == 0, done.stderr
    configs, name = trainer.parent / "configs", done.stdout.split()[0].split("/")[2]
    made = recipes.load_named(RL, name, configs)
    assert name.startswith("swepdb-4b-") and made.start == str(mine) and made.train.lr == 2e-6
    assert (made.rollouts.samples, made.rollouts.at_once, made.rollouts.context_length) == (4, 16, 20096)
    assert (made.method.advantage, made.method.failures.mask) == ("leave-one-out", [])
    assert (made.cluster.gpus, made.job.gpus) == (2, 2)
    assert (made.train.minibatches, made.cluster.trainer.offload) == (4, "optimizer")
    scaffold = recipes.load_named(SCAFFOLD, made.scaffold, configs)
    assert scaffold.step_limit == 50 and "grep" not in scaffold.tools and "pdb" in scaffold.tools
    sides = [recipes.load_named(SUBSET, each, configs) for each in (made.subset, made.validation.subset)]
    assert [(each.path, each.side) for each in sides] == [(str(rows), "train"), (str(rows), "heldout")]


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        ("trainer.logger=wandb", {}, "trainer.logger has no counterpart: figures are always kept; wandb"),
        ("+rllm.env.name=x", {}, "rllm.env.name has no counterpart: the scaffold says who acts; enable_pdb"),
        (
            "actor_rollout_ref.actor.ppo_mini_batch_size=5",
            {},
            "ppo_mini_batch_size=5 with 32 tasks a step; expected a number that divides them",
        ),
        ("algorithm.adv_estimator=gae", {}, "algorithm.adv_estimator=gae; expected grpo or rloo"),
        ("", {"N_PARALLEL": "many"}, "N_PARALLEL=many; expected a whole number"),
        (
            "rllm.agent.max_steps=x",
            {},
            "the settings of train_swepdb_4b.sh, in configs/scaffolds: field step_limit",
        ),
        ("", {"SWE_PDB_MODEL_PATH": "/none"}, "SWE_PDB_MODEL_PATH=/none: no such folder; expected weights"),
        ("", {"CHECKPOINT_DIR": "/proc/q/x"}, "cannot be made; expected SWE_PDB_CHECKPOINT_BASE, ROLL"),
        ("", {"CUDA_VISIBLE_DEVICES": "0,1"}, "names 2 GPUs; expected 4, or trainer.n_gpus_per_node=2"),
    ],
)
def test_what_a_training_script_refuses(trainer, words, variables, said):
    done = train(trainer, "train_swepdb_4b.sh", *words.split(), **variables)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"TRAIN_SCRIPT": "none.sh"}, "swe-pdb/none.sh; expected a script that can be run"),
        ({"DEADLINE_SECONDS": "soon"}, "DEADLINE_SECONDS=soon; expected a whole number, 1 or more"),
        ({"LOG_DIR": "/proc/none"}, "LOG_DIR=/proc/none: cannot be made; expected a folder"),
    ],
)
def test_what_the_wrapper_refuses(variables, said):
    done = run("train_swepdb_wrapper.sh", **{"TRAIN_SCRIPT": "/bin/true"} | variables)
    assert done.returncode == 2 and said in done.stderr.splitlines()[-1], done.stderr
    assert done.stdout == ""


@pytest.mark.full
def test_a_wrapped_run_goes_on_after_its_deadline_and_leaves_no_process(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        '#!/bin/bash\necho "run $1" >>runs\n[ "$(wc -l <runs)" -lt 3 ] || exit 0\n'
        '[ "$(wc -l <runs)" -lt 2 ] && exit 7\nsleep 1357 &\necho $! >child\nwait\n'
    )
    script.chmod(0o755)
    given = {"TRAIN_SCRIPT": script, "DEADLINE_SECONDS": 1, "PAUSE_SECONDS": 0, "GRACE_SECONDS": 1}
    done = run("train_swepdb_wrapper.sh", "a=b", cwd=tmp_path, LOG_DIR=tmp_path / "logs", **given)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs").read_text().splitlines() == ["run a=b"] * 3
    assert "run 0 ended with exit code 7" in done.stderr
    assert "run 1 is not over after 1 s: it is ended, and goes on" in done.stderr
    child = int((tmp_path / "child").read_text())
    for _ in range(50):
        if not os.path.exists(f"/proc/{child}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{child}"), "what it started is gone"
    given |= {"MAX_RESTARTS": 1}
    script.write_text("#!/bin/bash\nexit 1\n")
    done = run("train_swepdb_wrapper.sh", cwd=tmp_path, LOG_DIR=tmp_path / "logs", **given)
    assert done.returncode == 2 and "error: 2 runs did not end well" in done.stderr
