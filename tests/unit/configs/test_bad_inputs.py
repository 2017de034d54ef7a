"""Each bad input gets one line with the fault, its place and the expected value. Nothing is written."""

import gzip
import importlib
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from swelab.configs import recipes
from swelab.console.terminal import run_script
from swelab.records import InputError
from swelab.records.task_records import Task
from tests.conftest import ROOT
from tests.toy_checkpoint import make_checkpoint

ROW = Task.of(
    {
        "instance_id": "own__calc-1",
        "repo": "own/calc",
        "patch": "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a\n+b\n",
        "problem_statement": "add is wrong",
        "FAIL_TO_PASS": ["t.py::test_add"],
        "PASS_TO_PASS": [],
        "image_name": "own/calc",
    }
)
PREDICTION = {"instance_id": "own__calc-1", "model_name_or_path": "p", "model_patch": "x"}
TRAJECTORY = {
    "instance_id": "own__calc-1",
    "policy": "p",
    "subset": "s",
    "outcome": "submitted",
    "model_patch": "",
    "messages": [],
    "info": {},
    "trajectory_format": "mini-swe-agent-1.1",
}


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


def rows(**change):
    return json.dumps([ROW | change])


def predictions(**change):
    return json.dumps([PREDICTION | change])


def sft(text):
    return f"base: tiny\ntrain:\n  {text}\n"


SFT = [  # the text of an SFT recipe, words of the message
    (sft("lr: .nan"), ["field train.lr: nan", "a finite number"]),
    (sft("lr: .inf"), ["field train.lr: inf", "a finite number"]),
    (sft("lr: -1e-4"), ["train.lr: -0.0001: Input should be greater than"]),
    (sft("lr: fast"), ["train.lr", "'fast': Input should be a valid number"]),
    (sft("learning_rate: 0.1"), ["unknown key train.learning_rate"]),
    (sft("ephocs: 3"), ["unknown key train.ephocs (did you mean 'epochs'?)"]),
    (sft("epochs: 3\n  epochs: 4"), ["line 4", "'epochs' is given twice"]),
    (sft("epochs: 0"), ["train.epochs: 0", "greater than or equal to 1"]),
    (sft("epochs: 2.5"), ["train.epochs", "a valid integer"]),
    (sft("epochs: " + "9" * 5000), ["4300"]),
    (sft("betas: [0.9, .nan]"), ["field train.betas.1: nan"]),
    ("base: tiny\ntrain: [1]\n", ["field train: [1]: Input should be a valid dictionary"]),
    ("- base\n", ["a list", "a mapping of sft settings"]),
    ("", ["an empty file", "a mapping of sft settings"]),
    ("base: tiny\n\ttrain: {}\n", ["line 2", "not YAML"]),
    ("base: tiny\nnote: \x07\n", ["not YAML", "special characters"]),
    ("base: 2026-13-45\n", ["not YAML", "month"]),
    ("? [a, b]\n: 1\n", ["line 1", "a list as a key"]),
    ("base: " + "[" * 10_000, ["nested too deeply"]),
    ("base: &x [*x]\n", ["Circular reference"]),
    ("base: tiny\n".encode("utf-16"), ["UTF-16", "UTF-8 text"]),
]
TASKS = [  # the subset's rows as a file, its name, words of the message
    ("[" + "1" * 5000 + "]", "rows.json", ["line 1", "more than 4,300 digits"]),
    ("[" * 10_000, "rows.json", ["nested too deeply"]),
    ('{"a":' * 10_000, "rows.jsonl", ["line 1", "nested too deeply"]),
    (rows(difficulty=float("nan")), "rows.json", ["line 1", "the constant NaN"]),
    (json.dumps(ROW | {"n": float("inf")}), "rows.jsonl", ["line 1", "the constant Infinity"]),
    ("", "rows.jsonl", ["holds no row"]),
    (gzip.compress(rows().encode(), mtime=0), "rows.json", ["gzip-compressed", "unpack it first"]),
    (gzip.compress(rows().encode(), mtime=0), "rows.jsonl", ["gzip-compressed", "unpack it first"]),
    (b"PAR1 cut short", "rows.parquet", ["a Parquet file"]),
    (rows(eval_type="zzz"), "rows.json", ["row 0 (own__calc-1)", "eval_type", "'zzz' is not one of"]),
    (rows(test_patch=["a"]), "rows.json", ["test_patch", "is not of type"]),
    (rows(instance_id="../../x"), "rows.json", ["instance_id", "does not match"]),
    (rows(problem_statement="a\ud800b"), "rows.json", ["problem_statement", "\\ud800"]),
    (json.dumps([ROW, ROW | {"patch": "other"}]), "rows.json", ["own__calc-1", "unique ids"]),
]
PREDICTIONS = [  # a file of predictions, words of the message
    ("[1, 2]", ["prediction 0", "is not of type 'object'"]),
    (predictions(model_patch=7), ["prediction 0", "model_patch", "7 is not of type"]),
    (json.dumps([PREDICTION, PREDICTION]), ["own__calc-1 is predicted twice"]),
    (json.dumps({"other": PREDICTION}), ["key other holds the prediction of own__calc-1"]),
    (predictions(score=float("nan")), ["NaN"]),
    (gzip.compress(predictions().encode(), mtime=0), ["gzip-compressed"]),
]


