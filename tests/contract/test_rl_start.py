"""A training that starts from a folder of weights, which has no manifest."""

import shlex
import subprocess

import pytest

from swelab.models.policy_models import folder_digest
from swelab.records import InputError, read_json
from swelab.rl.training_run import read_start
from tests.contract.small_rl import RECIPE, ROOT, command, make_place
from tests.e2e.clone import make_clone, snakemake
from tests.toy_checkpoint import make_checkpoint

RECIPE = RECIPE.replace("steps: 3", "steps: 1")
PLAN = "{start: models/toy, subset: drill-practice, scaffold: demo, train: {steps: 1}}\n"
TARGET = "results/rl/mine/checkpoint.json"


@pytest.mark.real
def test_a_folder_is_a_start(tmp_path):
    place = make_place(tmp_path, RECIPE.replace("model:toy", str(tmp_path / "toy")))
    (place / "toy.json").unlink()
    words = [word.replace("toy.json", "toy") for word in command(place)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    start = read_json(place / "out/checkpoint.json")["start"]
    assert start == {"name": str(place / "toy"), "digest": folder_digest(place / "toy")}
    assert (place / "out/checkpoint/model.safetensors").is_file()


def test_the_digest_of_a_folder_is_that_of_all_its_files(tmp_path):
    toy = make_checkpoint(tmp_path / "toy.v2")
    folder, first = read_start(toy)
    assert folder == toy
    (toy / "chat_template.jinja").write_text("{{ messages }}")
    assert read_start(toy)[1] != first
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no weights"):
        read_start(tmp_path / "none")


def test_the_workflow_passes_the_folder(tmp_path):
    clone = make_clone(tmp_path / "swelab")
    make_checkpoint(clone / "models/toy")
    recipe = clone / "configs/rl/mine.yaml"
    recipe.write_text(PLAN)
    code, text = snakemake(clone, "-n", "-p", "--verbose", targets=[TARGET])
    assert code == 0 and starts(text) == ["models/toy"], text
    assert "models/toy/model.safetensors" in text, "a change of the weights is not noticed"
    recipe.write_text(PLAN.replace("models/toy", "sft:small"))
    code, text = snakemake(clone, "-n", "-p", "--verbose", targets=[TARGET])
    assert code == 0 and starts(text) == ["results/sft/small/checkpoint.json"], text
    (clone / "models/toy").rename(clone / "models/{toy}")
    recipe.write_text(PLAN.replace("models/toy", '"models/{toy}"'))
    code, text = snakemake(clone, "-n", targets=[TARGET])
    told = [line for line in text.splitlines() if line.startswith("error: ")]
    assert code and told and "braces in a path" in told[0] and "configs/rl/mine.yaml" in told[0], text


def starts(text):
    """Returns the values of --start in the shell command of train_rl."""
    words = shlex.split(text.partition("scripts.train_rl")[2].partition("--tasks")[0].replace("\\\n", " "))
    assert words[:1] == ["--start"], text
    return words[1:]
