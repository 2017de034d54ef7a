"""One command from a model and rows to a score: a real service, real sandboxes, real tests, and kills."""

import json
import re
import sys
import threading

import pytest

from scripts import compare, evaluate
from swelab import patience
from swelab.console.terminal import run_script
from swelab.jobs import thread_pool
from swelab.records import read_json, read_jsonl, write_json
from tests.conftest import make_repos, make_task
from tests.contract.attacks import PATIENCE
from tests.contract.hosted_service import PRICE, Fault, Service, text_of

pytestmark = pytest.mark.real
KEY = "sk-evaluate-93f1"
SCAFFOLD = "configs/scaffolds/demo.yaml"


class Vendor(Service):
    """A service that counts the requests of each task. `fault(name, turn)` may return another response."""

    def __init__(self, fault=lambda name, turn: None, seconds=0.0):
        super().__init__(self.meet, seconds=seconds)
        self.fault, self.asked, self.seen = fault, [], threading.Condition()

    def meet(self, number, request):
        if request["key"] != KEY:
            return Fault(401, "no such key")
        found = re.search(r"task-\d+", "".join(map(text_of, request["body"]["messages"])))
        if not found:
            return None
        call = found[0], sum(each["role"] == "assistant" for each in request["body"]["messages"])
        with self.seen:
            self.asked.append(call)
            self.seen.notify_all()
        return self.fault(*call)

    def wait_for(self, count):
        with self.seen:
            assert self.seen.wait_for(lambda: len(self.asked) >= count, PATIENCE)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with an archive and rows; two of the rows are unusable."""
    folder = tmp_path_factory.mktemp("evaluate")
    make_repos(folder)
    named = [{"instance_id": f"task-{n}", "problem_statement": f"Mend task-{n}."} for n in range(8)]
    rows = [json.dumps(make_task() | each) for each in named]
    lines = [*rows, '{"instance_id": "cut', json.dumps({"instance_id": "x__y-1"})]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def vendor():
    service = Vendor()
    yield service
    service.close()


def options(world, vendor, out, *further):
    given = ["--model", "openai/toy/model", "--api-base", f"{vendor.url}/v1", "--api-key-env", "TOY_KEY"]
    given += ["--data", world / "rows.jsonl", "--repos-dir", world / "repos", "--output-dir", out]
    given += ["--scaffold", SCAFFOLD, "--max-tokens", "200", "--max-concurrent", "3"]
    return [*map(str, (*given, *further))]


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the script in this process.

    Returns exit code, output and the last line of stderr; `errors` has all lines.
    """
    monkeypatch.setattr(thread_pool, "RETRY_SECONDS", ())

    def called(*arguments, key=KEY, script=evaluate):
        monkeypatch.setenv("TOY_KEY", key)
        monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            run_script(script.main)
        told = capfd.readouterr()
        assert "Traceback" not in told.err
        called.errors = told.err
        return end.value.code, told.out, told.err.splitlines()[-1] if told.err else ""

    return called


def test_two_evaluations_are_compared_by_their_folders(world, vendor, run, tmp_path):
    speak = vendor.speak
    vendor.speak = lambda turn, history: "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"
    idle = options(world, vendor, tmp_path / "idle", "--slice", "0:3", "--no-checks")
    code, said, last = run(*idle)
    assert code == 0 and "| graded empty_patch | 3 |" in said and "| resolved | 0 of 3" in said, last
    code, _, last = run(*idle, "--temperature", "1")
    assert code == 2 and "holds an evaluation with another policy.sampling.temperature (1" in last
    vendor.speak = speak
    good = options(world, vendor, tmp_path / "good", "--slice", "0:3", "--no-checks", "--name", "a good one")
    code, said, last = run(*good)
    assert code == 0 and "| evaluation | a good one |" in said and "| model | `openai/toy/model` |" in said
    assert {row["model_name_or_path"] for row in read_json(tmp_path / "good/preds.json").values()} == {
        "a good one"
    }
    before = len(vendor.asked)
    assert run(*good[:-1], "good")[0] == 0 and len(vendor.asked) == before, "a name changes no attempt"
    code, said, last = run(tmp_path / "idle", tmp_path / "good", script=compare)
    assert code == 0 and "good resolves 100.0 points more than openai/toy/model" in said, said


