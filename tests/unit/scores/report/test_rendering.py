"""The report in a browser: it fits the screen, its viewer works, nothing is requested or logged."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.report_page import attempts, reported

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: THE PAGE WAS NOT RENDERED"),
]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    return reported(tmp_path_factory.mktemp("experiment"))


def chromium(profile: Path, address: str, *flags: str) -> subprocess.CompletedProcess:
    """Runs a headless browser without background requests. Its console goes to standard error."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=5000",
        *flags, address,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


UNTIL = """
        const until = async (holds) => {
          for (let k = 0; k < 400; k += 1) {
            if (holds()) return;
            await new Promise((done) => setTimeout(done, 10));
          }
          told.push(`never: ${holds}`);
        };
"""


def framed(experiment: Path, folder: Path, widths: tuple[int, ...], script: str) -> list:
    """Returns the list `told` after `script` has used the report in frames of `widths`.

    Frames are needed because a headless window has a minimum width of about 500 px.
    """
    address = (experiment / "results/report.html").as_uri()
    frames = "".join(f'<iframe src="{address}" width="{width}" height="900"></iframe>' for width in widths)
    drive = (
        "onload = async () => { const told = []; const pages = [...document.querySelectorAll('iframe')]"
        f".map((frame) => frame.contentDocument); {UNTIL} {script}; document.title = JSON.stringify(told); }}"
    )
    text = f"<!doctype html><title></title><style>iframe{{border:0}}</style>{frames}<script>{drive}</script>"
    (folder / "frames.html").write_text(text)
    flags = ("--dump-dom", "--allow-file-access-from-files", "--hide-scrollbars")
    done = chromium(folder / "profile", (folder / "frames.html").as_uri(), *flags)
    assert "CONSOLE" not in done.stderr, done.stderr
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", done.stdout)[1]))


def test_viewer_runs_and_nothing_is_requested(experiment, tmp_path):
    page = experiment / "results/report.html"
    rows = [row for row in attempts(page.read_text()) if row["policy"] == "sft"]
    hostile = next(row["id"] for row in rows if "onerror" in row["patch"])
    log = tmp_path / "net.json"
    address = f"{page.as_uri()}#t=drill-heldout/sft/{hostile}"
    done = chromium(tmp_path / "profile", address, "--dump-dom", f"--log-net-log={log}")
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "<title>Resolve rate on" in done.stdout
    shown = html.unescape(done.stdout[done.stdout.index('id="trajectory"') :])
    assert hostile in shown and "onerror=" in shown and "FAIL_TO_PASS" in shown
    assert 'class="command"' in done.stdout
    assert f"scripts.show '{hostile}' --policy sft --subset drill-heldout" in shown
    assert "example.invalid" not in log.read_text()


HELPERS = """
        const [page] = pages, at = (id) => page.getElementById(id);
        const shown = () => (at("instance") || at("trajectory")).textContent;
        const drawn = () => until(() => at("trajectory").querySelector("details, .note"));
        const set = (id, value, type) => { at(id).value = value; at(id).dispatchEvent(new Event(type)); };
        const key = (key) => page.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        const badges = () => [...page.querySelectorAll("#list .badge")].map((badge) => badge.textContent);
        page.defaultView.scrollTo({ top: at("viewer").offsetTop, behavior: "instant" });
        await drawn();
"""


def test_viewer_follows_keys_filters_and_policies(experiment, tmp_path):
    script = (
        HELPERS
        + """
        told.push(badges());
        told.push(shown()); key("ArrowRight"); told.push(shown()); key("ArrowLeft"); told.push(shown());
        await until(() => page.querySelector(".step"));
        key("j"); key("j"); told.push(page.querySelectorAll("[aria-current=step]").length);
        set("policy", "base", "change"); told.push(shown());
        set("status", "status:unresolved", "change"); told.push(badges());
        set("status", "outcome:malformed", "change"); told.push(badges());
        set("status", "", "change"); set("search", "no such id", "input"); told.push(shown());
        set("search", "", "input"); set("repo", "semver", "change");
        told.push([...page.querySelectorAll("#list button.row")].map((row) => row.title));
        set("repo", "", "change"); set("subset", "drill-train", "change");
        told.push(at("policy").selectedOptions[0].textContent)"""
    )
    told = framed(experiment, tmp_path, (1280,), script)
    listed, first, second, back, marked, as_base, unresolved, malformed, none, semver, label = told
    assert first == back == as_base != second and marked == 1
    assert set(unresolved) == {"tests fail"} and set(malformed) == {"nothing changed"}
    rows = attempts((experiment / "results/report.html").read_text())
    assert listed == sorted(
        listed, key=lambda word: {"lost to infrastructure": 1, "resolved": 2}.get(word, 0)
    )
    chosen = ("base", "drill-heldout", "semver")
    expected = [row["id"] for row in rows if (row["policy"], row["subset"], row["repo"]) == chosen]
    assert sorted(semver) == sorted(expected)
    assert none == "No attempt here fits the filter." and label == "scripted policy"


def test_steps_are_drawn_when_an_attempt_is_chosen(experiment, tmp_path):
    rows = [
        r
        for r in attempts((experiment / "results/report.html").read_text())
        if r["subset"] == "drill-heldout"
    ]
    refused = next(row for row in rows if row["outcome"] == "malformed")
    script = (
        HELPERS
        + f"""
        set("policy", "{refused["policy"]}", "change"); set("search", "{refused["id"]}", "input");
        await until(() => page.querySelectorAll(".step").length === {refused["turns"]});
        told.push(page.querySelectorAll("pre.command").length, page.querySelectorAll("pre.refused").length);
        told.push(page.querySelector(".step .taken").textContent);
        told.push(page.querySelector(".step details:not([open]) p.say").textContent);
        told.push(at("trajectory").textContent.includes("Fix the bug. Answer with one bash block."));
        told.push(at("trajectory").textContent.includes("did not submit: the policy gave answers"));
        const folded = page.querySelector("pre.raw").parentElement;
        folded.open = true; await until(() => page.querySelector("pre.raw").textContent);
        told.push(JSON.parse(page.querySelector("pre.raw").textContent).id)"""
    )
    ran, dashed, taken, thoughts, prompt, patch, raw = framed(experiment, tmp_path, (1280,), script)
    assert ran == 0 and dashed == refused["turns"] == 3 and prompt and patch and raw == refused["id"]
    step = refused["steps"][0]
    assert thoughts == step["thoughts"] and "(7 thoughts)" in taken
    assert f"model {step['model_seconds']:.1f} s" in taken and f"{step['tokens'][1]} written" in taken
