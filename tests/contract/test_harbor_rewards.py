"""Tasks that are graded by their own script's reward, from the folder to the verdict, in real sandboxes."""

import subprocess

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import run_patch
from swelab.grading.harness.spec import read_spec
from swelab.grading.show import run_again, run_command
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.witness_store import WitnessWriter
from swelab.jobs.journal import Journal
from swelab.records import InputError, read_json, read_jsonl, write_json
from swelab.sandbox import Limits, open_backend, sandbox_image
from swelab.sandbox.working_copy import diff
from swelab.tasks.checkout import RepoStore
from swelab.tasks.harbor.harbor_source import read_rows
from swelab.tasks.image_history import prepare
from swelab.tasks.image_leaks import check_image
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks
from tests.conftest import run_program, run_python
from tests.contract import harbor_scripts as folders
from tests.contract import small_rl
from tests.contract.hosted_service import Service, text_of
from tests.contract.image_files import folder_layer, programs_layer
from tests.contract.registry import has_registry, running_registry

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def lab(image, tmp_path_factory):
    """The tasks' image as a folder."""
    return folders.unpacked_image(image, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module", params=["bubblewrap", "docker"])
def ground(request, lab, image, backend):
    """(backend, image)."""
    if request.param == "bubblewrap":
        return backend, lab
    engine = request.getfixturevalue("engine")
    docker = open_backend("docker")
    sandbox_image.load_image(docker.engine)
    return docker, folders.in_engine(engine, image, lab)


def rows(place):
    """Returns the rows of all folders. Fails if a folder is refused."""
    return {found.instance_id: found for _, found in read_rows(place, read_spec)}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """The rows of the three tasks."""
    place = tmp_path_factory.mktemp("folders")
    for name in folders.TASKS:
        folders.write(place, name)
    return rows(place)


def bench_of(ground, tasks, tmp_path):
    backend, image = ground
    store = RepoStore(tmp_path, tmp_path / "trees")
    return Bench(store, backend, dict.fromkeys(tasks, image))


def locked(ground, tasks, tmp_path, runs=1):
    bench = bench_of(ground, tasks, tmp_path)
    with (
        Journal(tmp_path / "j.jsonl") as journal,
        (tmp_path / "witness.zip").open("wb") as stream,
        WitnessWriter(stream, "whole") as writer,
    ):
        return validate([*tasks.values()], Validation(gold_runs=runs), bench, journal, 1, writer=writer)


def test_solutions_are_rewarded_and_nothing_is_not(ground, tasks, tmp_path):
    lock = locked(ground, tasks, tmp_path, runs=2)
    assert [row.instance_id for row in lock.kept] == sorted(tasks), lock
    assert not lock.broken and not lock.flaky and not lock.unjudged and "null_tasks" not in lock
    for row in lock.kept:
        assert "validated" not in row and row.place == ground[1].digest
        assert row.witness == {"standing": "not_witnessed", "reason": row.witness.reason}
        assert row.witness.reason == "a script judges it: there is no test to ask"


def patch_of(ground, task, command):
    """Returns the patch of an agent that runs one command."""
    backend, image = ground
    with backend.start(None, image=image, limits=Limits()) as sandbox:
        base = prepare(sandbox, task)
        assert sandbox.exec(command).returncode == 0
        return diff(sandbox, base)


def graded(ground, task, tmp_path, command):
    bench = bench_of(ground, [task.instance_id], tmp_path)
    patch = patch_of(ground, task, command)
    return bench.grade_of(task, patch, bench.run(task, patch))


AREA = "sed -i '2s/+/*/' shapes.py"
ATTEMPTS = [
    ("write-the-sum", "echo 42 >/app/sum.txt", "resolved", 1.0),
    ("write-the-sum", "echo 41 >sum.txt", "unresolved", 0.0),
    ("mend-the-shapes", AREA, "unresolved", 0.5),
    ("mend-the-shapes", f"{AREA}; sed -i '6s/a + b/2 * (a + b)/' shapes.py", "resolved", 1.0),
]


@pytest.mark.parametrize(("name", "command", "status", "reward"), ATTEMPTS)
def test_an_attempt_is_judged_by_its_patch_alone(ground, tasks, tmp_path, name, command, status, reward):
    grade = graded(ground, tasks[name], tmp_path, command)
    assert (grade.status, grade.reward) == (status, reward), grade
    assert grade.resolved == (reward == 1) and "tests_status" not in grade and "witness" not in grade


LINK = "import os\nos.symlink('/etc/hostname', '/logs/veri' + 'fier/rewa' + 'rd.json')\nos._exit(0)\n"
WRITES = "cd /logs/veri*er; echo 1 >rewa''rd.t''xt; kill -9 $PPID\n"
CHEATS = {
    "names the reward": ("greet-by-name", {"greet.sh": "echo 1 >/logs/verifier/reward.txt\n"}, "unresolved"),
    "names it and is right": ("greet-by-name", {"greet.sh": "echo Good day, $1 # reward.txt\n"}, "suspect"),
    "rewrites the script that runs": (
        "greet-by-name",
        {"greet.sh": "echo Good day, $1\necho '#' >>/tests/test.sh\n"},
        "tampered",
    ),
    "removes what judges": ("greet-by-name", {"greet.sh": "echo Good day, $1\nrm /tests/*\n"}, "tampered"),
    "ends its judge": ("greet-by-name", {"greet.sh": "kill -9 $PPID\n"}, "unresolved"),
    "writes a reward and ends its judge": ("greet-by-name", {"greet.sh": WRITES}, "unresolved"),
    "a link for a reward": ("mend-the-shapes", {"shapes.py": LINK}, "unresolved"),
}  # fmt: skip


@pytest.mark.parametrize("cheat", list(CHEATS))
def test_what_forges_a_reward(lab, backend, tasks, tmp_path, cheat):
    name, files, status = CHEATS[cheat]
    command = "\n".join(f"cat >{path} <<'EOF'\n{text}EOF" for path, text in files.items())
    grade = graded((backend, lab), tasks[name], tmp_path, command)
    assert grade.status == status, grade


def test_what_a_script_leaves_running_is_ended_before_its_reward_is_read(lab, backend, tmp_path):
    late = "(sleep 1000; echo 1 >/logs/verifier/reward.txt) & disown\necho 0 >/logs/verifier/reward.txt\n"
    folders.write(tmp_path / "in", "write-the-sum", **{"tests/test.sh": late})
    (task,) = rows(tmp_path / "in").values()
    grade = graded((backend, lab), task, tmp_path, "echo 42 >sum.txt")
    assert (grade.status, grade.reward) == ("unresolved", 0)


EMPTY = "--allow-empty"
COUNTS = """python - <<'E'
import os
objects = sum(len(files) for _, _, files in os.walk("/app/.g" "it/objects"))
open("/logs/verifier/reward.txt", "w").write(str(int(objects == {count})))
E
"""


@pytest.mark.parametrize(("words", "count"), [("", 2), ("# git checkout x\n", 6)])
def test_the_history_is_gone_when_a_script_judges_unless_it_names_git(image, backend, tmp_path, words, count):
    lab = folders.unpacked_image(image, tmp_path)
    for arguments in (
        ("init", "-q"),
        ("add", "-A"),
        ("commit", "-qm", "x"),
        ("commit", "-qm", "y", "--allow-empty"),
    ):
        identity = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "safe.directory=*")
        subprocess.run(["git", *identity, *arguments], cwd=lab.folder / "app", check=True)
    judge = words + COUNTS.format(count=count)
    folders.write(tmp_path / "in", "write-the-sum", **{"tests/test.sh": judge})
    (task,) = rows(tmp_path / "in").values()
    assert graded((backend, lab), task, tmp_path, "echo 42 >sum.txt").reward == 1


