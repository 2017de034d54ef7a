"""Tasks as folders for Harbor and back: verifier, solution, and verdicts at the paths of a container."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from swelab.files.json_streams import list_items
from swelab.records import read_json, read_jsonl, write_json
from swelab.sandbox import open_backend, sandbox_image, toolbox_path
from swelab.sharing.harbor_export import BASE_IMAGE
from swelab.tasks.patch_application import git
from tests.at_hand import HARBOR, needs_harbor
from tests.conftest import make_repos, make_task, run_program, run_python
from tests.contract.real_instances import CASES, files, make
from tests.e2e.clone import copy_repository, toolbox

pytestmark = pytest.mark.real
HIDDEN = {"instance_id": "hidden+1", "hidden_tests": True}
TASKS = [make_task(), make_task() | HIDDEN]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A subset of two tasks, and its folders in `out`."""
    place = tmp_path_factory.mktemp("harbor")
    make_repos(place)
    write_json(place / "tasks.json", TASKS)
    done = run_python("-m", "scripts.export_harbor", "--tasks", place / "tasks.json", "--repos-dir",
                      place / "repos", "--to", place / "out")  # fmt: skip
    assert done.returncode == 0 and "2 task folders" in done.stdout, done.stderr
    return place


class Container:
    """Builds a folder's environment/ without Docker: the checkout is one commit in /testbed.

    Later /tests, /solution and /logs are added, as Harbor does. toolbox: the Python with pytest.
    """

    def __init__(self, folder, place, tree=None, toolbox=None, beside=()):
        self.folder, self.place, self.beside = folder, place, dict(beside)
        self.tree = place / "testbed"
        own = toolbox_path().resolve()  # the path at which its programs expect their Python
        self.beside |= {"/opt/toolbox": toolbox or own, str(own): toolbox or own}
        python = own / "bin/python"
        for prefix in (python.readlink().parents[1], python.resolve().parents[1]):
            self.beside |= {} if prefix.is_relative_to("/usr") else {str(prefix): prefix.resolve()}
        if tree:
            shutil.copytree(tree, self.tree, symlinks=True)
            return
        shutil.unpack_archive(folder / "environment/repository.tar", self.tree)
        for words in (["init", "-q", "-b", "main"], ["add", "-A", "-f"], ["commit", "-q", "-m", "base"]):
            assert git(self.tree, *words).returncode == 0

    def run(self, command, solution=False):
        (self.place / "logs").mkdir(exist_ok=True)
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv"]
        words += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
        for name in ("bin", "lib", "lib64"):
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", self.tree, "/testbed"]
        words += ["--ro-bind", self.folder / "tests", "/tests", "--bind", self.place / "logs", "/logs"]
        words += ["--tmpfs", "/root"]
        for name, path in self.beside.items():
            words += ["--ro-bind", path, name]
        words += ["--ro-bind", self.folder / "solution", "/solution"] if solution else []
        words += ["--setenv", "PATH", "/opt/toolbox/bin:/usr/bin:/bin", "--setenv", "HOME", "/root"]
        words += ["--chdir", "/testbed"]
        return run_program([*map(str, words), "bash", "-c", command], timeout=120)

    def reward(self):
        """Runs the verifier and returns its reward."""
        done = self.run("bash /tests/test.sh")
        log = self.place / "logs/verifier/test.log"
        said = done.stderr + (log.read_text() if log.is_file() else "")
        return float((self.place / "logs/verifier/reward.txt").read_text()), said


@pytest.fixture(params=["seen", "hidden"])
def container(world, tmp_path, request):
    name = TASKS[request.param == "hidden"]["instance_id"]
    return Container(world / "out" / name, tmp_path)


def test_the_solution_is_rewarded_and_nothing_is_not(container):
    reward, said = container.reward()
    assert reward == 0 and "test_add" in said
    done = container.run("bash /solution/solve.sh", solution=True)
    assert done.returncode == 0, done.stderr
    reward, said = container.reward()
    assert reward == 1, said
    report = read_json(container.place / "logs/verifier/report.json")
    assert report["tests"]["PASS_TO_PASS"] == {"success": ["tests/test_core.py::test_last"], "failure": []}


FORGING = """import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    made = yield
    made.get_result().outcome = "passed"
"""
CHEATS = {
    "the tests assert nothing": "echo 'def test_add(): pass' >tests/test_core.py",
    "a new conftest.py": f"echo '{FORGING}' >tests/conftest.py",
    "settings that leave tests out": "printf '[pytest]\naddopts = --co\n' >pytest.ini",
    "the folder of tests is a link": "rm -rf tests; mkdir /tmp/t; ln -s /tmp/t tests",
    "a file in place of the tests' folder": "rm -rf tests; touch tests",
    "a repair that breaks": "bash /solution/solve.sh; sed -i 's/return items.*/return 0/' calc/core.py",
}


@pytest.mark.parametrize("cheat", list(CHEATS))
def test_what_is_no_repair_is_not_rewarded(world, tmp_path, cheat):
    container = Container(world / "out" / TASKS[0]["instance_id"], tmp_path)
    done = container.run(CHEATS[cheat], solution=True)
    assert done.returncode == 0, done.stderr
    reward, said = container.reward()
    assert reward == 0 and "test_last" in said, said


