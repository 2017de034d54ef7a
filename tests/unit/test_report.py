"""The report: what it says, and that it is inert against hostile trajectories."""

import json
import re
from pathlib import Path

import pytest

from swelab.records import InputError, read_json
from swelab.scores.evidence import drops, gather, read_lengths
from swelab.scores.layout import Layout
from swelab.scores.report import embedded, fitting, render, source_hash
from swelab.scores.trajectories import STEPS, TEXT_CHARACTERS, cut, sample, steps, visible
from tests.unit.finished_experiment import HOSTILE
from tests.unit.report_page import Page, reported


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
    data, script = parsed.sources["script"]
    (style,) = parsed.sources["style"]
    assert f"script-src '{source_hash(script)}'" in policy
    assert f"style-src '{source_hash(style)}'" in policy
    assert "innerHTML" not in script and "insertAdjacent" not in script and "document.write" not in script
    assert json.loads(data)["runs"]


def test_hostile_trajectories_stay_text(page):
    assert page.lower().count("</script") == 2 and page.lower().count("<script") == 2
    assert "<!--" not in page and "<img" not in page
    assert "\u202e" not in page and "\x1b" not in page and "\x00" not in page
    data = json.loads(Page(page).sources["script"][0])
    prompts = [row["prompt"] for run in data["runs"] for row in run["shown"]]
    assert prompts.count(visible(HOSTILE)) == 4
    assert (
        embedded({"x": "</script><!--&\u2028\ud800"})
        == '{"x":"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028\\ud800"}'
    )


def test_page_says_what_was_found(page, experiment):
    verified = read_json(experiment / "results/verified_score.json")
    text = " ".join(" ".join(Page(page).texts).split())
    for name, policy in verified["policies"].items():
        assert f"{100 * policy['resolve_rate']:.1f}%" in text, name
    assert "A scripted policy resolved" in text and "McNemar exact, two-sided" in text
    assert "they share no function and no bug with the train tasks" in text
    assert "24 of 24" in text and "Selecting training rows" in text and "too long" in text
    assert verified["benchmark"]["hash"][:12] in text
    assert "compare_swap" in text and "webcolors" in text
    assert "Not there when this was written" in text  # the made-up experiment lacks a data set and more


def test_a_script_is_called_a_scripted_policy_wherever_it_is_read(page):
    words = " ".join(Page(page).texts)
    assert "expert" not in words.lower()
    labels = {run["label"] for run in json.loads(Page(page).sources["script"][0])["runs"]}
    assert labels == {"base", "sft", "scripted policy"}


def test_same_input_same_page(experiment, page):
    layout = Layout.of("demo", experiment / "results", experiment / "configs")
    again = gather(layout, experiment / "results/verified_score.json", 100, 0)
    part = page[page.index("<main>") : page.index('<section class="block" id="provenance"')]
    assert part in render(again)


def test_sample_does_not_depend_on_other_ids():
    ids = [f"task-{number}" for number in range(500)]
    drawn = sample(ids, 50, 0)
    assert len(drawn) == 50 and drawn == sample(reversed(ids), 50, 0) != sample(ids, 50, 1)
    grown = sample([*ids, *(f"new-{number}" for number in range(50))], 50, 0)
    assert len(grown & drawn) > 35
    assert sample(ids[:3], 50, 0) == set(ids[:3])


def test_text_is_cut_and_says_so():
    text = cut("a" * 10_000)
    assert "7,600 characters left out" in text and len(text) < TEXT_CHARACTERS + 100
    assert cut("short") == "short"
    assert (
        visible("a\tb\nc\r\nd\re\x07\u200b")
        == "a\tb\nc\nd\u27e8U+000D\u27e9e\u27e8U+0007\u27e9\u27e8U+200B\u27e9"
    )


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
    assert steps(messages) == [
        {"say": "", "commands": ["ls", "pwd"], "observations": ["a", "b"]},
        {"say": "THOUGHT: look", "commands": ["cat x"], "observations": []},
    ]


def test_long_trajectories_lose_their_middle_steps():
    found = steps([{"role": "assistant", "content": str(number)} for number in range(STEPS + 7)])
    assert len(found) == STEPS + 1 and found[STEPS // 2]["left_out"] == 7
    assert found[0]["say"] == "0" and found[-1]["say"] == str(STEPS + 6)


def test_trajectories_beyond_the_page_size_are_left_out(experiment):
    layout = Layout.of("demo", experiment / "results", experiment / "configs")
    run = gather(layout, experiment / "results/verified_score.json", 5, 0).runs[0]
    sizes = [len(json.dumps(row)) for row in run.shown]
    assert len(sizes) == 5
    assert fitting(run, sum(sizes[:2])) == run.shown[:2] and fitting(run, 10) == []


def test_missing_inputs_are_one_line(experiment, tmp_path):
    layout = Layout.of("demo", experiment / "results", experiment / "configs")
    with pytest.raises(InputError, match="no such file"):
        gather(layout, tmp_path / "verified_score.json", 5, 0)
    bare = Layout.of("demo", tmp_path / "results", experiment / "configs")
    with pytest.raises(InputError, match="tasks/drill-heldout.json: no such file"):
        gather(bare, experiment / "results/verified_score.json", 5, 0)
    (tmp_path / "x.tsv").write_text("instance_id\ttokens\nx\tmany\n")
    with pytest.raises(InputError, match="without a number of tokens"):
        read_lengths(tmp_path / "x.tsv")


def test_page_without_training_records_and_without_pairs(experiment):
    layout = Layout.of("demo", experiment / "results", experiment / "configs")
    evidence = gather(layout, experiment / "results/verified_score.json", 2, 0)
    test = evidence.verified["comparison"]
    test |= dict.fromkeys(("p_value", "difference", "interval", "minimum_detectable_difference"), None)
    test |= {"pairs": 0, "both": 0, "neither": 0, "discordant": {"gained": 0, "lost": 0}}
    evidence.losses, evidence.lengths, evidence.manifests = {"x": [(1, float("nan"))]}, [], {}
    text = render(evidence)
    assert "there is nothing to compare" in text and "no finite loss among 1 steps" in text
    assert "not recorded" in text and ">n/a<" in text


def test_drops_of_a_manifest():
    assert drops({"dropped": {"a": 2, "b": 0}}) == {"a": 2} == drops({"drops": {"a": 2}})
    assert drops({}) == {} == drops({"dropped": 7})