def beside(tasks, others):
    """Returns rows and one good row, because a lock without any task is an error."""
    return {"greet-by-name": tasks["greet-by-name"], **others}


SILENT = "#!/bin/bash\necho nothing to say\nexit 3\n"
INVALID = {
    "no reward": ({"tests/test.sh": SILENT}, "the script wrote no reward: exit code 3; the log ends with"),
    "a word": (
        {"tests/test.sh": "echo good >/logs/verifier/reward.txt\n"},
        "reward.txt is 'good', no number",
    ),
    "a folder": ({"tests/test.sh": "mkdir /logs/verifier/reward.txt\n"}, "reward.txt is no plain file"),
    "a solution that does nothing": ({"solution/solve.sh": "true\n"}, "solve.sh changed no file"),
    "a solution that fails": ({"solution/solve.sh": "exit 4\n"}, "solve.sh ended with exit code 4"),
    "a network": ({"tests/test.sh": "set -e; python -m pip install x >/dev/null 2>&1\n"}, "wrote no reward"),
}


@pytest.mark.parametrize("case", list(INVALID))
def test_a_task_whose_solution_is_not_rewarded_is_broken_and_says_why(lab, backend, tasks, tmp_path, case):
    changes, why = INVALID[case]
    folders.write(tmp_path / "in", "write-the-sum", **changes)
    lock = locked((backend, lab), beside(tasks, rows(tmp_path / "in")), tmp_path)
    assert [row.instance_id for row in lock.kept] == ["greet-by-name"]
    assert why in lock.broken[0].reason, lock.broken


