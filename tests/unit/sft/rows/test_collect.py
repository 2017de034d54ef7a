"""Folders to rows by hand: rows that collect_trajs loses are there, and unusable ones are counted."""

import json
import subprocess
import sys

import pytest

from swelab.records import InputError, read_json
from swelab.sft.rows.collect import convert_all, folders_of, system_prompt
from swelab.sft.rows.student_parsers import parse_xml
from tests.unit.recorded_runs import (
    PATCH,
    acted,
    asked,
    mini,
    seen,
    system,
    trajectory,
    write_mini,
    write_report,
    write_run,
)


@pytest.fixture
def runs(tmp_path):
    trajs, reports = tmp_path / "trajs", tmp_path / "run1"
    bad = [system(), asked(), acted("t", "bash", {"command": "echo '</function>'"}), seen("x")]
    write_run(trajs, "plain", trajectory(), "of another", {"model_patch": PATCH})
    write_run(
        trajs, "bench", trajectory(last={"response": "Exit due to cost limit"}, exit_status="exit_cost")
    )
    write_run(trajs, "unresolved", trajectory())
    write_run(trajs, "cut", json.dumps(trajectory())[:-9])
    write_run(trajs, "unreadable", trajectory([*bad, acted("d", "submit", {})]))
    write_run(trajs, "ungraded", trajectory())
    write_run(trajs, "misgraded", trajectory())
    (trajs / "empty").mkdir()
    write_mini(trajs, "mini", mini())
    for name in ("plain", "cut", "unreadable", "mini", "empty"):
        write_report(reports, name)
    write_report(reports, "bench", {"bench": {"resolved": True}})
    write_report(reports, "unresolved", {"resolved": False})
    write_report(reports, "misgraded", "[")
    return tmp_path


def collect(root, *options):
    command = [sys.executable, "-m", "scripts.collect_trajs", "-t", root / "trajs", "-e", root / "run1"]
    return subprocess.run([*command, "-o", root / "out", "-w", "2", *options], capture_output=True, text=True)


def test_whole_conversations_of_resolved_runs(runs):
    done = collect(runs)
    assert done.returncode == 0, done.stderr
    rows = {row["instance_id"]: row for row in map(json.loads, open(runs / "out" / "run1.xml.jsonl"))}
    assert list(rows) == ["bench", "mini", "plain"]
    assert list(rows["plain"]) == ["messages", "instance_id", "resolved", "model", "traj_id", "patch"]
    assert rows["plain"]["patch"] == PATCH and rows["plain"]["model"] == "expert/one"
    assert parse_xml(rows["plain"]["messages"][-1]["content"]).name == "submit"
    assert parse_xml(rows["bench"]["messages"][-1]["content"]).name == "submit"  # the limit lost nothing
    first = {
        "cannot_be_read": "empty",
        "no_report": "ungraded",
        "not_JSON": "cut",
        "unreadable_call": "unreadable: message 2 calls bash",
        "unreadable_report": "misgraded",
        "unresolved": "unresolved",
    }
    dropped = {reason: {"count": 1, "first": where} for reason, where in first.items()}
    facts = read_json(runs / "out" / "run1.xml.manifest.json")
    assert facts == {"folders": 9, "rows": 3, "dropped": dropped}
    assert "; 1 dropped: unreadable_call (first unreadable: message 2 calls bash)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_options(runs):
    (runs / "prompt.yaml").write_text("agent: {templates: {system_template: Use functions.}}\n")
    done = collect(runs, "--system-prompt", runs / "prompt.yaml", "--malformed-turns", "mask")
    assert done.returncode == 0, done.stderr
    rows = {row["instance_id"]: row for row in map(json.loads, open(runs / "out" / "run1.xml.jsonl"))}
    assert list(rows) == ["bench", "mini", "plain", "unreadable"]
    assert {row["messages"][0]["content"] for row in rows.values()} == {"Use functions."}
    assert rows["unreadable"]["messages"][2]["weight"] == 0
    done = collect(runs, "--style", "tool")
    rows = [json.loads(text) for text in open(runs / "out" / "run1.tool.jsonl")]
    assert [len(row["tools"]) for row in rows] == [3, 1, 3, 3]


def test_compat_rows_by_the_script(runs):
    done = collect(runs, "--compat")
    assert done.returncode == 2 and "no --system-prompt" in done.stderr
    done = collect(runs, "--compat", "--style", "tool")
    rows = {row["instance_id"]: row for row in map(json.loads, open(runs / "out" / "run1.tool.jsonl"))}
    assert list(rows) == ["bench", "plain", "unreadable", "unresolved"]
    assert rows["plain"]["patch"] == "of another" and rows["unresolved"]["resolved"] is False


def test_faults_are_one_line(runs):
    (runs / "empty").mkdir()
    (runs / "lost" / "plain").mkdir(parents=True)
    for option, folder, fault in (
        ("-t", "nowhere", "cannot be read: No such file or directory"),
        ("-e", "nowhere", "cannot be read: No such file or directory"),
        ("-e", "empty", "holds no folder"),
        ("-e", "lost", "no row comes of 9 folders (9 no_report)"),
    ):
        done = collect(runs, option, runs / folder)
        assert done.returncode == 2 and fault in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list((runs / "out").glob("*"))
    for name, text, fault in [
        ("a.yaml", "agent: {}", "no agent.templates.system_template"),
        ("b.yaml", "a: [", "not YAML"),
        ("c.txt", None, "no such file"),
    ]:
        if text is not None:
            (runs / name).write_text(text)
        with pytest.raises(InputError, match=fault) as error:
            system_prompt(runs / name)
        assert "\n" not in str(error.value)
    (runs / "d.txt").write_text("Words.")
    assert system_prompt(runs / "d.txt") == "Words."
    with pytest.raises(InputError, match="cannot be read"):
        folders_of(runs / "nowhere", runs)


def test_order_and_a_lost_process(tmp_path):
    names = [f"i{number:03d}" for number in range(100)]
    assert [row for row, _ in convert_all(_named, names, 2)] == [name.encode() for name in names]
    with pytest.raises(InputError, match="a worker process ended early"):
        list(convert_all(_killed, names, 2))


def _named(name):
    return name.encode(), ""


def _killed(name):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