@pytest.fixture
def refuse(tmp_path, monkeypatch, capsys):
    """Runs a script with bad input. Expects exit code 2, one line with these words, and no new file."""

    def run(script, *arguments, words):
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run_script(importlib.import_module(f"scripts.{script}").main)
        told = [text for text in capsys.readouterr().err.splitlines() if text]
        assert ended.value.code == 2 and len(told) == 1 and told[0].startswith("error: "), told
        for word in words:
            assert word in told[0]
        assert len(told[0]) < 600
        made = set(tmp_path.rglob("*")) - set(before)
        assert all(path.name == "progress" and path.stat().st_size == 0 for path in made), made

    return run


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("text, words", SFT)
def test_recipes(refuse, tmp_path, text, words):
    recipe = write(tmp_path / "recipe.yaml", text)
    options = [f"--{name}={tmp_path / name}" for name in ("progress", "checkpoint", "manifest", "loss")]
    given = ["--dataset", tmp_path / "none.jsonl", "--base", tmp_path / "none.json", "--recipe", recipe]
    refuse("train_sft", *given, *options, words=["recipe.yaml", *words])


@pytest.mark.parametrize("content, name, words", TASKS)
def test_rows_of_tasks(refuse, tmp_path, content, name, words):
    path = write(tmp_path / name, content)
    make_tasks(refuse, tmp_path, path, words)


def make_tasks(refuse, tmp_path, path, words):
    recipe = write(tmp_path / "mine.yaml", f"source: dataset\npath: {path}\n")
    options = [f"--{name}={tmp_path / name}" for name in ("repos-dir", "progress", "output", "manifest")]
    refuse("make_tasks", "--recipe", recipe, *options, words=words)


@pytest.mark.parametrize(
    "values, words",
    [
        (pyarrow.array([b"\xff\x00"]), ["column more holds binary", "text, numbers"]),
        (pyarrow.array([[b"\xff"]]), ["column more holds list", "binary"]),
        (pyarrow.array(["1.5"]).cast(pyarrow.decimal128(10, 2)), ["column more holds decimal128(10, 2)"]),
        (pyarrow.array([[1.0, float("inf")]]), ["column more: holds inf", "finite numbers"]),
        (pyarrow.array([10**12]).cast(pyarrow.timestamp("s")), ["cannot be read", "a Parquet file"]),
    ],
)
def test_columns_of_parquet(refuse, tmp_path, values, words):
    columns = {name: pyarrow.array([value]) for name, value in ROW.items() if name != "PASS_TO_PASS"}
    columns["PASS_TO_PASS"] = pyarrow.array(["[]"])
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns | {"more": values}), path)
    make_tasks(refuse, tmp_path, path, ["rows.parquet", *words])