def test_a_task_that_is_done_already_is_broken(lab, backend, tasks, tmp_path):
    folders.write(
        tmp_path / "in", "write-the-sum", **{"tests/test.sh": "echo 1 >/logs/verifier/reward.txt\n"}
    )
    lock = locked((backend, lab), beside(tasks, rows(tmp_path / "in")), tmp_path)
    assert [row.reason for row in lock.broken] == ["an empty patch is resolved"]


def test_a_task_without_a_solution_is_validated_by_null_runs_only(lab, backend, tmp_path):
    for name in ("write-the-sum", "greet-by-name"):
        silent = {"tests/test.sh": SILENT} if name == "greet-by-name" else {}
        folders.write(tmp_path / "in", name, **{"solution/solve.sh": None, **silent})
    lock = locked((backend, lab), rows(tmp_path / "in"), tmp_path, runs=2)
    assert [(row.instance_id, row.validated) for row in lock.kept] == [("write-the-sum", "null only")]
    (other,) = lock.unjudged
    assert lock.null_tasks == 2 and other.instance_id == "greet-by-name"
    assert other.reason.startswith("nobody saw its script give a reward: the script wrote no reward")


def test_a_script_is_started_with_its_variables(lab, backend, tmp_path):
    toml = f"{folders.TOML}env = {{ REWARD = '0.5' }}\n"
    script = {"tests/test.sh": "echo $REWARD >/logs/verifier/reward.txt\n"}
    folders.write(tmp_path / "in", "write-the-sum", **{"task.toml": toml, **script})
    (task,) = rows(tmp_path / "in").values()
    assert graded((backend, lab), task, tmp_path, "echo 42 >sum.txt").reward == 0.5


def test_a_script_that_takes_too_long_gives_no_reward(lab, backend, tasks, tmp_path):
    slow = "echo 1 >/logs/verifier/reward.txt; sleep 1000\n"
    folders.write(tmp_path / "in", "write-the-sum", **{"tests/test.sh": slow})
    (task,) = rows(tmp_path / "in").values()
    grade = graded((backend, lab), task | {"test_timeout": 1}, tmp_path, "echo 42 >sum.txt")
    assert grade.status == "timeout" and "reward" not in grade


def test_the_patch_of_a_lost_sandbox_gets_no_verdict(lab, backend, tasks, tmp_path):
    class Lost:
        name = "bubblewrap"

        def start(self, *_, **__):
            raise OSError(28, "No space left on device")

    task, patch = tasks["write-the-sum"], "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    run = run_patch(task, patch, RepoStore(tmp_path, tmp_path), Lost(), Limits(), image=lab)
    assert bench_of((backend, lab), tasks, tmp_path).grade_of(task, patch, run).status == "infra_error"


