"""Files of an evaluation for others: the leaderboard's folder, and the browser in a terminal."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys

import pytest
import yaml

from swelab.records import read_json, read_jsonl, write_json
from tests.conftest import BUG, ROOT, make_repos, make_task, run_python
from tests.contract.attacks import PATIENCE

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    make_repos(folder)
    (folder / "oracle.yaml").write_text("{kind: scripted, scaffold: demo, give_up: 0.5, seed: 3}")
    rows = [make_task() | {"instance_id": f"calc__calc-{n}"} for n in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--model", folder / "oracle.yaml", "--data", folder / "rows.jsonl", "--no-checks"]
    given += ["--repos-dir", folder / "repos", "--output-dir", folder / "out"]
    done = run_python("-m", "scripts.evaluate", *given)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_the_leaderboard_s_folder_holds_all_and_no_more(evaluation, tmp_path):
    told = ["--report", "https://example.org/report", "--authors", "A, B", "--os-model"]
    command = ["-m", "scripts.export_leaderboard", evaluation, "--to", tmp_path, "--name", "toy", *told]
    done = run_python(*command)
    assert done.returncode == 0 and "in place of --site, --org" in done.stdout, done.stderr
    (out,) = tmp_path.iterdir()
    rows = list(read_jsonl(out / "all_preds.jsonl"))
    assert [row["instance_id"] for row in rows] == [f"calc__calc-{n}" for n in range(4)]
    assert all(set(row) == {"instance_id", "model_name_or_path", "model_patch"} for row in rows)
    found = read_json(out / "results/results.json")
    solved = {row["instance_id"] for row in rows if row["model_patch"]}
    assert set(found["resolved"]) == solved and 0 < len(solved) < 4 and not found["no_logs"]
    assert set(found["no_generation"]) == {row["instance_id"] for row in rows} - solved
    meta = yaml.safe_load((out / "metadata.yaml").read_text())
    assert meta["info"]["name"] == "toy" and meta["tags"]["os_model"] and meta["tags"]["system"]
    said = (out / "README.md").read_text()
    assert f"{len(solved)} of 4 resolved" in said and said.count("- [x]") == 4 and "at most 8 steps" in said
    assert "README.md: tasks | 4 of `rows.jsonl`; 4 tasks are no whole split" in done.stdout
    for name in solved:
        report = read_json(out / "logs" / name / "report.json")
        assert report[name]["resolved"] and "PASSED" in (out / "logs" / name / "test_output.txt").read_text()
        assert (out / "logs" / name / "patch.diff").exists() and (out / "trajs" / f"{name}.traj").exists()
    for path in (path for path in out.rglob("*") if path.is_file()):
        text = path.read_text()
        assert str(evaluation.parent) not in text and str(ROOT) not in text and BUG not in text, path
    again = run_python(*command)
    assert again.returncode == 2 and "this folder exists already" in again.stderr
    write_json(tmp_path / "part/summary.json", {"complete": False})
    part = run_python(*command[:2], tmp_path / "part", *command[3:])
    assert part.returncode == 2 and "this evaluation is not finished" in part.stderr


def test_the_leaderboard_s_folder_tells_no_key_and_no_path(evaluation, tmp_path, monkeypatch):
    key = "made-up-" + "k" * 40
    monkeypatch.setenv("SOME_API_KEY", key)
    shutil.copytree(evaluation, tmp_path / "mine")
    row = next(row for row in read_jsonl(evaluation / "results.jsonl") if row["resolved"])
    trajectory = read_json(path := tmp_path / "mine" / row["run_dir"] / "traj.json")
    trajectory["messages"].append({"role": "user", "content": f"é {key} in {ROOT}/x"})
    write_json(path, trajectory)
    command = ["-m", "scripts.export_leaderboard", tmp_path / "mine", "--to", tmp_path / "to"]
    done = run_python(*command, "--name", "toy")
    assert done.returncode == 0 and "with `[key]` in its place: 1\n" in done.stdout, done.stderr
    texts = [path.read_text() for path in (tmp_path / "to").rglob("*") if path.is_file()]
    assert not [text for text in texts if key in text or str(ROOT) in text]
    assert any("é [key] in [path]/x" in text for text in texts)


def test_a_person_looks_through_it_in_a_terminal(evaluation, tmp_path):
    main, other = pty.openpty()
    command = [sys.executable, "-m", "scripts.browse", str(evaluation)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=other, stdout=other, stderr=other)
    os.close(other)
    seen = ""

    def until(text):
        nonlocal seen
        while text not in seen:
            assert select.select([main], [], [], PATIENCE)[0], seen
            seen += os.read(main, 65536).decode(errors="replace")
        seen = seen.partition(text)[2]

    until("attempt 1/4  page 1/")
    keys = {"n": "page 2/", "N": "attempt 2/4  page 1/", "l": "> calc__calc-1", "G": "attempt 2/4"}
    for key, text in keys.items():
        os.write(main, key.encode())
        until(text)
    os.write(main, b"q")
    assert process.wait(PATIENCE) == 0
    os.close(main)


def test_what_a_model_printed_commands_no_terminal(tmp_path):
    message = {"role": "user", "content": "\x1b]0;owned\x07\x9b31m\rtext\x00"}
    write_json(tmp_path / "a/a.traj.json", {"messages": [message], "info": {"exit_status": "Submitted"}})
    done = run_python("-m", "scripts.browse", tmp_path)
    assert done.returncode == 0 and "text" in done.stdout and not set("\x1b\x07\x9b\r\x00") & set(done.stdout)
    none = run_python("-m", "scripts.browse", tmp_path, "--filter", "zz")
    assert none.returncode == 2 and "no such trajectory of 1" in none.stderr
    for folder, why in ((tmp_path / "none", "no such folder"), (tmp_path / "empty", "holds no trajectory")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        none = run_python("-m", "scripts.browse", folder)
        assert none.returncode == 2 and why in none.stderr
