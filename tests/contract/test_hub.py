"""Downloads from a stand-in for the Hugging Face hub that cuts, stalls, lies, limits and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.files import hf_hub as client
from swelab.files.hf_hub import HubError, HubRepository
from swelab.files.weights import identity
from swelab.records import InputError, sha256_file
from swelab.records.task_records import Task
from swelab.tasks.datasets_source import make_tasks
from tests.contract.attacks import PATIENCE
from tests.contract.hub import Hub, running
from tests.toy_checkpoint import make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder with a real checkpoint, and with other files that a download must skip."""
    folder = make_checkpoint(tmp_path_factory.mktemp("hub") / "toy")
    (folder / "original.pth").write_bytes(b"x" * 5000)
    return folder


@pytest.fixture
def hub(toy, monkeypatch):
    files = {path.name: path.read_bytes() for path in toy.iterdir()}
    with running(Hub(REVISION, {("model", "o/toy"): files})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", "/nonexistent")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        waits = []  # time moves only by these waits, and the waits take none
        clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
        monkeypatch.setattr(client, "time", clock)
        monkeypatch.setattr(client, "SPARE_BYTES", 0)
        yield hub


def fetch(folder, patience=20, name="o/toy", revision=REVISION, patterns=("*.json", WEIGHTS), sha256=None):
    return HubRepository(name, revision, patience=patience).fetch(folder, patterns, sha256 or {})


def test_only_what_is_wanted_comes_and_once(hub, toy, tmp_path):
    facts = fetch(tmp_path)
    assert sorted(facts) == sorted(path.name for path in tmp_path.iterdir())
    assert WEIGHTS in facts and "original.pth" not in facts
    assert all(fact["sha256"] == sha256_file(toy / name) for name, fact in facts.items())
    before = len(hub.gets(WEIGHTS))
    assert fetch(tmp_path) == facts and len(hub.gets(WEIGHTS)) == before == 1


def test_a_cut_connection_goes_on_where_it_was_cut(hub, toy, tmp_path):
    hub.cut_after, hub.cuts = 100_000, 2
    fetch(tmp_path)
    assert hub.gets(WEIGHTS) == ["", "bytes=100000-", "bytes=200000-"]
    assert sha256_file(tmp_path / WEIGHTS) == sha256_file(toy / WEIGHTS)
    assert not list(tmp_path.glob(".*"))


def test_a_hub_that_ignores_ranges_is_begun_again(hub, toy, tmp_path):
    hub.cut_after, hub.cuts, hub.ranges = 100_000, 1, False
    fetch(tmp_path)
    assert hub.gets(WEIGHTS) == ["", "bytes=100000-"]
    assert sha256_file(tmp_path / WEIGHTS) == sha256_file(toy / WEIGHTS)


def test_wrong_bytes_are_asked_for_once_more_and_never_kept(hub, tmp_path):
    hub.wrong = 1
    fetch(tmp_path)
    assert hub.gets(WEIGHTS) == ["", ""]
    (tmp_path / WEIGHTS).unlink()
    hub.wrong = 2
    with pytest.raises(HubError, match=rf"{WEIGHTS}: twice \d+ bytes with another hash than the listed one"):
        fetch(tmp_path)
    assert not (tmp_path / WEIGHTS).exists()


def test_a_damaged_file_is_fetched_again(hub, tmp_path):
    fetch(tmp_path)
    with open(tmp_path / WEIGHTS, "r+b") as stream:
        stream.write(b"\0\0")
    fetch(tmp_path)
    assert len(hub.gets(WEIGHTS)) == 2


@pytest.mark.parametrize(
    ("harm", "wishes", "error", "message"),
    [
        ({"failing": [429] * 9}, {"patience": 0.5}, HubError, r"no more requests for now \(429\); the same"),
        ({"failing": [503] * 9}, {"patience": 0}, HubError, "the hub answers 503; the same command goes on"),
        ({"cut_after": 10, "cuts": 9}, {"patience": 0}, HubError, "no answer: peer closed connection"),
        ({"token": "x"}, {}, HubError, r"access refused \(401\); expected .* HF_TOKEN"),
        ({"token": "x", "code": "GatedRepo"}, {}, HubError, "terms accepted on its page, and HF_TOKEN"),
        ({}, {"name": "o/none"}, HubError, r"the hub has no /api/models/o/none/tree/.* \(404\)"),
        ({}, {"revision": "f" * 40}, InputError, "the hub has no such commit"),
        ({}, {"revision": "main"}, InputError, "expected a commit of 40 hexadecimal digits"),
        ({}, {"patterns": ["*.gguf"]}, InputError, r"no file matches; expected one of \*\.gguf"),
        ({}, {"sha256": {WEIGHTS: "0" * 64}}, InputError, "has sha256 .* there; expected 0000"),
        ({}, {"sha256": {"more.safetensors": "0" * 64}}, InputError, "has no file more.safetensors"),
        ({}, {"sha256": {"config.json": "0" * 64}}, HubError, "config.json: twice .* another hash"),
        ({"body": b"<html>"}, {}, HubError, "lists files in a form that is not the hub's"),
        ({"body": b'[{"type":"file","path":"../x","size":1,"oid":"1"}]'}, {}, HubError, "called '../x'"),
    ],
)
def test_faults_are_one_line(hub, tmp_path, harm, wishes, error, message):
    for name, value in harm.items():
        setattr(hub, name, value)
    with pytest.raises(error, match=message) as caught:
        fetch(tmp_path, **wishes)
    assert "\n" not in str(caught.value) and not (tmp_path / WEIGHTS).exists()


def test_a_full_disk_is_told_before_anything_comes(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "SPARE_BYTES", 1 << 60)
    with pytest.raises(HubError, match=r"GB to come and 0\.0 GB free .*; expected room"):
        fetch(tmp_path)
    assert not hub.gets(WEIGHTS)


def test_the_token_is_sent(hub, tmp_path, monkeypatch):
    hub.token = "hush"
    monkeypatch.setenv("HF_TOKEN", "hush")
    assert fetch(tmp_path)


def script(tmp_path, **recipe):
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump({"source": "hub", "repository": "o/toy", "revision": REVISION, **recipe}))
    words = [
        sys.executable,
        "-m",
        "scripts.fetch_model",
        "--recipe",
        path,
        "--progress",
        tmp_path / "progress",
    ]
    words += ["--output", tmp_path / "toy", "--manifest", tmp_path / "toy.json"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(list(map(str, words)), cwd=ROOT, env=dict(os.environ), **streams)


def test_a_killed_fetch_goes_on_and_gives_a_model(hub, toy, tmp_path):
    hub.cut_after, hub.cuts, hub.stall = 150_000, 1, True
    killed = script(tmp_path)
    assert hub.stalled.wait(PATIENCE)
    part = lambda: list((tmp_path / "progress").rglob(f".{WEIGHTS}.*.part"))  # noqa: E731
    while not part() or part()[0].stat().st_size < 150_000:
        assert killed.poll() is None
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "toy.json").exists()
    again = script(tmp_path)
    assert again.wait(PATIENCE) == 0, again.stderr.read()
    assert hub.gets(WEIGHTS) == ["", "bytes=150000-"]
    manifest = json.loads((tmp_path / "toy.json").read_text())
    assert {name: manifest[name] for name in ("digest", "files")} == identity(tmp_path / "toy")
    assert manifest["digest"] == identity(toy)["digest"]
    assert manifest["bytes"][WEIGHTS] == (toy / WEIGHTS).stat().st_size
    again.communicate()