def test_tests_that_hang_end_in_no_reward(world, tmp_path):
    folder = shutil.copytree(world / "out/hidden+1", tmp_path / "task")
    told = read_json(folder / "tests/judge.json")
    write_json(folder / "tests/judge.json", {**told, "seconds": 1, "command": "sleep 100 & sleep 100"})
    reward, _ = Container(folder, tmp_path).reward()
    assert reward == 0


def test_an_agent_sees_neither_answer_nor_hidden_tests(world):
    folder = world / "out/hidden+1"
    with tarfile.open(folder / "environment/repository.tar") as tar:
        names = tar.getnames()
        code = tar.extractfile("calc/core.py").read().decode()
    assert "tests/test_core.py" not in names and not any(".git/" in name for name in names)
    assert "return a - b" in code and "return a + b" not in code
    seen = [
        path for path in (*folder.rglob("environment/*"), folder / "instruction.md") if path.suffix != ".tar"
    ]
    assert not any("a + b" in path.read_text() or "test_add" in path.read_text() for path in seen)


def grades(place, tasks, repos, patches):
    """Maps instances to statuses, for a predictions file that is graded as a user does it."""
    rows = [
        {"instance_id": name, "model_name_or_path": "x", "model_patch": text}
        for name, text in patches.items()
    ]
    write_json(place / "preds.json", rows)
    words = ["-m", "scripts.run_evaluation", "-d", tasks, "-p", place / "preds.json", "--run_id", "it"]
    done = run_python(*words, "--repos-dir", repos, "--logs", place / "logs", "--workers", 2)
    assert done.returncode == 0, done.stderr
    report = read_json(place / "logs/it/report.json")
    return report["resolved"], report["total"]


def test_a_subset_exported_and_read_back_is_graded_as_before(world, tmp_path):
    done = run_python("-m", "scripts.import_harbor", world / "out", "--output", tmp_path / "back.json",
                      "--repos-dir", tmp_path / "repos")  # fmt: skip
    assert done.returncode == 0 and "2 tasks" in done.stdout and "0 task folders refused" in done.stdout
    back = {row["instance_id"]: row for _, row in list_items(tmp_path / "back.json")}
    assert back == {task["instance_id"]: json.loads(json.dumps(task)) for task in TASKS}
    gold = {name: (world / "out" / name / "solution/gold.patch").read_text() for name in back}
    assert grades(tmp_path, tmp_path / "back.json", tmp_path / "repos", gold) == (2, 2)
    (tmp_path / "empty").mkdir()
    noop = gold["hidden+1"].replace("a + b", "b - a")
    wrong = dict.fromkeys(back, noop)
    assert grades(tmp_path / "empty", tmp_path / "back.json", tmp_path / "repos", wrong) == (0, 2)
    (tmp_path / "none").mkdir()
    none = dict.fromkeys(back, "")
    assert grades(tmp_path / "none", tmp_path / "back.json", tmp_path / "repos", none) == (0, 2)


@pytest.mark.full
def test_recipes_of_task_folders_go_through_the_workflow(world, tmp_path):
    clone, folders = tmp_path / "clone", tmp_path / "their folders"
    copy_repository(clone)
    shutil.copytree(world / "out", folders)
    (folders / "broken").mkdir()
    (folders / "broken/{{name}}.txt").touch()
    subset = {"source": "harbor", "path": str(folders), "repos": ["calc"], "validate": {"gold_runs": 1}}
    (clone / "configs/subsets/theirs.yaml").write_text(yaml.safe_dump(subset))
    repo = {"source": "harbor", "path": str(folders), "repository": "calc"}
    (clone / "configs/repos/calc.yaml").write_text(yaml.safe_dump(repo))
    words = ["-m", "snakemake", "--cores", "2", "--config", f"toolbox={toolbox()}"]
    words += ["--", "results/tasks/theirs.lock.json"]
    done = run_program([sys.executable, *words], cwd=clone)
    assert done.returncode == 0, done.stderr[-3000:]
    manifest = read_json(clone / "results/tasks/theirs.manifest.json")
    assert manifest["kept"] == 2 and manifest["drops"] == {"no task.toml": 1}
    assert "refused: broken: no task.toml" in (clone / "results/logs/make_tasks/theirs.log").read_text()
    assert read_json(clone / "results/repos/calc.json")["inputs"]["rows"]
    lock = read_json(clone / "results/tasks/theirs.lock.json")
    assert sorted(each["instance_id"] for each in lock["kept"]) == sorted(
        task["instance_id"] for task in TASKS
    )


