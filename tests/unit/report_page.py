"""A report of an invented experiment, and a parser of its page, for the tests of content and rendering."""

import base64
import json
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

from tests.unit.finished_experiment import build

ROOT = Path(__file__).resolve().parents[2]


def reported(root: Path) -> Path:
    """Returns `root` with a finished, invented experiment and the report that the script wrote of it."""
    build(root, train=30, heldout=24)
    command = [
        sys.executable, "-m", "scripts.report", "--experiment", "demo",
        "--score", "results/verified_score.json", "--output", "results/report.html",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root


def attempts(page: str) -> list[dict]:
    """Returns all attempts listed in a page, unpacked, each with its run's subset and policy."""
    listed, packed, _ = Page(page).sources["script"]
    data, lines = json.loads(listed), packed.split("\n")
    found = []
    for run in data["runs"]:
        for values in run["rows"]:
            row = dict(zip(data["columns"], values, strict=True))
            row |= {"subset": run["subset"], "policy": run["policy"], "folder": run["folder"]}
            if row["packed"] >= 0:
                row |= json.loads(zlib.decompress(base64.b64decode(lines[run["first"] + row["packed"]])))
            found.append(row)
    return found


class Page(HTMLParser):
    """The elements of a page, and the text of its script and style elements."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sources: dict[str, list[str]] = {"script": [], "style": []}
        self.texts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside in self.sources:
            self.sources[self._inside].append(data)
        elif self._inside != "pre":
            self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")