def test_a_published_set_is_fetched_and_read(hub, tmp_path):
    import pyarrow
    import pyarrow.parquet

    for shard in range(2):
        rows = [
            Task.of(
                {
                    "instance_id": f"owner__pack.{shard}{number}",
                    "repo": "swesmith/owner__pack.0123abcd",
                    "patch": f"diff {'x' * 100}",
                    "FAIL_TO_PASS": ["tests/test_m.py::test_1"] * (1 + number % 2),
                    "PASS_TO_PASS": [],
                    "image_name": "image",
                }
            )
            for number in range(300)
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{shard}.parquet")
    files = {f"data/train-0000{n}-of-00002.parquet": (tmp_path / f"{n}.parquet").read_bytes() for n in (0, 1)}
    hub.files["dataset", "o/set"] = {"README.md": b"#", "data/test-00000-of-00001.parquet": b"-", **files}
    settings = {"source": "dataset", "dataset": "o/set", "revision": REVISION}
    recipe = recipes.complete(SUBSET, {**settings, "criteria": {"min_fail_to_pass": 2}}, "subset")
    kept, drops = make_tasks(recipe, tmp_path / "downloads")
    assert (len(kept), drops) == (300, {"min_fail_to_pass": 300})
    assert not hub.gets("test-00000-of-00001.parquet")
    before = len(hub.requests)
    assert list(make_tasks(recipe, tmp_path / "downloads")[0]) == list(kept)
    assert len(hub.requests) == before + 2  # the list, in two pages
    name = next(iter(files))
    recipe = recipes.complete(SUBSET, {**settings, "sha256": {name: "0" * 64}}, "subset")
    with pytest.raises(InputError, match=f"{name} has sha256"):
        make_tasks(recipe, tmp_path / "downloads")


@pytest.fixture
def scripts(hub, tmp_path, task):
    """Runs a script while the hub has the task as o/set."""
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([task]), tmp_path / "rows")
    hub.files["dataset", "o/set"] = {"data/test-00000.parquet": (tmp_path / "rows").read_bytes()}

    def run(name, *words):
        command = [sys.executable, "-m", f"scripts.{name}", *map(str, words)]
        settings = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=settings)

    return run


def test_predictions_are_graded_against_a_set_on_the_hub(scripts, tmp_path, repos_dir):
    def grades(name):
        words = ("--dataset_path", name, "--run_id", "gold", "--repos-dir", repos_dir)
        return scripts("run_evaluation", *words)

    done = grades(f"o/set@{REVISION}")
    assert done.returncode == 0 and "1 of 1 resolved" in done.stderr
    (tmp_path / "a/folder").mkdir(parents=True)
    for name, words in (
        (f"o/none@{REVISION}", "o/none"),
        ("rows.json", "no such file"),
        ("a/folder", "not a file"),
    ):
        refused = grades(name)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
        assert words in refused.stderr.splitlines()[-1]
