"""The minutes of an evaluation that was started several times."""

from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.evaluation_run import RunTime
from tests.conftest import make_task
from tests.unit.evaluation.test_evaluation_run import attempt


def test_a_killed_run_counts_up_to_its_last_attempt(tmp_path):
    now, path = [0.0], tmp_path / "progress/minutes.json"
    first = RunTime(path, lambda: now[0])
    folders = AttemptFolders(tmp_path, {}, first.note)
    now[0] = 120
    folders.append(attempt(make_task(), status="resolved", resolved=True))
    now[0] = 6000  # killed: no record of its end
    second = RunTime(path, lambda: now[0])
    now[0] = 6060
    assert second.note() == 3
    assert RunTime(path, lambda: 0.0).note() == 3
