"""What a training refuses before it starts anything."""

from dataclasses import replace

import pytest

from swelab.grading.witness_store import KeptWitness, WitnessWriter
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.rl import training_run
from swelab.rl.rollout_inputs import Reads, validation_name
from swelab.rl.training_run import check_steps, run_name, train_policy
from swelab.sandbox import Image
from tests.rl_recipe import rl_recipe
from tests.unit.grading.test_witness_store import WITNESS


def reads_of(folder):
    """Writes the files behind two tasks: an archive, an image's digest, and a witness for each."""
    tasks = [
        Task.of({"instance_id": "a", "repo_recipe": "mine"}),
        Task.of({"instance_id": "b", "image_name": "there"}),
    ]
    (folder / "mine.tar").write_bytes(b"code")
    for name in "ab":
        with open(folder / f"{name}.zip", "wb") as stream, WitnessWriter(stream) as writer:
            writer.add(name, WITNESS)
    image = Image("there", "sha256:" + "0" * 64)
    return Reads(tasks, folder, tasks[:1], {"b": image}, [folder / "a.zip", folder / "b.zip"])


def rewrite_witness(reads):
    with open(reads.witness[0], "wb") as stream, WitnessWriter(stream) as writer:
        writer.add("a", KeptWitness.of({**WITNESS, "args": ["-x"]}))
    return reads


def rewrite_archive(reads):
    (reads.repos_dir / "mine.tar").write_bytes(b"other code")
    return reads


def replace_image(reads):
    return replace(reads, images={"b": Image("there", "sha256:" + "1" * 64)})


@pytest.mark.parametrize("change", [rewrite_witness, rewrite_archive, replace_image])
def test_another_file_behind_a_task_is_another_run(tmp_path, change):
    recipe, reads = rl_recipe(validation={"subset": "held"}), reads_of(tmp_path)
    name, validation = run_name(recipe, "start", reads), validation_name(recipe.validation, reads)
    assert run_name(recipe, "start", reads_of(tmp_path)) == name
    changed = change(reads)
    assert run_name(recipe, "start", changed) != name
    same = validation_name(recipe.validation, changed) == validation
    assert same == (change is replace_image)  # the image is that of a task that is not held out


@pytest.mark.parametrize("engine", ["embedded", "verl"])
def test_fewer_steps_than_a_run_has_finished_are_refused(tmp_path, monkeypatch, engine):
    """The weights of five steps are not those of a recipe with three, and nothing of them is lost."""
    work = tmp_path / "work"
    if engine == "verl":
        (work / "verl").mkdir(parents=True)
        (work / "verl/latest_checkpointed_iteration.txt").write_text("5")
    else:
        for step in (4, 5):
            (work / f"checkpoint-{step:05d}").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(training_run, "open_fleet", None)  # no engine is started
    small = {"rollouts": {"context_length": 512, "max_tokens": 24}, "engine": engine}
    recipe = rl_recipe(train={"steps": 3}, **small)
    with pytest.raises(InputError) as fault:
        train_policy(recipe, tmp_path / "toy", Reads([], tmp_path), work)
    said = f"{work}: train.steps is 3, and this run of the recipe has finished 5 steps;"
    assert str(fault.value) == f"{said} expected steps of at least 5, or a recipe of another name"
    assert sorted(tmp_path.rglob("*")) == before
    check_steps(rl_recipe(train={"steps": 5}, **small), work)
    check_steps(recipe, tmp_path / "new")
