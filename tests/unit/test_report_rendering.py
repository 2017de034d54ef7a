"""The report in a browser: it fits the screen, its viewer works, and nothing is requested or logged."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.report_page import Page, reported

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (390, 768, 1280)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: THE PAGE WAS NOT RENDERED"),
]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    return reported(tmp_path_factory.mktemp("experiment"))


def chromium(profile: Path, address: str, *flags: str) -> subprocess.CompletedProcess:
    """A headless browser without its own errands, its console on standard error."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=5000",
        *flags, address,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def framed(experiment: Path, folder: Path, widths: tuple[int, ...], script: str) -> list:
    """What `script` leaves in the list `told` after it has driven the report in frames of `widths`.

    Frames, since a headless window is not made narrower than about 500 px.
    """
    address = (experiment / "results/report.html").as_uri()
    frames = "".join(f'<iframe src="{address}" width="{width}" height="900"></iframe>' for width in widths)
    drive = (
        "onload = () => { const told = []; const pages = [...document.querySelectorAll('iframe')]"
        f".map((frame) => frame.contentDocument); {script}; document.title = JSON.stringify(told); }};"
    )
    text = f"<!doctype html><title></title><style>iframe{{border:0}}</style>{frames}<script>{drive}</script>"
    (folder / "frames.html").write_text(text)
    flags = ("--dump-dom", "--allow-file-access-from-files", "--hide-scrollbars")
    done = chromium(folder / "profile", (folder / "frames.html").as_uri(), *flags)
    assert "CONSOLE" not in done.stderr, done.stderr
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", done.stdout)[1]))


def test_viewer_runs_and_nothing_is_requested(experiment, tmp_path):
    page = experiment / "results/report.html"
    data = json.loads(Page(page.read_text()).sources["script"][0])
    rows = [row for run in data["runs"] if run["policy"] == "sft" for row in run["shown"]]
    hostile = next(row["id"] for row in rows if "onerror" in row["patch"])
    log = tmp_path / "net.json"
    address = f"{page.as_uri()}#t=drill-heldout/sft/{hostile}"
    done = chromium(tmp_path / "profile", address, "--dump-dom", f"--log-net-log={log}")
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "<title>Resolve rate on" in done.stdout
    shown = html.unescape(done.stdout[done.stdout.index('id="trajectory"') :])
    assert hostile in shown and "onerror=" in shown and "FAIL_TO_PASS" in shown
    assert 'class="command"' in done.stdout
    assert "example.invalid" not in log.read_text()


def test_page_is_no_wider_than_the_screen(experiment, tmp_path):
    script = "for (const page of pages) told.push(page.documentElement.scrollWidth)"
    assert framed(experiment, tmp_path, WIDTHS, script) == list(WIDTHS)


def test_viewer_follows_keys_filters_and_policies(experiment, tmp_path):
    script = """
        const [page] = pages, at = (id) => page.getElementById(id);
        const shown = () => (at("instance") || at("trajectory")).textContent;
        const set = (id, value, type) => { at(id).value = value; at(id).dispatchEvent(new Event(type)); };
        const key = (key) => page.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        page.defaultView.scrollTo({ top: at("viewer").offsetTop, behavior: "instant" });
        told.push(shown()); key("ArrowRight"); told.push(shown()); key("ArrowLeft"); told.push(shown());
        key("j"); key("j"); told.push(page.querySelectorAll("[aria-current=step]").length);
        set("policy", "base", "change"); told.push(shown());
        set("status", "unresolved", "change");
        told.push([...page.querySelectorAll("#list .badge")].map((badge) => badge.textContent));
        set("status", "", "change"); set("search", "no such id", "input"); told.push(shown());
        set("search", "", "input"); set("subset", "drill-train", "change");
        told.push(at("policy").selectedOptions[0].textContent)"""
    first, second, back, marked, as_base, badges, none, label = framed(experiment, tmp_path, (1280,), script)
    assert first == back == as_base != second and marked == 1
    assert set(badges) == {"unresolved"}
    assert none == "No trajectory here fits the filter." and label == "scripted policy"
