"""Rows as swesmith 0.0.9's collect_trajs writes them, compared with that program and its recorded output.

`collect_trajs.json` has its output for the folders made here. `SWELAB_PEER_RECORD=1` writes it again.
"""

import contextlib
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from swelab.records import InputError
from swelab.sft.rows.collect import compat_line, convert_all, folders_of, system_prompt, write_lines
from swelab.sft.rows.compat import LIMIT_NOTES, read_messages
from tests.at_hand import PEER, ROOT, TRAJECTORIES, needs_peer, needs_trajectories
from tests.unit.recorded_runs import (
    PATCH,
    acted,
    asked,
    call,
    seen,
    steps,
    system,
    trajectory,
    usual,
    write_report,
    write_run,
)

GOLDEN = Path(__file__).with_name("collect_trajs.json")
PROMPT = "agent:\n  templates:\n    system_template: |-\n      A stub prompt.\n      Its second line.\n"
STYLES = ("xml", "ticks", "tool")


def turn(message, **changes):
    return {**message, **changes}


def without(message, *names):
    return {key: value for key, value in message.items() if key not in names}


def conversation(*turns):
    return trajectory([system(), asked(), *turns, acted("Done.", "submit", {}), seen(PATCH)])


def edge_cases():
    """Returns trajectories by folder name. Each differs from the usual in one way that real ones do."""
    look = acted("I look.", "bash", {"command": "ls"})
    view = {"command": "view", "path": "/a", "view_range": [1, -1], "deep": {"k": [None, True]}, "n": 1.50}
    edit = {"old_str": "x\n", "new_str": "", "file_text": "\n</parameter>\u00e9\ud83d\ude00"}
    limit = {"response": "Exit due to cost limit"}
    spoken = turn(look, content="Exit due to cost limit")
    raw = json.dumps(trajectory())
    return {
        "usual": trajectory(),
        "old": trajectory(old=True),
        "plain_text": trajectory([turn(m, content="plain") for m in usual()]),
        "one_character": trajectory([system(), turn(asked(), content="x"), look, seen("y")]),
        "typed_arguments": conversation(acted(" t ", "str_replace_editor", view), seen("x")),
        "edited": conversation(acted("t\n", "str_replace_editor", edit), seen("x")),
        "two_calls": conversation(turn(look, tool_calls=[call("a", {"x": 1}), call("b", {})]), seen("x")),
        "no_calls": conversation(turn(look, tool_calls=None), seen("x")),
        "bad_arguments": conversation(turn(look, tool_calls=[call("bash", "{")]), seen("x")),
        "listed_arguments": conversation(turn(look, tool_calls=[call("bash", "[1]")]), seen("x")),
        "requeried": conversation({"role": "assistant", "content": "hm"}, asked("Use it."), look, seen("")),
        "null_thought": conversation(turn(look, thought=None), seen("x")),
        "null_action": conversation(turn(look, action=None), seen("x")),
        "no_thought": conversation(without(look, "thought"), seen("x")),
        "no_key_calls": conversation(without(look, "tool_calls"), seen("x")),
        "two_parts": conversation(look, turn(seen("x"), content=[{"text": "a"}, {"text": "b"}])),
        "no_part": conversation(look, turn(seen("x"), content=[])),
        "null_content": conversation(look, turn(seen("x"), content=None)),
        "dict_content": conversation(look, turn(seen("x"), content={"text": "a"})),
        "no_content": conversation(look, without(seen("x"), "content")),
        "no_role": conversation(without(look, "role"), seen("x")),
        "cost": trajectory(exit_status="submitted (exit_cost)", last=limit),
        "context": trajectory(last={"response": "Exit due to context window"}),
        "format": trajectory(exit_status="exit_format", last={"response": "Exit due to format error"}),
        "cost_alone": trajectory([], last=limit),
        "cost_spoken": conversation(spoken, seen("x")),
        "no_steps": trajectory([]),
        "no_response": trajectory() | {"trajectory": [{"query": usual()}]},
        "null_query": trajectory() | {"trajectory": [{"query": None, "response": ""}]},
        "null_messages": trajectory() | {"trajectory": [{"messages": None}]},
        "text_query": trajectory() | {"trajectory": [{"query": "ab", "response": ""}]},
        "both": trajectory() | {"trajectory": [{"messages": usual(), "query": [], "response": ""}]},
        "steps_as_dict": trajectory() | {"trajectory": {"a": 1}},
        "no_trajectory": without(trajectory(), "trajectory"),
        "no_replay": without(trajectory(), "replay_config"),
        "null_replay": trajectory(replay_config=None),
        "bad_replay": trajectory(replay_config="{}"),
        "empty_system": trajectory([turn(system(), content=""), *usual()[1:]]),
        "cut": raw[:-40],
        "empty": "",
        "marked": "\ufeff" + raw,
        "list": "[]",
        "not_utf8": raw.encode().replace(b"swe_main", b"\xff"),
        "not_utf8_inside": raw.encode().replace(b"a = 1", b"a \xff 1"),
        "surrogate": raw.replace("Let me look.", "\\ud800"),
        "raw_newline": raw.replace("swe_main", "swe\nmain"),
        "not_a_number": raw.replace('"execution_time": 0.1', '"execution_time": NaN'),
        "huge_number": raw.replace('"execution_time": 0.1', '"execution_time": 1' + "0" * 40),
        "twice": raw.replace('{"trajectory"', '{"trajectory": [1], "trajectory"', 1),
        "accents": conversation(acted("\u00e9 \u2028 \x7f \u0000", "bash", {"k": "\u00e9"}), seen("\t\x01")),
    }  # fmt: skip


