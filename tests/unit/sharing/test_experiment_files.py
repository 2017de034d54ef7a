"""Files of a finished experiment that contain answers of hidden sets."""

from types import SimpleNamespace

from swelab.records import write_json
from swelab.scores.trail import Trail
from swelab.sharing.experiment_files import FinishedExperiment


class OfTheirs(FinishedExperiment):
    """An experiment that scores one set of task folders."""

    recipe = SimpleNamespace(benchmarks=["theirs"])


def test_task_folders_of_a_hidden_set_are_withheld_with_all_below_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = {"source": "harbor", "path": str(tmp_path / "brought/theirs"), "tests": "hidden"}
    write_json(tmp_path / "configs/subsets/theirs.yaml", recipe)
    write_json(tmp_path / "brought/theirs/one/tests/config.json", {})
    write_json(tmp_path / "brought/other.json", {})
    kept = "results/tasks/theirs.kept.json"
    write_json(tmp_path / kept, [])
    trail = Trail(files=dict.fromkeys([kept, "brought/theirs", "brought/other.json"]))
    one = "brought/theirs/one"
    folders = {"brought/theirs", one, f"{one}/tests", f"{one}/tests/config.json"}
    assert OfTheirs(None, "demo", trail).withheld() == folders | {kept}
