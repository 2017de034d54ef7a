"""SWE-smith's names and options as its users type them: rows, training, grading."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.conftest import BUG, ROOT, run_python
from tests.toy_checkpoint import (
    CONTEXT,
    DIM,
    FEED_FORWARD,
    HEADS,
    KV_HEADS,
    LAYERS,
    VOCAB,
    conversations,
    make_checkpoint,
)

SCRIPTS = sorted((ROOT / "scripts").glob("train*.sh"))


def run_script(name, *arguments, cwd, **variables):
    told = {
        **os.environ,
        "PYTHON_BIN": sys.executable,
        **{key: str(value) for key, value in variables.items()},
    }
    command = [ROOT / "scripts" / name, *arguments]
    return subprocess.run(command, cwd=cwd, env=told, capture_output=True, text=True)


def toy_config(folder):
    """Writes a torchtune configuration in the original's shape, for a toy model on the CPU."""
    shipped = yaml.safe_load((ROOT / "configs/train/full_ft_qwen_7b_local.yml").read_text())
    toy, rows = make_checkpoint(folder / "toy"), folder / "data.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in conversations(8)))
    model = {"vocab_size": VOCAB, "num_layers": LAYERS, "num_heads": HEADS, "num_kv_heads": KV_HEADS}
    model |= {"embed_dim": DIM, "intermediate_dim": FEED_FORWARD, "max_seq_len": CONTEXT}
    model |= {"rope_base": 500.0, "tie_word_embeddings": True}
    special = {
        f"<|{name}|>": VOCAB - 3 + place for place, name in enumerate(["endoftext", "im_start", "im_end"])
    }
    shipped["output_dir"] = str(folder / "out")
    shipped["model"] = {"_component_": "torchtune.models.qwen2.qwen2", **model}
    shipped["tokenizer"] = {
        "_component_": "torchtune.models.qwen2.Qwen2Tokenizer",
        "path": f"{toy}/vocab.json",
        "merges_file": f"{toy}/merges.txt",
        "special_tokens": special,
    }
    shipped["checkpointer"] |= {"checkpoint_dir": str(toy), "checkpoint_files": ["model.safetensors"]}
    shipped["dataset"]["data_files"] = str(rows)
    shipped |= {
        "device": "cpu",
        "dtype": "fp32",
        "compile": False,
        "epochs": 1,
        "log_peak_memory_stats": False,
    }
    path = folder / "config.yml"
    path.write_text(yaml.safe_dump(shipped))
    return path


@pytest.mark.full
def test_a_torchtune_configuration_is_run_as_it_is(tmp_path):
    path = toy_config(tmp_path)
    stats = tmp_path / "stats.json"
    stats.write_text(json.dumps({"file": str(tmp_path / "data.jsonl"), "num_samples": 8, "gt_32768": 0}))
    done = run_script(
        "train_run_ft_torchtune_local.sh", cwd=tmp_path, CONFIG_PATH=path, LEN_STATS_FILE=stats,
        HF_HOME=tmp_path / "cache", OMP_NUM_THREADS=1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    assert done.stderr.startswith("train_run_ft_torchtune_local.sh stands for the rule train_sft: snakemake ")
    assert "0 of 8 rows are longer than 32768 tokens" in done.stdout
    assert (tmp_path / "out/epoch_0/config.json").is_file()
    stats.write_text(json.dumps({"file": str(tmp_path / "data.jsonl"), "num_samples": 7, "gt_32768": 0}))
    wrong = {"CONFIG_PATH": path, "LEN_STATS_FILE": stats}
    done = run_script("train.run_ft_torchtune.local.sh", cwd=tmp_path, **wrong)
    assert done.returncode == 2 and "num_samples = 7" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_script_says_its_rule_and_fails_clearly(path, tmp_path):
    done = run_script(path.name, cwd=tmp_path, CONFIG_PATH="no-such.yml")
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{path.name} stands for the rule ") and done.returncode == 2
    assert lines[-1].startswith("error: ") and "Traceback" not in done.stderr
    rule = lines[0].split(" rule ")[1].split(":")[0]
    rules = "".join(file.read_text() for file in (ROOT / "rules").glob("*.smk"))
    assert f"rule {rule}:" in rules


@pytest.mark.real
def test_a_predictions_file_is_graded_into_the_originals_folder(tmp_path, repos_dir, task):
    other = task | {"instance_id": "swelab__calc.00000000.func_pm_op_change__other000"}
    (tmp_path / "subset0.json").write_text(json.dumps([task, other]))
    fix = "".join(swapped(line) for line in BUG.splitlines(keepends=True))
    rows = {
        task["instance_id"]: {"model_name_or_path": "run", "model_patch": fix},
        other["instance_id"]: {"model_name_or_path": "run", "model_patch": ""},
        "nobody__x.1": {"model_name_or_path": "run", "model_patch": "x"},
    }
    (tmp_path / "preds.json").write_text(json.dumps(rows))
    command = [
        "-m",
        "scripts.run_evaluation",
        "--dataset_path",
        tmp_path / "subset0.json",
        "--run_id",
        "mine",
    ]
    command += ["--predictions_path", tmp_path / "preds.json", "--workers", 2, "--timeout", 240]
    command += ["--logs", tmp_path / "logs", "--repos-dir", repos_dir]
    done = run_python(*command)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "logs/mine"
    report = json.loads((folder / "report.json").read_text())
    assert (report["resolved"], report["unresolved"], report["total"]) == (1, 1, 3)
    assert report["ids_resolved"] == [task["instance_id"]] and report["ids_unknown"] == ["nobody__x.1"]
    one = json.loads((folder / task["instance_id"] / "report.json").read_text())
    assert one["resolved"] and one["patch_exists"] and one["tests_status"]["FAIL_TO_PASS"]["success"]
    assert (folder / task["instance_id"] / "patch.diff").read_text() == fix
    log = (folder / task["instance_id"] / "test_output.txt").read_text()
    assert f"PASSED {task['FAIL_TO_PASS'][0]}" in log
    assert not (folder / other["instance_id"] / "test_output.txt").exists(), "an empty patch is not run"
    (folder / "report.json").unlink()
    assert run_python(*command, "--report_only").returncode == 0
    assert json.loads((folder / "report.json").read_text()) == report
    gold = ["--predictions_path", "gold", "--run_id", "gold", "--instance_ids", "*abcd1234"]
    assert run_python(*command, *gold).returncode == 0
    assert json.loads((tmp_path / "logs/gold/report.json").read_text())["resolved"] == 1
    (tmp_path / "subset0.json").write_text(json.dumps([task | {"repo_recipe": ""}]))
    done = run_python(*command)
    assert done.returncode == 2 and "--images with the record of pulled images" in done.stderr


def swapped(line):
    """Returns a line of a diff with + and - swapped."""
    if line.startswith(("---", "+++")):
        return line
    return {"-": "+", "+": "-"}.get(line[0], line[0]) + line[1:]