REPORTS = {
    "bench_report": {"bench_report": {"resolved": True}},
    "unresolved": {"resolved": False, "patch_exists": True},
    "timed_out": {"timed_out": True, "timeout": 90},
    "listed_report": [],
    "text_report": '"text_report"',
    "cut_report": "{",
    "null_verdict": {"resolved": None},
}
PATCHES = {"no_patch": None, "returns": "a\r\nb\rc\n", "empty_patch": ""}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns (trajectories, reports): every edge case, report and patch, and folders that are skipped."""
    root = tmp_path_factory.mktemp("collect")
    trajs, reports = root / "trajs", root / "eval"
    for name, content in edge_cases().items():
        write_run(trajs, name, content)
        write_report(reports, name)
    for name, report in REPORTS.items():
        write_run(trajs, name, trajectory())
        write_report(reports, name, report)
    for name, patch in PATCHES.items():
        write_run(trajs, name, trajectory(), patch)
        write_report(reports, name)
    write_run(trajs, "compact", trajectory(), indent=None)
    write_report(reports, "compact")
    write_run(trajs, "no_report", trajectory())
    (reports / "no_report").mkdir()
    write_run(trajs, "not_graded", trajectory())
    (trajs / "no_traj").mkdir()
    write_report(reports, "no_traj")
    (trajs / "preds.json").write_text("{}")
    (root / "infer.yaml").write_text(PROMPT)
    return trajs, reports


def ours(trajs, reports, style, output, workers=1, spelled=None):
    prompt = system_prompt(trajs.parent / "infer.yaml")
    convert = partial(compat_line, spelled or trajs, reports, style, prompt)
    return write_lines(convert_all(convert, folders_of(trajs, reports), workers), output)


def reference(root, trajs, reports):
    """Returns collect_trajs' lines by style, run as a user would: in the folder, with relative paths."""
    script = ROOT / "benchmarks" / "reference_collect.py"
    command = [PEER, script, "--system-prompt", "infer.yaml", "--style", *STYLES, "--out-dir", "."]
    command += ["--traj-dir", trajs.relative_to(root), "--eval-dir", reports.relative_to(root)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {style: (root / f"{reports.name}.{style}.jsonl").read_text().splitlines() for style in STYLES}


def lines_of(root, trajs, reports, monkeypatch):
    monkeypatch.chdir(root)
    found = {}
    for style in STYLES:
        found[style] = []
        with contextlib.suppress(InputError):  # there are no rows: the peer writes an empty file
            ours(trajs, reports, style, root / "ours.jsonl", spelled=trajs.relative_to(root))
            found[style] = (root / "ours.jsonl").read_text().splitlines()
    return found


@pytest.mark.full
@pytest.mark.parametrize("end", [1 << 6, 1 << 10, 1 << 18])
def test_every_line_is_what_the_peer_once_wrote(runs, monkeypatch, end):
    """For any number of bytes that are read first from a file's end."""
    monkeypatch.setattr("swelab.rollouts.trajectory_files.END", end)
    golden = json.loads(GOLDEN.read_text())
    found = lines_of(runs[0].parent, *runs, monkeypatch)
    assert {style: sorted(lines) for style, lines in found.items()} == golden


@pytest.mark.full
@needs_peer
@needs_trajectories
def test_real_trajectories_are_as_the_peer_writes_them(tmp_path, monkeypatch):
    trajs, reports = tmp_path / "trajs", tmp_path / "eval"
    for number, path in enumerate(sorted(TRAJECTORIES.glob("*.traj"))):
        name = f"real-{number}"
        (trajs / name).mkdir(parents=True)
        shutil.copy(path, trajs / name / f"{name}.traj")
        write_report(reports, name)
        content = json.loads(path.read_text())
        if not content.get("trajectory"):
            continue
        # The files are replays: their steps have no conversation, and some contain their configuration.
        for age, old in (("new", False), ("older", True)):
            replay = (
                {"replay_config": json.dumps(content["replay_config"])} if "replay_config" in content else {}
            )
            whole = content | {"trajectory": steps(content["history"], old)} | replay
            write_run(trajs, f"{name}-{age}", whole)
            write_report(reports, f"{name}-{age}")
    (tmp_path / "infer.yaml").write_text(PROMPT)
    theirs = reference(tmp_path, trajs, reports)
    found = lines_of(tmp_path, trajs, reports, monkeypatch)
    for style in STYLES:
        assert sorted(found[style]) == sorted(theirs[style])
    assert len(theirs["xml"]) >= 16 and len(theirs["tool"]) >= 16


def test_of_a_file_as_swe_agent_writes_it_only_the_end_is_read(tmp_path):
    """Steps before the last two are not read. In another layout the whole file is read."""
    turns = [turn for n in range(20) for turn in (acted("t", "bash", {"command": "x" * 300}), seen(f"{n}"))]
    content = trajectory([*usual()[:2], *turns, *usual()[2:]])
    content["trajectory"][0]["observation"] = "mark"
    limit = content | {"trajectory": [*content["trajectory"], {"query": [{}], "response": LIMIT_NOTES[0]}]}
    for number, whole in enumerate((content, limit)):
        text = json.dumps(whole, indent=2)
        path = tmp_path / f"{number}.traj"
        path.write_text(text)
        wanted = read_messages(path)
        assert wanted[0][-1]["content"] and len(wanted[0]) > 40
        harmed = text.replace('"mark"', '"mark', 1)
        path.write_text(harmed)
        assert read_messages(path) == wanted
        path.write_text(harmed.replace("{\n  ", "{ \n  ", 1))
        with pytest.raises(json.JSONDecodeError):
            read_messages(path)