def test_each_paid_request_is_in_the_bill_of_all_runs_once(world, run, tmp_path):
    """The bill covers a run that the service ended, a resumed run, and attempts that were made again."""
    last_paid = [5]
    refused = Fault(401, "out of credit")
    vendor = Vendor(lambda name, turn: refused if len(vendor.asked) > last_paid[0] else None)
    recipe, out = tmp_path / "toy.yaml", tmp_path / "out"
    reached = {"model": "openai/toy/model", "api_base": f"{vendor.url}/v1", "api_key_env": "TOY_KEY"}
    recipe.write_text(json.dumps({"kind": "hosted", "scaffold": "demo", "price": PRICE, **reached}))
    given = [
        "--model",
        recipe,
        "--data",
        world / "rows.jsonl",
        "--repos-dir",
        world / "repos",
        "--output-dir",
    ]
    given += [out, "--max-instances", "3", "--no-checks", "--max-concurrent", "3"]

    def used():
        bill = read_jsonl(out / "progress/paid/ledger.jsonl")
        billed = sum(each["nanodollars"] for each in bill if each["how"] == "paid")
        found = read_json(out / "summary.json")["usage"]
        assert billed > 0 and found["paid"] == pytest.approx(billed / 1e9) == pytest.approx(vendor.charged)
        return found

    code, _, last = run(*given)
    assert code == 2 and "no key is left" in last and used()["cost"] is None
    last_paid[0] = 1000
    code, said, _ = run(*given)
    first = used()
    assert code == 0 and first["cost"] == first["paid"] and "paid in all runs" not in said
    assert run(*given, "--redo-existing", "--filter", "task-1")[0] == 0
    code, said, _ = run(*given)
    assert code == 0 and used()["cost"] == pytest.approx(first["cost"]) and used()["paid"] > first["paid"]
    assert f"; paid in all runs ${used()['paid']:.4f} |" in said
    vendor.close()


def test_what_cannot_work_is_said_before_anything_is_started(world, vendor, run, tmp_path):
    code, _, last = run(*options(world, vendor, tmp_path / "a"), key="sk-another")
    assert code == 2 and last.startswith("error: 1 to fix before anything is started")
    assert "FIX  completion: openai/toy/model:" in run.errors
    assert not vendor.asked and not list((tmp_path / "a").glob("*__*"))
    tools = ("--scaffold", "configs/scaffolds/mini-swebench-tool.yaml")
    assert run(*options(world, vendor, tmp_path / "b", *tools))[0] == 2
    assert "FIX  tools: the model was asked to call bash and did not" in run.errors
    code, _, last = run(*options(world, vendor, tmp_path / "c", "--filter", "nobody"))
    assert code == 2 and last.startswith("error: no task is left")
    assert not vendor.asked


def test_a_task_that_the_service_refuses_is_not_tried_again(world, run, tmp_path):
    refusal = Fault(400, "refused by the content_filter", code="content_filter")
    vendor, out = Vendor(lambda name, turn: refusal if name == "task-2" else None), tmp_path / "out"
    given = options(world, vendor, out, "--max-instances", "3", "--no-checks")
    code, said, last = run(*given)
    assert code == 2 and "1 of 3 attempts were lost" in last and "content_filter" in last
    assert "--max-lost allows 0" in last and "| lost: model_refused | 1 |" in said
    assert read_json(out / "summary.json")["infrastructure"] == {"model_refused": 1}
    before = len(vendor.asked)
    assert run(*given)[2] == last, "it still is one too many"
    code, said, last = run(*given, "--max-lost", "1")
    vendor.close()
    assert code == 0 and "| lost: model_refused | 1 |" in said, last
    assert len(vendor.asked) == before and vendor.asked.count(("task-2", 0)) == 1


