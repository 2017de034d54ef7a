"""Published rows of trajectories: unpacked, read as recordings, and written again in every style."""

import json

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.experiment import check_policy, is_published
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.sft import Selection
from swelab.records import InputError, check, write_jsonl
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.published_trajectories import unpack_trajectories
from swelab.rollouts.recorded_trajectories import import_recordings, read_recording
from swelab.rollouts.trajectory_files import recordings
from swelab.sft.rows.compat import compat_row
from swelab.sft.rows.dataset import kept_text
from swelab.sft.rows.student_parsers import read_call, read_line
from swelab.sft.rows.styles import Style, Unfit, write_conversation
from tests.unit.recorded_runs import (
    PATCH,
    acted,
    asked,
    seen,
    system,
    trajectory,
    usual,
    write_report,
    write_run,
)


def published(root, style, content=None, name="a__b.1.pr_2"):
    """Returns a row as collect_trajs publishes it."""
    write_run(root / "trajs", name, trajectory() if content is None else content)
    write_report(root / "eval", name)
    return json.loads(compat_row(root / "trajs", root / "eval", name, style, "Use functions."))


def policy(**settings):
    return recipes.complete(POLICY, {"kind": "recorded", **settings}, "p.yaml")


def recorded(root, row):
    """Returns the trajectory record of a row."""
    write_jsonl(root / "rows.jsonl", [row])
    unpack_trajectories(policy(path=str(root / "rows.jsonl")), root, root / "out")
    ((path,),) = recordings(root / "out").values()
    found = read_recording(path)
    check({**found, "policy": "p", "subset": "s"}, Trajectory, path)
    return found


@pytest.mark.parametrize("style", ["xml", "tool"])
@pytest.mark.parametrize("written", ["xml", "tool"])
def test_a_published_row_is_written_as_its_trajectory_is(tmp_path, style, written):
    """Except the last submit, which publishing loses. The text style also loses the ends of words."""
    found = recorded(tmp_path, published(tmp_path, style))
    assert (found["outcome"], found["model_patch"], found["info"]["patch_from"]) == (
        "submitted",
        PATCH,
        "row",
    )
    assert found["info"]["model"] == "expert/one" and found["info"]["resolved"] is True
    rows = write_conversation(found, Style(written, system="Use functions."))
    whole = read_recording(tmp_path / "trajs" / "a__b.1.pr_2" / "a__b.1.pr_2.traj")
    wanted = write_conversation(whole, Style(written, system="Use functions."))

    def told(conversation, end):
        for message in conversation.messages[:end]:
            for call in message.get("tool_calls", []):
                yield message["content"], call["function"]
            yield message["role"], None if message.get("tool_calls") else message["content"]

    assert list(told(rows, None)) == list(told(wanted, -2)) and rows.tools == wanted.tools


def test_ticks(tmp_path):
    found = recorded(tmp_path, published(tmp_path, "ticks"))
    assert found["trajectory_format"] == "swe-agent-text"
    rows = write_conversation(found, Style("ticks")).messages
    assert [m["content"] for m in rows if m["role"] == "assistant"] == [
        "Let me look.\n\n```\ncat pkg/a.py\n```",
        "Now the edit.\n\n```\nstr_replace_editor str_replace ...\n```",
    ]
    assert [m["content"] for m in kept_text(found["messages"], Selection()).messages][2].startswith(
        "Let me look."
    )


@pytest.mark.parametrize("text", ["x", "x\n", "\nx\n\n", "", "\n", "a\r\nb", "\u00e9\x00", "</function>"])
@pytest.mark.parametrize("name", ["file_text", "command"])
def test_arguments_come_back_as_they_were(tmp_path, name, text):
    turns = [system(), asked(), acted("t", "f", {name: text}), seen("x"), acted("d", "submit", {})]
    row = published(tmp_path, "xml", trajectory(turns))
    assert read_call(row["messages"][2]["content"]) == ("t", "f", {name: text})


def test_what_is_no_call():
    for text in ("words", "<function=a>", "<function=a>\n</function> more", "<function=a>\nx</function>"):
        assert read_call(text) is None
    assert read_call("<function=view>\n<parameter=view_range>[1, -1]</parameter>\n</function>") == (
        "", "view", {"view_range": [1, -1]},
    )  # fmt: skip
    assert read_call("see <function=x>\n\n<function=submit>\n</function>") == (
        "see <function=x>",
        "submit",
        {},
    )
    assert read_line("words") is None and read_line("t\n\n```\nls\n```") == ("t", "ls")


def test_a_refused_turn_in_a_row(tmp_path):
    turns = [*usual()[:2], {"role": "assistant", "content": "Hm."}, asked("Call one."), *usual()[2:]]
    for style in ("xml", "tool"):
        found = recorded(tmp_path / style, published(tmp_path / style, style, trajectory(turns)))
        with pytest.raises(Unfit, match="no_call"):
            write_conversation(found, Style("xml"))
        masked = write_conversation(found, Style("xml", malformed_turns="mask"))
        assert masked.messages[2] == {"role": "assistant", "content": "Hm.", "weight": 0}


