"""An evaluation grades with the witness file beside its tasks, as the workflow's rule grade does."""

import json
import sys

import pytest

from scripts import evaluate
from swelab.configs.kinds.subset import Validation
from swelab.console.terminal import run_script
from swelab.grading.grading_stage import Bench, grade_shard
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.witness_store import WitnessWriter
from swelab.jobs.journal import Journal
from swelab.records import read_json, read_jsonl
from swelab.rollouts.predictions import load_predictions
from swelab.tasks.checkout import RepoStore
from swelab.tasks.task_rows import read_tasks
from tests.conftest import make_repos, make_task
from tests.contract.hosted_service import Service, text_of
from tests.contract.test_witness import BUG, FILES, LUCK, OTHER

pytestmark = pytest.mark.real
HONEST = (
    LUCK.replace("-    return os", "~").replace("+    return", "-    return").replace("~", "+    return os")
)


def tasks():
    first = {"PASS_TO_PASS": ["tests/test_tags.py::test_short"], "test_files": ["tests/test_tags.py"]}
    first |= {"patch": BUG, "FAIL_TO_PASS": ["tests/test_tags.py::test_tag"]}
    luck = {"patch": LUCK, "PASS_TO_PASS": [], "FAIL_TO_PASS": ["tests/test_luck.py::test_draw"]}
    named = ("tags", first), ("luck", luck | {"test_files": ["tests/test_luck.py"]})
    return [
        make_task() | each | {"instance_id": name, "problem_statement": f"Mend {name}."}
        for name, each in named
    ]


def speak(turn, history):
    patch = OTHER if "Mend tags" in "".join(map(text_of, history)) else HONEST
    command = f"git apply - <<'END'\n{patch}END" if not turn else "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    return f"```bash\n{command}\n```"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with an archive, two validated tasks, and a witness file that lists only the first task."""
    from swelab.sandbox import open_backend

    folder = tmp_path_factory.mktemp("witnessed")
    make_repos(folder, FILES)
    (folder / "mine.kept.json").write_text(json.dumps(tasks()))
    bench = Bench(RepoStore(folder / "repos", folder / "trees"), open_backend())
    with (
        Journal(folder / "j.jsonl") as journal,
        open(folder / "mine.witness.zip", "wb") as stream,
        WitnessWriter(stream) as writer,
    ):
        lock = validate(tasks(), Validation(gold_runs=1), bench, journal, 2, writer=writer)
    assert len(lock.kept) == 2
    return folder


@pytest.fixture
def run(world, monkeypatch, capfd):
    service = Service(speak=speak)

    def called(out):
        given = ["--model", "openai/toy/model", "--api-base", f"{service.url}/v1", "--no-checks"]
        given += ["--data", world / "mine.kept.json", "--repos-dir", world / "repos", "--output-dir", out]
        given += ["--scaffold", "configs/scaffolds/demo.yaml", "--max-tokens", "200"]
        monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, given)])
        with pytest.raises(SystemExit) as end:
            run_script(evaluate.main)
        told = capfd.readouterr()
        assert end.value.code == 0, told.err
        return told, read_json(out / "summary.json"), len(service.requests)

    yield called
    service.close()


def test_the_file_beside_the_tasks_decides_as_in_the_workflow(world, run, tmp_path):
    out, file = tmp_path / "out", world / "mine.witness.zip"
    said, told, asked = run(out)
    assert f"witness: patches are judged with {file}" in said.err
    counts = {"file": file.name, "witnessed": 1, "weakly_witnessed": 0, "not_witnessed": 1}
    assert told["resolved"] == 2 and told["witness"] == counts
    assert "| of these witnessed | 1; weakly 0, not 1 |" in said.out
    rows = list(read_tasks(world / "mine.kept.json"))
    places = {"repos_dir": world / "repos", "progress": tmp_path / "grades.jsonl", "witness_path": file}
    named = {"policy": "p", "subset": "s", "shard": "000of001", "workers": 2}
    workflow = list(grade_shard(rows, load_predictions(out / "preds.json"), **named, **places))
    ours = {row["instance_id"]: row["grade"] for row in read_jsonl(out / "progress/results.jsonl")}
    for grade in workflow:
        mine = ours[grade.instance_id]
        assert (mine["status"], mine.get("witness")) == (grade.status, grade.get("witness"))

    file.rename(world / "away")
    said, told, again = run(out)
    assert again == asked, "rollouts are kept: only the verdicts are made anew"
    assert "witness: no witness file beside the tasks" in said.err
    nobody = {"file": None, "witnessed": None, "weakly_witnessed": None, "not_witnessed": None}
    assert told["witness"] == nobody and told["statuses"] == {"suspect": 1, "resolved": 1}
    assert "| of these witnessed | none: no witness file beside the tasks |" in said.out
    (world / "away").rename(file)
    assert run(out)[1]["witness"] == counts