@pytest.mark.parametrize("content, words", PREDICTIONS)
def test_predictions(refuse, tmp_path, content, words):
    tasks = write(tmp_path / "tasks.json", rows(test_cmd="pytest", repo_recipe="calc"))
    path = write(tmp_path / "preds.json", content)
    given = ["--tasks", tasks, "--predictions", path, "--repos-dir", tmp_path, "--policy", "p"]
    options = ["--subset", "s", "--progress", tmp_path / "progress", "--output", tmp_path / "grades.jsonl"]
    refuse("grade", *given, *options, words=["preds.json", *words])


PAIRS = "selection:\n  max_tokens: 400\npairs:\n  per_instance: 1\n"
ONE_TRAJECTORY = json.dumps(TRAJECTORY) + "\n"
NOTHING = [  # a script, the files that it reads, its options except outputs, words of the message
    ("choose_tasks", {}, "--recipe {0}/attempted.yaml --attempted {0}/none.json --grades {0}/none.jsonl",
     ["none.json", "holds no task"]),
    ("choose_tasks", {}, "--recipe {0}/attempted.yaml --attempted {0}/tasks.json --grades {0}/none.jsonl",
     ["no attempt at a task of s was graded", "policy p"]),
    ("rate_difficulty", {}, "--tasks {0}/none.json --rater {1}/raters/difficulty.yaml "
     "--policy {1}/policies/difficulty-rater.yaml", ["none.json", "holds no task"]),
    ("submit_predictions", {}, "--tasks {0}/none.json --predictions {0}/preds.json --recipe {0}/set.yaml "
     "--policy p", ["none.json", "holds no task"]),
    ("submit_predictions", {}, "--tasks {0}/tasks.json --predictions {0}/none.json --recipe {0}/set.yaml "
     "--policy p", ["none.json", "holds no prediction"]),
    ("export_tasks", {}, "--tasks {0}/none.json --recipe {0}/set.yaml", ["none.json", "holds no task"]),
    ("export_tasks", {"half.json": json.dumps([ROW, without(ROW, "repo")])},
     "--tasks {0}/half.json --recipe {0}/set.yaml", ["half.json, row 1", "repo"]),
    ("unpack_trajectories", {"p.yaml": "kind: recorded\npath: {0}/none.jsonl\n"},
     "--recipe {0}/p.yaml --downloads {0}/downloads", ["none.jsonl", "holds no row"]),
    ("unpack_trajectories", {"p.yaml": "kind: recorded\npath: {0}/gone\n"},
     "--recipe {0}/p.yaml --downloads {0}/downloads", ["gone", "no such"]),
    ("build_sft_pairs", {}, "--trajectories {0}/none.jsonl --grades {0}/none.jsonl --base {0}/toy.json "
     "--recipe {0}/pairs.yaml", ["none.jsonl", "holds no trajectory"]),
    ("build_sft_pairs", {}, "--trajectories {0}/one.jsonl {0}/none.jsonl --grades {0}/none.jsonl "
     "--base {0}/toy.json --recipe {0}/pairs.yaml",
     ["one.jsonl and 1 more: nothing comes of 1 trajectories ({'not_graded': 1})"]),
    ("build_sft_pairs", {}, "--trajectories {0}/one.jsonl --grades {0}/none.jsonl --base {0}/gone.json "
     "--recipe {0}/pairs.yaml", ["gone.json", "no such file"]),
    ("build_sft_dataset", {}, "--trajectories {0}/none.jsonl --grades {0}/none.jsonl --base {0}/toy.json "
     "--recipe {0}/sft.yaml", ["none.jsonl", "holds no trajectory"]),
    ("build_sft_dataset", {}, "--trajectories {0}/one.jsonl --grades {0}/none.jsonl --base {0}/toy.json "
     "--recipe {0}/sft.yaml", ["nothing comes of 1 trajectories"]),
    ("measure_lengths", {}, "--data_file {0}/none.jsonl --base {0}/toy", ["none.jsonl", "holds no row"]),
    ("pull_images", {}, "--tasks {0}/tasks.json --predictions {0}/other.json --store {0}/store",
     ["other.json", "predicts no task"]),
    ("train_rl", {"bare.json": "{}"}, "--recipe {1}/rl/demo.yaml --start {0}/bare.json "
     "--tasks {0}/tasks.json --repos-dir {0}/repos", ["bare.json", "names no digest"]),
    ("train_rl", {}, "--recipe {1}/rl/demo.yaml --start {0}/toy.json --tasks {0}/none.json "
     "--repos-dir {0}/repos", ["none.json", "holds no task"]),
]  # fmt: skip
OUTPUTS = {
    "submit_predictions": "progress output",
    "rate_difficulty": "progress output manifest",
    "build_sft_pairs": "dataset manifest lengths stats",
    "build_sft_dataset": "dataset manifest lengths stats",
    "measure_lengths": "stats_file",
    "pull_images": "progress output",
    "train_rl": "progress checkpoint manifest",
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    make_checkpoint(folder / "toy")
    return folder


@pytest.mark.parametrize("script, files, options, words", NOTHING)
def test_nothing_comes_of_nothing(refuse, tmp_path, toy, script, files, options, words):
    """Not even a folder is made."""
    given = {
        "none.json": "[]",
        "none.jsonl": "",
        "one.jsonl": ONE_TRAJECTORY,
        "tasks.json": rows(),
        "preds.json": predictions(),
        "other.json": predictions(instance_id="other"),
        "toy.json": '{"digest": "0"}',
        "attempted.yaml": "source: attempted\nsubset: s\npolicy: p\nat_least: 0.1\n",
        "set.yaml": "source: dataset\ndataset: princeton-nlp/SWE-bench_Verified\nrevision: " + "a" * 40,
        "sft.yaml": "base: tiny\n",
        "pairs.yaml": f"base: tiny\n{PAIRS}",
    }
    for name, text in given.items():
        write(tmp_path / name, text)
    for name, text in files.items():
        write(tmp_path / name, text.replace("{0}", str(tmp_path)))
    (tmp_path / "toy").symlink_to(toy / "toy")
    outputs = OUTPUTS.get(script, "output manifest").split()
    made = [f"--{name}={tmp_path / ('' if name == 'progress' else 'made') / name}" for name in outputs]
    split = [word.format(tmp_path, ROOT / "configs") for word in options.split()]
    refuse(script, *split, *made, words=words)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    from swelab.rollouts.predictions import load_predictions
    from swelab.tasks.task_rows import read_tasks

    for text, read in ((rows(), read_tasks), (predictions(), load_predictions)):
        assert len(list(read(write(tmp_path / "x.json", b"\xef\xbb\xbf" + text.encode())))) == 1


@pytest.mark.parametrize(
    "text, value", [("1e-4", 1e-4), ("2E5", 2e5), ("1.e3", 1e3), (".5e0", 0.5), ("3", 3), ("1e-4x", "1e-4x")]
)
def test_numbers_with_an_exponent(tmp_path, text, value):
    assert recipes.read_yaml(write(tmp_path / "x.yaml", f"lr: {text}\n")) == {"lr": value}


def test_what_pandas_writes_for_nothing(tmp_path):
    from swelab.files.dataset_files import read_rows

    table = pyarrow.table({"instance_id": ["a"], "hints": [float("nan")], "n": [[1.5, float("nan")]]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    assert list(read_rows(tmp_path / "rows.parquet", 8)) == [
        {"instance_id": "a", "hints": None, "n": [1.5, None]}
    ]


@pytest.mark.parametrize("name", ["my set", "a+b", "-x", "ü"])
def test_names_of_recipes(tmp_path, name):
    folder = tmp_path / "subsets"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text("source: drill\n")
    with pytest.raises(InputError, match="cannot name a recipe; expected letters"):
        recipes.names("subset", tmp_path)