ODD = [
    ({"instance_id": "../up"}, "no_instance_id"),
    ({"instance_id": ".."}, "no_instance_id"),
    ({"instance_id": None}, "no_instance_id"),
    ({"instance_id": "a" * 300}, "no_instance_id"),
    ({"messages": "[{"}, "messages_are_no_json"),
    ({"messages": "[" * 5000}, "messages_are_no_json"),
    ({"messages": "{}"}, "no_list_of_messages"),
    ({"messages": None}, "no_list_of_messages"),
    ({"messages": [1]}, "no_list_of_messages"),
    ({"messages": [{"role": "user", "content": "x"}]}, "no_turn_of_the_policy"),
    ({"patch": 3}, "patch_of_another_kind"),
]


def test_rows_that_are_no_trajectories_are_counted(tmp_path):
    row = published(tmp_path, "xml")
    rows = [{**row, **change} for change, _ in ODD]
    rows += [
        row,
        row,
        {**row, "instance_id": "b", "resolved": False},
        {**row, "instance_id": "c", "resolved": None},
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    wanted = {}
    for _, reason in ODD:
        wanted[reason] = wanted.get(reason, 0) + 1
    recipe = policy(path=str(tmp_path / "rows.jsonl"))
    told = unpack_trajectories(recipe, tmp_path, tmp_path / "all")
    dropped = {**wanted, "over_samples": 1}
    assert told == {"rows": 15, "instances": 3, "trajectories": 3, "dropped": dict(sorted(dropped.items()))}
    told = unpack_trajectories(
        recipe.model_copy(update={"resolved_only": True}), tmp_path, tmp_path / "resolved"
    )
    assert told["trajectories"] == 1 and told["dropped"]["not_resolved"] == 2
    assert list(recordings(tmp_path / "resolved")) == ["a__b.1.pr_2"]
    write_jsonl(tmp_path / "odd.jsonl", rows[:3])
    with pytest.raises(InputError, match="none of its 3 rows is a trajectory"):
        unpack_trajectories(policy(path=str(tmp_path / "odd.jsonl")), tmp_path, tmp_path / "none")


def test_several_of_an_instance_lie_apart(tmp_path):
    row = published(tmp_path, "xml")
    rows = [{**row, "patch": f"{PATCH}{n}", "instance_id": name} for n in range(3) for name in "ab"]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    told = unpack_trajectories(
        policy(path=str(tmp_path / "rows.jsonl")).model_copy(update={"samples": 2}),
        tmp_path,
        tmp_path / "out",
    )
    assert told["trajectories"] == 4 and told["dropped"] == {"over_samples": 2}
    for number in (0, 1):
        found = [
            record for record, _ in import_recordings(["a", "b"], recordings(tmp_path / "out" / str(number)))
        ]
        assert [record["model_patch"] for record in found] == [f"{PATCH}{number}"] * 2


def test_parquet_and_a_folder_of_files(tmp_path):
    rows = [published(tmp_path, style, name=f"by_{style}") for style in ("xml", "tool")]
    (tmp_path / "set").mkdir()
    listed = {
        "messages": [rows[0]["messages"]],
        "instance_id": ["by_xml"],
        "patch": [PATCH],
        "resolved": [True],
    }
    pyarrow.parquet.write_table(pyarrow.table(listed), tmp_path / "set" / "xml-0.parquet")
    text = {"messages": [json.dumps(rows[1]["messages"])], "instance_id": ["by_tool"], "patch": [None]}
    pyarrow.parquet.write_table(pyarrow.table(text), tmp_path / "set" / "tool-0.parquet")
    unpack_trajectories(policy(path=str(tmp_path / "set")), tmp_path, tmp_path / "out")
    found = {name: read_recording(paths[0]) for name, paths in recordings(tmp_path / "out").items()}
    assert (
        found["by_xml"]["trajectory_format"] == "swe-agent-text" and found["by_xml"]["model_patch"] == PATCH
    )
    assert found["by_tool"]["trajectory_format"] == "swe-agent" and found["by_tool"]["model_patch"] == ""
    assert len(write_conversation(found["by_tool"], Style("xml")).messages) == 5


def test_a_policy_names_one_place(tmp_path):
    commit = "0" * 40
    assert is_published(policy(path="x"))
    assert is_published(policy(dataset="a/b", revision=commit))
    assert not is_published(policy(folder="x"))
    (tmp_path / "policies").mkdir()
    for settings, fault in [
        ({}, "no place of trajectories"),
        ({"folder": "x", "path": "y"}, "folder and path"),
        ({"dataset": "a/b"}, "without revision"),
    ]:
        (tmp_path / "policies" / "p.yaml").write_text(yaml.safe_dump({"kind": "recorded", **settings}))
        with pytest.raises(InputError, match=fault) as error:
            check_policy("p", tmp_path)
        assert "\n" not in str(error.value)
