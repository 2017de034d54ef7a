"""The reports that a user reads during a training."""

import io
import sys
from types import SimpleNamespace

from swelab.models.token_turn import TokenTurn
from swelab.records.task_records import Task
from swelab.rl.rollouts import RolledOut, RolloutRequest
from swelab.rl.step_reports import StepReports, step_line, validation_line
from tests.tensorboard_events import scalars

LINE = {
    "step": 3,
    "rollouts": 64,
    "groups": 8,
    "rate/resolved": 0.515625,
    "reward/mean": 0.5,
    "rate/lost": 0.0,
    "groups_dropped/constant": 2,
    "groups_dropped/failure": 1,
    "train/entropy": 0.314,
    "time/rollouts": 61.2,
    "time/train": 9.0,
}


def test_a_step_is_one_line():
    said = "step 3 of 12: 64 rollouts, 52% resolved, reward 0.50, 3 of 8 groups not trained, entropy 0.31"
    assert step_line(LINE, 12) == f"{said}, 1:01 of rollouts, 0:09 of training"
    assert step_line({name: value for name, value in LINE.items() if "time/" not in name}, 12) == said


def test_a_validation_has_its_interval():
    figures = {"validation/tasks": 40, "validation/resolved": 27, "validation/lost": 2}
    said = "validation after 5 steps: 27 of 40 tasks resolved (68%, between 52% and 80%)"
    assert validation_line(5, figures) == f"{said}, 2 more lost to infrastructure"
    nothing = {"validation/tasks": 0, "validation/resolved": 0, "validation/lost": 1}
    assert validation_line(0, nothing).startswith("validation after 0 steps: 0 of 0 tasks resolved, 1 more")


def rollout(resolved):
    task = Task.of({"instance_id": "x"})
    turn = TokenTurn((1,), (2,), (-0.1,), "stop", ((0, "0"),))
    grade = {"status": "resolved", "resolved": resolved}
    return RolledOut(RolloutRequest(0, 0, task), {"outcome": "submitted", "messages": []}, grade, (turn,), {})


def test_a_run_tells_how_far_it_is_and_keeps_its_curves(tmp_path):
    stream = io.StringIO()
    reports = StepReports(tmp_path, stream=stream)
    reports.begin(steps=12, done=2, rollouts=808, finished=168)
    reports.on_validation(2, {"validation/tasks": 1, "validation/resolved": 1, "validation/lost": 0})
    reports.rolled_out(rollout(True))
    reports.rolled_out(rollout(False))
    reports.step(LINE)
    reports.close()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("validation after 2 steps: 1 of 1") and lines[1].startswith("step 3 of 12: ")
    assert lines[2].startswith("step 4 of 12: 170/808, 1 ok")
    found = scalars(tmp_path / "tensorboard")
    assert (3, "rate/resolved", 0.515625) in found and (2, "validation/resolved", 1.0) in found
    assert "step" not in {name for _, name, _ in found}


def test_curves_are_whole_after_a_kill(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "validation/resolved": 1}\n{"step": 1, "groups": 8}\n'
    )
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard/events.out.tfevents.1.cut").write_bytes(b"half")
    reports = StepReports(tmp_path, stream=io.StringIO())
    reports.begin(steps=4, done=1, rollouts=4, finished=1)
    reports.step({**LINE, "step": 2})
    reports.close()
    assert {step for step, *_ in scalars(tmp_path / "tensorboard")} == {0, 1, 2}


def test_weights_and_biases_gets_the_first_run_in_a_new_folder(tmp_path, monkeypatch, capfd):
    """The run starts when the training begins, so that a recipe that is refused starts none."""
    asked, points = [], []

    def init(**settings):
        asked.append(settings)
        return SimpleNamespace(log=lambda values, step: points.append((step, values)), finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "work/new"
    for _ in range(2):
        reports = StepReports(folder, "mine", io.StringIO())
        assert not points and len(asked) == folder.exists()
        reports.begin(steps=4, done=0, rollouts=4, finished=0)
        reports.step(LINE)
        reports.close()
        assert points.pop() == (3, {name: value for name, value in LINE.items() if name != "step"})
    assert "not told" not in capfd.readouterr().err
    first, again = asked
    assert first == again and first["id"] == (folder / "wandb.id").read_text()
    assert (first["project"], first["dir"]) == ("mine", str(folder))