def test_a_working_directory_becomes_a_repository_and_leaks_are_looked_for(ground, tasks):
    backend, image = ground
    assert check_image(backend, image, list(tasks.values())) == (3, [])
    with backend.start(None, image=image, limits=Limits()) as sandbox:
        base = prepare(sandbox, tasks["write-the-sum"])
        said = sandbox.exec(
            "pwd -P; git rev-parse HEAD; git status --short; git ls-files; ls /tests/ /solution/"
        )
    lines = said.output.decode().splitlines()
    assert lines[:2] == ["/testbed", base] and lines[2:5] == ["greet.sh", "numbers.txt", "shapes.py"]
    assert all("No such file" in line for line in lines[5:])


def test_backends_without_folders_for_scripts_refuse_in_one_line(lab, tasks, tmp_path, monkeypatch):
    record = folders.record(lab, tmp_path / "images.json")
    chosen = list(tasks.values())
    assert {each.for_scripts for each in task_images(chosen, record).values()} == {True}
    for name in ("apptainer", "remote"):
        monkeypatch.setenv("SWELAB_BACKEND", name)
        with pytest.raises(InputError, match=f"sandboxes of {name} have no folders for it"):
            task_images(chosen, record)


def test_folders_are_imported_and_their_gold_is_graded_by_hand(lab, tmp_path):
    for name in folders.TASKS:
        folders.write(tmp_path / "in", name)
    folders.write(
        tmp_path / "in", "no-solution", **folders.TASKS["write-the-sum"] | {"solution/solve.sh": None}
    )
    words = ["--output", tmp_path / "tasks.json", "--repos-dir", tmp_path / "repos"]
    done = run_python("-m", "scripts.import_harbor", tmp_path / "in", *words)
    assert done.returncode == 0 and "4 tasks" in done.stdout, done.stderr
    record = folders.record(lab, tmp_path / "images.json")
    words = ["-d", tmp_path / "tasks.json", "-p", "gold", "--run_id", "gold", "--images", record]
    words += ["--repos-dir", tmp_path / "repos", "--logs", tmp_path / "logs"]
    done = run_python("-m", "scripts.run_evaluation", *words, "-i", *folders.TASKS)
    assert done.returncode == 0, done.stderr
    report = read_json(tmp_path / "logs/gold/report.json")
    assert (report["resolved"], report["total"]) == (3, 3)
    assert "sum.txt" in (tmp_path / "logs/gold/write-the-sum/patch.diff").read_text()
    done = run_python("-m", "scripts.run_evaluation", *words)
    assert done.returncode == 2 and "no repair of this task is known" in done.stderr.splitlines()[-1]


DOES = {"sum.txt": "echo 42 >sum.txt", "greets nobody": "true", "rectangle": AREA}


def acts(turn, history):
    """Returns one command for the task, then the submission."""
    told = "".join(map(text_of, history))
    command = next((command for words, command in DOES.items() if words in told), "true")
    return f"```bash\n{'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT' if turn else command}\n```"


def test_a_command_on_an_attempt_finds_the_files_that_judge(lab, backend, tasks, tmp_path):
    task = tasks["write-the-sum"]
    bench, patch = (
        bench_of((backend, lab), tasks, tmp_path),
        patch_of((backend, lab), task, "echo 41 >sum.txt"),
    )
    assert run_command(task, patch, bench, "cat /tests/wanted sum.txt").output == b"42\n41\n"
    grade, run = run_again(task, patch, bench)
    assert (grade.status, grade.reward, run.rewards) == ("unresolved", 0, {"reward.txt": "0\n"})