def test_an_evaluation_takes_task_folders_with_their_code(tmp_path, world):
    folders = shutil.copytree(world / "out", tmp_path / "folders")
    hint = {"path": "calc/core.py", "line": 1, "name": "add"}
    for path in folders.glob("*/tests/config.json"):
        write_json(path, {**read_json(path), "hint": hint, "op": "swap_operator"})
    (folders / "broken").mkdir()
    model = "configs/policies/scripted.yaml"
    words = ["--model", model, "--data", folders, "--output-dir", tmp_path / "made"]
    done = run_python("-m", "scripts.evaluate", *words, "--no-checks")
    assert done.returncode == 0, done.stderr
    assert "1 refused" in done.stderr and "no task.toml" in done.stderr
    assert (tmp_path / "made/progress/repos/calc.tar").is_file()
    rows = list(read_jsonl(tmp_path / "made/results.jsonl"))
    assert {row["status"] for row in rows} <= {"resolved", "unresolved"}, rows
    assert {row["instance_id"] for row in rows} == {task["instance_id"] for task in TASKS}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.package)
def test_a_published_instance_is_judged_in_the_state_of_its_base_commit(case, tmp_path, tmp_path_factory):
    cache = tmp_path_factory.getbasetemp().parent / "archives"
    tree = tmp_path / "image"
    tree.mkdir()
    row, _ = make(case, tree, cache)
    write_json(tmp_path / "rows.json", [row])
    done = run_python(
        "-m", "scripts.export_harbor", "--tasks", tmp_path / "rows.json", "--to", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / case.instance
    toolbox, conda = installed(case, cache, tmp_path)
    beside = {"/opt/miniconda3": conda, "/start": folder / "environment/start"}
    container = Container(folder, tmp_path, tree, toolbox, beside)
    start = next(
        line for line in (folder / "environment/Dockerfile").read_text().splitlines() if "scrub" in line
    )
    command = start.removeprefix("RUN ").replace("/swelab-start", "/tmp/start")
    done = container.run(f"cp -r /start /tmp/start && {command} && git log --format=%s --all")
    assert done.returncode == 0 and case.versions[2][0] not in done.stdout, done.stdout + done.stderr
    reward, said = container.reward()
    assert reward == 0, said
    assert container.run("bash /solution/solve.sh", solution=True).returncode == 0
    reward, said = container.reward()
    assert reward == 1, said


def installed(case, cache, place):
    """Returns (toolbox, conda): folders with the files of a case's image outside the repository."""
    found = {"opt/toolbox": place / "toolbox", "opt/miniconda3": place / "conda"}
    shutil.copytree(toolbox_path().resolve(), found["opt/toolbox"], symlinks=True)
    for path, data in files(case, cache).items():
        (start,) = (each for each in found if path.startswith(each))
        own = found[start] / Path(path).relative_to(start)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(data)
    return found.values()


NEEDS_NETWORK = ("RUN apt-get update", "COPY requirements.txt", "RUN pip install", "    cd ", "    echo ")
"""Lines of a Dockerfile whose results the sandbox image already contains."""


def built(engine, base, context, lines):
    """Builds an image from a folder's environment/. Yields a container of it that only waits."""
    (context / "Dockerfile").write_text(f"FROM {base}\n" + "".join(f"{line}\n" for line in lines))
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    made = engine.docker("build", "--quiet", "--network=none", context, env=environment)
    return engine.docker("run", "--detach", "--network=none", "--entrypoint=sleep", made, "600")


def verified(engine, container, folder):
    """Returns the reward after Harbor's verifier: tests/ is copied to /tests, then test.sh runs."""
    engine.docker("cp", f"{folder}/tests/.", f"{container}:/tests")
    engine.docker("exec", container, "bash", "/tests/test.sh")
    return float(engine.docker("exec", container, "cat", "/logs/verifier/reward.txt"))


def test_docker_builds_what_the_verifier_judges(world, tmp_path, engine, image):
    sandbox_image.load_image(open_backend("docker").engine)
    folder = world / "out/hidden+1"
    context = shutil.copytree(folder / "environment", tmp_path / "context")
    first, *lines = (context / "Dockerfile").read_text().splitlines()
    assert first == f"FROM {BASE_IMAGE}"
    kept = [line for line in lines if not line.startswith(NEEDS_NETWORK)]
    assert [line.split()[0] for line in kept] == ["ADD", "WORKDIR", "RUN"]
    container = built(engine, image.digest, context, kept)
    look = "git status --short; git log --format=%s; find . -name 'test_*'"
    assert engine.docker("exec", container, "bash", "-c", look).splitlines() == ["base"]
    assert verified(engine, container, folder) == 0
    engine.docker("cp", folder / "solution", f"{container}:/solution")
    engine.docker("exec", container, "bash", "/solution/solve.sh")
    assert verified(engine, container, folder) == 1


@pytest.mark.full
@needs_harbor
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_harbor_itself_rewards_the_solution_and_nothing_else(world, tmp_path, agent, reward):
    words = ["run", "-p", world / "out", "-a", agent, "-e", "harbor_environment:Bubblewrap", "-n", "1", "-q"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parent),
        "TOOLBOX": str(toolbox_path().resolve()),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = run_program(
        [HARBOR.with_name("harbor"), *words, "-o", tmp_path / "jobs"],
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = (tmp_path / "jobs").glob("*/result.json")
    stats = read_json(result)["stats"]["evals"][f"{agent}__out"]
    assert (stats["n_trials"], stats["n_errors"], stats["metrics"]) == (2, 0, [{"mean": reward}])