def test_a_loss_is_told_apart_and_made_good_by_the_same_command(world, run, tmp_path, monkeypatch):
    lost = {"task-2"}
    refusal = Fault(500, "out of memory")
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    vendor, out = Vendor(lambda name, turn: refusal if name in lost else None), tmp_path / "out"
    given = options(world, vendor, out, "--max-instances", "3", "--no-checks")
    code, said, last = run(*given)
    assert code == 2 and "1 of 3 attempts were lost to infrastructure; first task-2" in last
    assert "--max-lost allows 0" in last and "| lost: model_lost | 1 |" in said
    told = read_json(out / "summary.json")
    assert (told["total"], told["resolved"], told["errors"]) == (3, 2, 1)
    assert told["infrastructure"] == {"model_lost": 1}
    assert told["without_infra_errors"]["resolved"] == told["without_infra_errors"]["total"] == 2
    row = next(row for row in read_jsonl(out / "results.jsonl") if row["instance_id"] == "task-2")
    assert row["error"] and row["infrastructure"] and not row["resolved"]
    before = len(vendor.asked)
    lost.clear()
    code, said, last = run(*given)
    vendor.close()
    assert code == 0 and read_json(out / "summary.json")["resolved"] == 3, last
    assert {name for name, _ in vendor.asked[before:]} == {"task-2"}
    assert len([path for path in out.iterdir() if "__" in path.name]) == 3


def test_tasks_without_a_usable_image_are_losses(world, vendor, run, tmp_path):
    row = {"repo_recipe": "", "image_name": "made/up:1", "test_cmd": "pytest"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(make_task() | row | {"instance_id": name}) + "\n" for name in "ab"))
    image = {"digest": "sha256:" + "a" * 64, "bytes": 1, "folder": "", "workdir": "/testbed"}
    image |= {"pulled": "2025-01-01", "checked": 1, "leaks": []}
    record = tmp_path / "images.json"
    given = [*options(world, vendor, tmp_path / "out"), "--data", rows, "--images", record, "--no-checks"]
    write_json(
        record, {"images": {}, "failed": {"made/up:1": {"reason": "refused", "error": "404"}}, "counts": {}}
    )
    code, said, last = run(*given)
    assert code == 2 and "2 of 2 attempts were lost to infrastructure; first a: " in last, last
    assert "404" in last and "--max-lost allows 0" in last and "| resolved | 0 of 2" in said
    code, _, last = run(*given, "--max-lost", "2")
    assert code == 0 and read_json(tmp_path / "out/summary.json")["errors"] == 2, last
    leak = {"instance_id": "a", "what": "the fix is in its history"}
    write_json(record, {"images": {"made/up:1": image | {"leaks": [leak]}}, "failed": {}, "counts": {}})
    code, _, last = run(*given, "--instance-ids", "a")
    assert code == 2 and last.startswith("error: no task can be used: a: its image tells its answer"), last
    assert not vendor.asked


def test_only_the_chosen_attempts_are_made_again(world, vendor, run, tmp_path):
    out = tmp_path / "out"
    given = options(world, vendor, out, "--max-instances", "3", "--no-checks")
    assert run(*given)[0] == 0
    folders = {row["instance_id"]: row["run_dir"] for row in read_jsonl(out / "results.jsonl")}
    before = len(vendor.asked)
    code, said, last = run(*given, "--filter", "task-1", "--redo-existing")
    assert code == 0 and "| resolved | 1 of 1" in said, last
    assert len(vendor.asked) == before + 3 and {name for name, _ in vendor.asked[before:]} == {"task-1"}
    assert run(*given)[0] == 0 and len(vendor.asked) == before + 3, "the others' results were kept"
    again = {row["instance_id"]: row["run_dir"] for row in read_jsonl(out / "results.jsonl")}
    assert {name for name in folders if again[name] != folders[name]} == {"task-1"}
    assert run(*given, "--temperature", "1", "--redo-existing")[0] == 0
    assert len(vendor.asked) == before + 12, "another evaluation is made anew"
