"""Every file that stages write has the same bytes after it is read as typed records and written again."""

import json

import pytest

from swelab.files.json_streams import list_items, object_items, write_object
from swelab.records import as_record, read_json, read_records, write_json, write_jsonl
from swelab.records.attempt_records import Grade, Prediction, Trajectory, Usage
from swelab.records.report_records import Report
from swelab.records.score_records import Manifest, Score, VerifiedScore
from swelab.records.task_records import Lock, Task
from tests.unit.finished_experiment import build

FORMS = {
    "lines": lambda path, kind, to: write_jsonl(to, (row for _, row in read_records([path], kind))),
    "whole": lambda path, kind, to: write_json(to, as_record(read_json(path), kind, path)),
    "list": lambda path, kind, to: write_json(
        to, [as_record(row, kind, path) for _, row in list_items(path)]
    ),
    "object": lambda path, kind, to: write_object(
        to, ((name, as_record(row, kind, path)) for name, row in object_items(path))
    ),
}
FILES = [
    ("grades/*/*/*of*.jsonl", "lines", Grade),
    ("rollouts/*/*/*of*.jsonl", "lines", Trajectory),
    ("rollouts/*/*/preds.json", "object", Prediction),
    ("rollouts/*/*/usage.json", "object", Usage),
    ("grades/*/*/report.json", "whole", Report),
    ("scores/*/*.json", "whole", Score),
    ("verified_score.json", "whole", VerifiedScore),
    ("tasks/*.lock.json", "whole", Lock),
    ("tasks/*.json", "list", Task),
    ("**/*.manifest.json", "whole", Manifest),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    build(folder, train=6, heldout=6)
    return folder / "results"


def is_one(path, kind):
    if kind is Manifest:  # some invented manifests have only the parts that the page shows
        return "code" in json.loads(path.read_text())
    return ".manifest." not in path.name and (kind is not Task or ".lock." not in path.name)


@pytest.mark.parametrize(("pattern", "form", "kind"), FILES, ids=[pattern for pattern, _, _ in FILES])
def test_a_file_is_the_same_after_it_was_read_and_written(results, tmp_path, pattern, form, kind):
    paths = [path for path in results.glob(pattern) if is_one(path, kind)]
    assert paths
    for path in paths:
        FORMS[form](path, kind, tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == path.read_bytes(), path
