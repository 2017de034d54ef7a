"""Training at Modal with a stand-in for its client: the commands that it gets, and refusals."""

import json
import sys

import pytest

from swelab.configs.kinds.sft import Sft
from swelab.files.weights import identity
from swelab.records import InputError
from swelab.sft.train.on_modal import APP, Modal, ModalError, find_modal, train_on_modal, tune_on_modal
from tests.toy_checkpoint import make_checkpoint

CLIENT = """
import json, os, shutil, sys
from pathlib import Path
here = Path(__file__).parent
with open(here / "calls.jsonl", "a") as log:
    said = {name: os.environ.get(name) for name in ("N_GPUS", "SWELAB_MODAL_VOLUME")}
    log.write(json.dumps([sys.argv[1:], said]) + "\\n")
volume, words = here / "volume", sys.argv[1:]
if words[:2] == ["volume", "create"]:
    if volume.exists():
        sys.exit(f"Error: Volume {words[2]!r} already exists.")
    volume.mkdir()
elif words[:2] == ["volume", "put"]:
    source, target = Path(words[4]), volume / words[5].lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)
elif words[:2] == ["volume", "get"]:
    source, target = volume / words[3].lstrip("/"), Path(words[4])
    assert target.is_dir()
    if not source.exists():
        sys.exit("Error: No such file or directory")
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, target / source.name)
elif words[0] == "run" and (here / "fails").exists():
    sys.exit("modal.exception.RemoteError: the trainer ended with status 1")
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    program = tmp_path / "modal"
    program.write_text(f"#!{sys.executable}\n{CLIENT}")
    program.chmod(0o755)
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-hush")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-hush")
    return Modal(find_modal(str(program)), "vol", 4, tmp_path / "logs" / "modal.log")


@pytest.fixture
def files(tmp_path):
    made = {
        "dataset": tmp_path / "dataset.jsonl",
        "base": tmp_path / "toy.json",
        "recipe": tmp_path / "mine.yaml",
    }
    make_checkpoint(tmp_path / "toy")
    for path in made.values():
        path.write_text("{}\n")
    return made


def trained_there(tmp_path, **manifest):
    """Makes the files that the run leaves in the volume."""
    there = tmp_path / "volume" / "mine"
    make_checkpoint(there / "checkpoint", seed=3)
    (there / "loss.jsonl").write_text("{}\n")
    (there / "checkpoint.json").write_text(json.dumps({**identity(there / "checkpoint"), **manifest}))


def calls(tmp_path):
    return [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]


def train(client, files, tmp_path, nodes=1):
    recipe = Sft(base="toy", job={"nodes": nodes, "gpus": 4})
    train_on_modal(client, "mine", files["dataset"], files["base"], files["recipe"], recipe, tmp_path / "out")


def test_files_go_there_it_runs_and_the_checkpoint_comes_back(client, files, tmp_path):
    trained_there(tmp_path)
    train(client, files, tmp_path)
    words = [" ".join(call[:2] + call[-1:]) for call, _ in calls(tmp_path)]
    assert words == [
        "volume create vol",
        *(f"volume put /mine/{name}" for name in ("dataset.jsonl", "base.json", "recipe.yaml", "base")),
        f"run {APP}::train mine",
        *("volume get " + call[-1] for call, _ in calls(tmp_path)[-3:]),
    ]
    assert (tmp_path / "volume/mine/base/model.safetensors").is_file()
    assert all(said == {"N_GPUS": "4", "SWELAB_MODAL_VOLUME": "vol"} for _, said in calls(tmp_path))
    assert "hush" not in (tmp_path / "calls.jsonl").read_text() + client.log.read_text()
    out = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert out == ["checkpoint", "checkpoint.json", "loss.jsonl"]
    assert (
        identity(tmp_path / "out/checkpoint")["digest"]
        == identity(tmp_path / "volume/mine/checkpoint")["digest"]
    )


def test_a_run_that_fails_there_is_one_line_and_leaves_nothing(client, files, tmp_path):
    (tmp_path / "fails").touch()
    with pytest.raises(
        ModalError, match="ended with 1: .*RemoteError: the trainer ended with status 1; log: "
    ):
        train(client, files, tmp_path)
    (tmp_path / "fails").unlink()
    with pytest.raises(ModalError, match="volume get ended with 1: Error: No such file"):
        train(client, files, tmp_path)
    trained_there(tmp_path, digest="0" * 64)
    with pytest.raises(ModalError, match="not those of mine/checkpoint.json"):
        train(client, files, tmp_path)
    assert not list((tmp_path / "out").iterdir())


def test_what_cannot_be_sent_is_refused_before_anything_runs(client, files, tmp_path):
    with pytest.raises(InputError, match="job.nodes is 2; expected 1|job.nodes is 2"):
        train(client, files, tmp_path, nodes=2)
    files["recipe"].rename(tmp_path / "kept")
    with pytest.raises(InputError, match="mine.yaml: no such file"):
        train(client, files, tmp_path)
    (tmp_path / "kept").rename(files["recipe"])
    files["dataset"].write_text("\n")
    with pytest.raises(InputError, match="dataset.jsonl: holds no row"):
        train(client, files, tmp_path)
    assert not (tmp_path / "calls.jsonl").exists()


def test_a_torchtune_configuration_goes_as_it_is(client, tmp_path):
    (tmp_path / "c.yml").write_text("a: 1\n")
    tune_on_modal(client, tmp_path / "c.yml")
    assert calls(tmp_path)[0][0] == ["run", f"{APP}::tune_file", "--config", str(tmp_path / "c.yml")]
    (tmp_path / "c.yml").write_text("a: <MODEL_DIR>/x\n")
    with pytest.raises(
        InputError, match="a: <MODEL_DIR>/x was never filled in; expected paths of the volume"
    ):
        tune_on_modal(client, tmp_path / "c.yml")
    with pytest.raises(InputError, match="none.yml: no such file"):
        tune_on_modal(client, tmp_path / "none.yml")


def test_no_client_or_no_token_is_told_at_once(client, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="nothing: no such program; expected Modal's client: `make modal`"):
        find_modal(str(tmp_path / "nothing"))
    monkeypatch.delenv("MODAL_TOKEN_SECRET")
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "modal.toml"))
    with pytest.raises(InputError, match=r"modal.toml: Modal has no token; expected `modal setup`"):
        find_modal(client.program)
    (tmp_path / "modal.toml").write_text("[x]\n")
    assert find_modal(client.program) == client.program