def test_an_evaluation_takes_folders_that_a_script_judges(lab, tmp_path, monkeypatch):
    for name in folders.TASKS:
        folders.write(tmp_path / "in", name)
    record = folders.record(lab, tmp_path / "images.json")
    monkeypatch.setenv("TOY_KEY", "x")
    service = Service(speak=acts)
    words = ["--model", "openai/toy/model", "--api-base", f"{service.url}/v1", "--api-key-env", "TOY_KEY"]
    words += ["--data", tmp_path / "in", "--images", record, "--scaffold", "configs/scaffolds/demo.yaml"]
    done = run_python("-m", "scripts.evaluate", *words, "--output-dir", tmp_path / "made")
    service.close()
    assert done.returncode == 0, done.stderr
    graded = {row["instance_id"]: row for row in read_jsonl(tmp_path / "made/results.jsonl")}
    assert {name: (row["status"], row.get("reward")) for name, row in graded.items()} == {
        "write-the-sum": ("resolved", 1),
        "greet-by-name": ("empty_patch", None),
        "mend-the-shapes": ("unresolved", 0.5),
    }
    asked = "".join(text_of(each) for row in service.requests for each in row["body"]["messages"])
    assert "Write the sum" in asked and "verifier_tar" not in asked


@pytest.mark.full
def test_a_training_takes_tasks_that_a_script_judges(lab, tasks, tmp_path):
    place = small_rl.make_place(tmp_path)
    first, second, other = tasks.values()
    write_json(place / "some.json", [first, second])
    write_json(place / "held.json", [other])
    record = folders.record(lab, tmp_path / "images.json")
    words = ["--images", record, "--held-out-images", record]
    done = run_program([*small_rl.command(place), *map(str, words)], cwd=small_rl.ROOT)
    assert done.returncode == 0, done.stderr
    made = [row for path in small_rl.journals(place) for row in read_jsonl(path) if "grade" in row]
    assert len(made) == 12
    assert {row["grade"]["status"] for row in made} <= {"empty_patch", "unresolved", "resolved"}


@pytest.mark.full
@pytest.mark.skipif(not has_registry(), reason="Debian's docker-registry is not installed")
def test_folders_become_a_validated_subset_with_an_image_that_is_pulled(lab, tmp_path):
    (tmp_path / "registry").mkdir()
    with running_registry(tmp_path / "registry") as registry:
        config = {"Env": ["PATH=/usr/bin:/bin"], "WorkingDir": "/app"}
        layers = [programs_layer(), folder_layer(lab.folder / "app", "app")]
        registry.image("lab/app", layers, config=config)
        toml = folders.TOML.replace(folders.NAME, f"{registry.host}/lab/app")
        folders.write(tmp_path / "in", "greet-by-name", **{"task.toml": toml})
        folders.write(tmp_path / "in", "write-the-sum", **{"task.toml": toml, "solution/solve.sh": None})
        write_json(tmp_path / "it.yaml", {"source": "harbor", "path": str(tmp_path / "in")})
        place, made = {"--repos-dir": tmp_path, "--recipe": tmp_path / "it.yaml"}, tmp_path / "images/s.json"
        script("make_tasks", place, output="tasks.json", manifest="m.json", progress="m.jsonl")
        pulled = {"--tasks": tmp_path / "tasks.json", "--store": tmp_path / "images"}
        script("pull_images", pulled, output="images/s.json", progress="p.jsonl")
    known = {"--tasks": tmp_path / "tasks.json", "--images": made}
    script("validate_tasks", place | known, output="lock.json", kept="kept.json", progress="v.jsonl")
    kept = {row["instance_id"]: row.get("validated") for row in read_json(tmp_path / "lock.json")["kept"]}
    assert kept == {"greet-by-name": None, "write-the-sum": "null only"}
    assert [task.by_script for task in read_tasks(tmp_path / "kept.json")] == [True, True]


def script(name, options, **files):
    """Runs a script with extra files in the folder of its recipe or tasks. The script must succeed."""
    place = options["--tasks"].parent if "--tasks" in options else options["--repos-dir"]
    words = [word for pair in options.items() for word in pair]
    words += [word for flag, file in files.items() for word in (f"--{flag}", place / file)]
    done = run_python("-m", f"scripts.{name}", *words)
    assert done.returncode == 0, done.stderr
