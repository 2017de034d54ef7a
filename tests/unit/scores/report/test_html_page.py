"""The content of the report, and that hostile trajectories have no effect on it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from swelab.agents.debugger.definitions import definitions
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.lineage import Wildcards
from swelab.models.chat.tool_form import ToolForm
from swelab.records import InputError, read_json, write_json
from swelab.records.attempt_records import Grade, Message, Trajectory
from swelab.records.score_records import Comparison
from swelab.scores.report.attempts import Packs
from swelab.scores.report.html_page import embed, render, source_hash
from swelab.scores.report.report_data import DROPPED, gather
from swelab.scores.report.trajectories import (
    STEPS,
    TEXT_CHARACTERS,
    in_order,
    steps,
    truncate,
    turns,
    view,
    visible,
)
from tests.unit.finished_experiment import HOSTILE
from tests.unit.report_page import Page, attempts, reported


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    return reported(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def page(experiment: Path) -> str:
    return (experiment / "results/report.html").read_text(encoding="utf-8")


def test_page_refers_to_nothing_outside_itself(page):
    for tag, attributes in Page(page).elements:
        assert "src" not in attributes and "srcset" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "embed", "base", "img"), tag
        assert attributes.get("href", "#").startswith("#"), attributes
        assert not any(name.startswith("on") or name == "style" for name in attributes), attributes
    outside = re.findall(r"(?:url\(|@import|src=|href=)\s*[\"']?(?!#)[^\s\"')]*:[^\s\"')]*", page)
    assert [found for found in outside if "example.invalid" not in found] == []


def test_policy_allows_this_script_and_this_style_only(page):
    parsed = Page(page)
    (policy,) = [
        each["content"]
        for tag, each in parsed.elements
        if each.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    data, packed, script = parsed.sources["script"]
    (style,) = parsed.sources["style"]
    assert f"script-src '{source_hash(script)}'" in policy
    assert f"style-src '{source_hash(style)}'" in policy
    assert "innerHTML" not in script and "insertAdjacent" not in script and "document.write" not in script
    assert json.loads(data)["runs"] and re.fullmatch(r"[A-Za-z0-9+/=\n]+", packed)


def test_hostile_trajectories_stay_text(page):
    assert page.lower().count("</script") == 3 and page.lower().count("<script") == 3
    assert "<!--" not in page and "<img" not in page
    assert "\u202e" not in page and "\x1b" not in page and "\x00" not in page
    prompts = [row["prompt"] for row in attempts(page)]
    assert prompts.count(visible(HOSTILE)) == 4
    assert (
        embed({"x": "</script><!--&\u2028\ud800"})
        == '{"x":"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028\\ud800"}'
    )


def sentences(page: str) -> str:
    return " ".join(" ".join(Page(page).texts).split())


def test_page_shows_tasks_lost_to_infrastructure_apart_and_with_both_rates(page, experiment):
    text, verified = sentences(page), read_json(experiment / "results/verified_score.json")
    for side in (verified, *verified["others"]):
        for name, policy in side["policies"].items():
            rest = policy["without_infra_errors"]
            assert policy["infra_errors"] and rest["total"] == policy["total"] - policy["infra_errors"]
            both = [f"{100 * each['resolve_rate']:.1f}%" for each in (policy, rest)]
            assert f"{name} lost {policy['infra_errors']} and has {both[1]}" in text
            assert f"{name} {side['benchmark']['name']} {policy['infra_errors']} {both[0]} {both[1]}" in text
    headline = verified["policies"]["sft"]["without_infra_errors"]["resolve_rate"]
    assert f"{100 * headline:.1f}% with 1 lost to infrastructure left out" in text
    script = read_json(experiment / "results/grades/scripted/forge-train/report.json")["resolved_instances"]
    assert f"scripted policy forge-train 1 {100 * script / 30:.1f}% {100 * script / 29:.1f}%" in text
    assert "Attempts lost to infrastructure count as not resolved here: " in text


def drawn(ids, seed=0, status="unresolved"):
    return [name for name, _ in in_order([dict.fromkeys(ids, status)], seed)]


def test_order_does_not_depend_on_other_ids():
    ids = [f"task-{number}" for number in range(500)]
    assert len(drawn(ids)) == 500 and drawn(ids) == drawn(ids[::-1]) != drawn(ids, 1)
    assert drawn(ids) == drawn(ids, status="resolved")
    grown = drawn([*ids, *(f"new-{number}" for number in range(50))])
    assert [name for name in grown if name in ids] == drawn(ids)


def test_two_failures_come_for_each_success():
    statuses = {f"task-{k}": "resolved" if k % 2 else "timeout" for k in range(60)}
    order = [statuses[name] == "resolved" for name, _ in in_order([statuses], 0)]
    assert sum(order[:30]) == 10 and sum(order[:45]) == 15 and sum(order) == 30
    assert order[45:] == [True] * 15
    both = in_order([{"a": "resolved"}, {"a": "unresolved"}], 0)
    assert both == [("a", 1), ("a", 0)]


def test_text_is_cut_and_says_so():
    text = truncate("a" * 10_000)
    assert "7,600 characters left out" in text and len(text) < TEXT_CHARACTERS + 100
    assert truncate("short") == "short"
    assert (
        visible("a\tb\nc\r\nd\re\x07\u200b")
        == "a\tb\nc\nd\u27e8U+000D\u27e9e\u27e8U+0007\u27e9\u27e8U+200B\u27e9"
    )


def steps_of(messages):
    return steps([Message.of(each) for each in messages])


def test_steps_of_other_scaffolds():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "issue"}]},
        {"role": "assistant", "content": None, "extra": {"actions": [{"command": "ls"}, {"command": "pwd"}]}},
        {"role": "tool", "content": "a"},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\ncat x\n```\n"},
        {"role": "exit", "content": "", "extra": {}},
    ]
    assert steps_of(messages) == [
        {"say": "", "commands": ["ls", "pwd"], "observations": ["a", "b"]},
        {"say": "THOUGHT: look", "commands": ["cat x"], "observations": []},
    ]


@pytest.mark.parametrize("calls", ["qwen", "xml"])
def test_calls_of_several_tools_are_shown_as_commands(calls):
    form = ToolForm(
        definitions(DebuggerSettings(tools=["pdb", "rewrite"])),
        calls,
        observation_template="{{output.output}}",
        format_error_template="{{error}}",
        max_observation_chars=1000,
    )
    messages = [{"role": "user", "content": "it fails"}]
    edit = {"path": "a.py", "start": 2, "new_code": "    return a"}
    for name, arguments in (("pdb", {"command": "b a.py:2"}), ("rewrite", edit)):
        content, told = form.format_call("I see.", name, arguments, len(messages))
        actions = form.parse(content, told, "stop")
        said = {"role": "assistant", "content": content, "tool_calls": told, "extra": {"actions": actions}}
        messages += [said, *form.show(said, [{"output": f"{name} ran", "returncode": 0}], {}, False)]
    stop, changed = steps([Message.of(each) for each in messages])
    assert stop == {"say": "I see.", "commands": ["pdb b a.py:2"], "observations": ["pdb ran"]}
    assert changed["commands"] == ["rewrite a.py start=2\n    return a"] and changed["say"] == "I see."


def test_long_trajectories_lose_their_middle_steps():
    found = steps_of([{"role": "assistant", "content": str(number)} for number in range(STEPS + 7)])
    assert len(found) == STEPS + 1 and found[STEPS // 2]["left_out"] == 7
    assert found[0]["say"] == "0" and found[-1]["say"] == str(STEPS + 6)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_packs_are_of_the_first_places_in_whatever_order_they_come(order):
    texts = ["aaa", "bbb", "c", "dddddd"]
    for quota, kept in ((7, 1), (8, 2), (9, 2), (10, 3), (99, 4), (3, 0)):
        packs = Packs(4, quota)
        for place in order:
            if packs.wants(place):
                packs.add(place, texts[place])
        assert packs.lines() == dict(enumerate(texts[:kept]))
    assert not Packs(2, 99).wants(2)


def test_a_rollout_without_a_grade_is_named(experiment, tmp_path):
    shutil.copytree(experiment, tmp_path / "copy")
    at = Wildcards({"experiment": "demo"}, experiment / "configs", tmp_path / "copy/results")
    (shard,) = map(Path, at.shards("grades", policy="base", subset="drill-heldout"))
    lines = shard.read_text().splitlines()
    name = json.loads(lines[0])["instance_id"]
    shard.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(InputError, match=f"a rollout without a grade: {name}"):
        gather(at, experiment / "results/verified_score.json", 0, 0)


def test_every_attempt_names_its_line_in_the_results(page, experiment):
    for row in attempts(page):
        path, line = re.fullmatch(r"(.*), line (\d+)", row["place"]).groups()
        record = json.loads((experiment / row["folder"] / path).read_text().splitlines()[int(line) - 1])
        assert (record["instance_id"], record["policy"]) == (row["id"], row["policy"])


REFUSED = {"role": "user", "content": "one block!", "extra": {"interrupt_type": "FormatError"}}


def test_what_the_agent_took_as_commands_is_what_was_run():
    block = "look\n```bash\nls\n```"
    ran = {"role": "assistant", "content": block, "extra": {"actions": [{"command": "ls"}]}}
    odd = {"role": "assistant", "content": block}
    answer = {"role": "user", "content": "a.py"}
    plain = {"say": "look", "commands": ["ls"], "observations": ["a.py"]}
    assert steps_of([ran, answer]) == [plain] == steps_of([odd, answer])
    refused = {"say": block, "commands": [], "observations": ["one block!"], "refused": True}
    assert steps_of([odd, REFUSED]) == [refused]
    twice = {"role": "assistant", "content": f"{block}\n{block}"}
    assert steps_of([twice, answer])[0]["refused"] and steps_of([twice, answer])[0]["commands"] == []
    told = steps_of([ran, answer, REFUSED])
    assert told == [plain, {"say": "", "commands": [], "observations": ["one block!"], "refused": True}]
    late = {"role": "tool", "content": "no", "extra": {"exception_info": "action was not executed"}}
    two = {**ran, "extra": {"actions": [{"command": "submit"}, {"command": "ls"}]}}
    assert steps_of([two, {"role": "tool", "content": "ok"}, late])[0]["not_run"] == [1]
    shown = {**ran, "extra": {"actions": [{"command": "demo"}], "demonstration": True}}
    record = Trajectory.of({"messages": [shown, answer, ran, answer], "model_patch": ""})
    assert view(record, Grade.of({}), [], "")["steps"] == [plain] and turns(record) == 1


def test_steps_tell_tokens_and_times():
    used = {"usage": {"prompt_tokens": 70, "completion_tokens": 5}, "seconds": 1.5, "cost": 0.01}
    ran = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "ls"}], **used}}
    (step,) = steps_of([ran, {"role": "user", "content": "", "extra": {"seconds": 0.25}}])
    assert step["tokens"] == [70, 5] and step["cost"] == 0.01
    assert (step["model_seconds"], step["command_seconds"]) == (1.5, 0.25)
    stamped = [
        {"role": "user", "content": "do", "extra": {"timestamp": 10.0}},
        {"role": "assistant", "content": "```bash\nls\n```", "extra": {"timestamp": 12.5}},
        {"role": "user", "content": "", "extra": {"timestamp": 13.0}},
    ]
    (step,) = steps_of(stamped)
    assert (step["model_seconds"], step["command_seconds"]) == (2.5, 0.5) and "tokens" not in step


@pytest.mark.parametrize(
    "message",
    [
        {"content": "I run.", "reasoning_content": "I look."},
        {
            "content": "I run.",
            "extra": {"sent_back": {"thinking_blocks": [{"thinking": "I look."}, {"data": "x"}]}},
        },
        {"content": "<think>\nI look.\n</think>\nI run."},
    ],
)
def test_thoughts_are_shown_apart_from_what_is_said(message):
    message["content"] += "\n```bash\nls\n```"
    (step,) = steps_of([{"role": "assistant", **message}])
    assert step["thoughts"] == "I look." and step["say"] == "I run." and step["commands"] == ["ls"]


def test_headline_is_about_every_benchmark_and_says_first_what_was_lost(page, experiment):
    verified = read_json(experiment / "results/verified_score.json")
    title = re.sub("<[^>]*>", "", re.search(r"<h1>(.*?)</h1>", page)[1])
    body = page[page.index("</h1>") :]
    for side in (verified, *verified["others"]):
        assert f"on {side['benchmark']['name']}:" in title
        assert f'<h2 class="bench-name">{side["benchmark"]["name"]} ' in body
        for policy in side["policies"].values():
            assert f"{100 * policy['resolve_rate']:.1f}%" in title
    lost = sum(
        p["infra_errors"] for side in (verified, *verified["others"]) for p in side["policies"].values()
    )
    assert title.endswith(f"; {lost} attempts lost to infrastructure")
    first = re.search(r"<p[^>]*>(.*?)</p>", body)[1]
    assert first.startswith(f"{lost} of 96 scored attempts were lost to infrastructure: ")


def test_page_states_what_validation_kept_and_left_out(page, experiment):
    text = sentences(page)
    assert "24 of 27 tasks valid; gold patches resolved 77 of 81 runs (3 each); 1 flaky, 2 broken" in text
    assert "24 of 24 tasks valid; gold patches resolved 72 of 72 runs (3 each); 0 flaky, 0 broken." in text
    for subset, entered, left in (
        ("drill-heldout", 27, 24),
        ("forge-train", 90, 30),
        ("drill-train", 30, 30),
    ):
        assert f"Validating {subset} {entered} {left} " in text
    assert "1 flaky: gold patch resolved in some runs only 2 broken: cannot be graded rightly" in text
    assert "drill-heldout 27 24 1 2 77 of 81" in text and "forge-train 90 30 0 60 90 of 270" in text
    lock = read_json(experiment / "results/tasks/drill-heldout.lock.json")
    for row in (*lock["flaky"], *lock["broken"]):
        assert f"{row['instance_id']} : {visible(row['reason'])}"[:300] in text
    listed = [
        row["instance_id"] for row in read_json(experiment / "results/tasks/forge-train.lock.json")["broken"]
    ]
    assert [name in text for name in listed] == [True] * DROPPED + [False] * (60 - DROPPED)
    assert "60 broken in forge-train (the first 50)" in text
    verified = read_json(experiment / "results/verified_score.json")
    assert verified["validation"]["broken"] == 2 and verified["others"][0]["validation"]["kept"] == 24
    hashed = {file["path"] for file in verified["manifest"]["files"]}
    assert "results/tasks/drill-heldout.lock.json" in hashed


def test_page_without_training_records_and_without_pairs(experiment):
    at = Wildcards({"experiment": "demo"}, experiment / "configs", experiment / "results")
    evidence = gather(at, experiment / "results/verified_score.json", 2, 0)
    test = dict(evidence.verified["comparison"])
    test |= dict.fromkeys(("p_value", "difference", "interval", "minimum_detectable_difference"), None)
    test |= {"pairs": 0, "both": 0, "neither": 0, "discordant": {"gained": 0, "lost": 0}}
    evidence.verified["comparison"] = Comparison.of(test)
    evidence.training = {"x": [{"step": 1, "loss": float("nan")}]}
    evidence.lengths, evidence.manifests = [], {}
    text = render(evidence)
    assert "so there is no comparison" in text and "no finite value among 1 steps" in text
    assert "not recorded" in text and ">n/a<" in text


def test_page_without_locks_says_so(experiment, tmp_path):
    shutil.copytree(experiment, tmp_path / "copy")
    root = tmp_path / "copy"
    at = Wildcards({"experiment": "demo"}, root / "configs", root / "results")
    rows = read_json(at.path("tasks", subset="drill-heldout"))
    rows[0]["test_cmd"] = "true"
    write_json(at.path("tasks", subset="drill-heldout"), rows)
    with pytest.raises(InputError, match="is not the task that was validated"):
        gather(at, root / "results/verified_score.json", 2, 0)
    for lock in (root / "results/tasks").glob("*.lock.json"):
        lock.unlink()
    verified = read_json(root / "results/verified_score.json")
    verified["manifest"]["missing"] = ["results/gone.json"]
    write_json(root / "results/verified_score.json", verified)
    evidence = gather(at, root / "results/verified_score.json", 2, 0)
    text = sentences(render(evidence))
    assert "Missing when this page was written: results/gone.json" in text
    assert text.count("The tasks were not validated: they have no lock.") == 2
    assert "drill-train not validated" in text and "Validating" not in text
    assert at.path("lock", subset="forge-train") in evidence.missing
