"""Harbor's task folders by other authors: those that can be graded become rows, the rest are named."""

import base64
import io
import json
import shutil
import tarfile

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import REPO, SUBSET
from swelab.evaluation.benchmark_rows import Source, read_benchmark
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError
from swelab.sharing.harbor_export import Export, write_folders
from swelab.tasks.harbor import build_repo, harbor_source, make_tasks
from swelab.tasks.harbor.harbor_archives import canonical
from swelab.tasks.harbor.harbor_dockerfile import image_of
from swelab.tasks.harbor.harbor_folder import Refused
from swelab.tasks.harbor.harbor_source import import_folders, read_rows

IMAGE = "swebench/sweb.eval.x86_64.psf_1776_requests-1:latest"
TOML = 'version = "1.0"\n[metadata]\ndifficulty = "easy"\n[verifier]\ntimeout_sec = 3000.0\n'
DOCKERFILE = f"""# a published image
FROM {IMAGE}
WORKDIR /testbed
RUN apt-get update && apt-get install -y --no-install-recommends curl && \\
    rm -rf /var/lib/apt/lists/*
RUN curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
RUN mkdir -p /logs
"""
ROW = {
    "instance_id": "psf__requests-1",
    "repo": "psf/requests",
    "version": "2.0",
    "base_commit": "1" * 40,
    "problem_statement": "get fails",
    "patch": "--- a/requests/api.py\n+++ b/requests/api.py\n@@ -1 +1 @@\n-a\n+b\n",
    "test_patch": "--- a/tests/test_api.py\n+++ b/tests/test_api.py\n@@ -1 +1 @@\n-a\n+b\n",
    "FAIL_TO_PASS": '["tests/test_api.py::test_get"]',
    "PASS_TO_PASS": '["tests/test_api.py::test_put"]',
}
FILES = {
    "task.toml": TOML,
    "instruction.md": "Mend get.\n",
    "environment/Dockerfile": DOCKERFILE,
    "tests/config.json": json.dumps(ROW),
    "tests/test.sh": "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
}


def folder(place, name="one", **changes):
    """Writes a task folder in the form of SWE-bench conversions. None removes a file."""
    for path, text in {**FILES, **changes}.items():
        if text is not None:
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return place / name


def with_row(**changes):
    return {"tests/config.json": json.dumps({**ROW, **changes})}


def subset(place, **settings):
    return recipes.complete(SUBSET, {"source": "harbor", "path": str(place), **settings}, "it")


def only(place):
    (found,) = read_rows(place, read_spec)
    return found[1]


def test_a_conversion_of_swe_bench_is_its_row_in_its_image(tmp_path):
    folder(tmp_path)
    rows, drops = make_tasks(subset(tmp_path), {}, read_spec)
    assert not drops
    (row,) = rows
    assert row["FAIL_TO_PASS"] == ["tests/test_api.py::test_get"] and row["patch"] == ROW["patch"]
    assert row["image_name"] == IMAGE and row["problem_statement"] == "Mend get.\n"


def test_what_the_row_does_not_say_is_in_the_folder(tmp_path):
    named = 'schema_version = "1.4"\n[environment]\ndocker_image = "own/prebuilt:3"\n'
    row = {name: value for name, value in ROW.items() if name != "problem_statement"}
    changes = {"environment/Dockerfile": "FROM scratch\n", "tests/config.json": json.dumps(row)}
    folder(tmp_path, **{"task.toml": named, **changes})
    found = only(tmp_path)
    assert found.image_name == "own/prebuilt:3" and found.problem_statement == "Mend get.\n"


def test_a_list_of_tests_and_a_script_make_a_folder_usable(tmp_path):
    wanted = ("instance_id", "repo", "patch", "FAIL_TO_PASS", "PASS_TO_PASS")
    row = {name: ROW[name] for name in wanted} | {"repo": "own/any", "eval_script": "cd /app; pytest -rA"}
    named = '[environment]\ndocker_image = "own/any:1"\n'
    changes = {"environment/Dockerfile": None, "tests/config.json": json.dumps(row)}
    folder(tmp_path, **{"task.toml": named, **changes})
    spec = read_spec(only(tmp_path))
    assert (spec.image, spec.gold_fix, spec.seconds) == ("own/any:1", ROW["patch"], 1800)
    assert "pytest -rA" in spec.eval_script and spec.listed == [
        f"tests/test_api.py::test_{x}" for x in ("get", "put")
    ]


SCRIPT_ALONE = {
    "task.toml": TOML + '[environment]\ndocker_image = "own/app:1"\n',
    "environment/Dockerfile": "FROM debian\nRUN make\n",
    "tests/config.json": None,
    "tests/data/a.txt": "1\n",
    "solution/repair.py": "pass\n",
}


def unpacked(text):
    """Returns (content, mode) by name of the files in a row's field."""
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text))) as tar:
        return {each.name: (tar.extractfile(each).read().decode(), each.mode) for each in tar}


def test_a_folder_with_a_script_alone_is_a_row_that_the_script_judges(tmp_path):
    path = folder(tmp_path, **SCRIPT_ALONE)
    (path / "solution/solve.sh").chmod(0o755)
    row = only(tmp_path)
    assert (row.instance_id, row.answers, row.image_name) == ("one", "script", "own/app:1")
    assert (row.patch, row.FAIL_TO_PASS, row.PASS_TO_PASS) == ("", [], []) and not row.is_bug
    tests, solution = unpacked(row.verifier_tar), unpacked(row.solution_tar)
    assert tests["data/a.txt"] == ("1\n", 0o644) and set(tests) == {"test.sh", "data/a.txt"}
    assert solution == {"solve.sh": ("#!/bin/bash\ntrue\n", 0o755), "repair.py": ("pass\n", 0o644)}
    assert (read_spec(row).seconds, read_spec(row).verifier) == (3000, row.verifier_tar)


def test_a_folder_without_a_solution_whose_tests_have_a_file_named_as_the_row(tmp_path):
    plain = {"tests/config.json": '{"port": 80}', "solution/solve.sh": None, "task.toml": 'version = "1.0"\n'}
    plain["task.toml"] += 'verifier.env = { MODE = "strict" }\n'
    folder(tmp_path, **{**SCRIPT_ALONE, **plain, "environment/Dockerfile": f"FROM {IMAGE}\nCMD true\n"})
    row = only(tmp_path)
    assert "solution_tar" not in row and "config.json" in unpacked(row.verifier_tar)
    assert row.image_name == IMAGE and read_spec(row).seconds == 600
    assert read_spec(row).verifier_env == (("MODE", "strict"),)


BROKEN_SCRIPTS = {
    "a Dockerfile that installs": ("an image that has to be built", {"environment/Dockerfile": DOCKERFILE}),
    "a Dockerfile that names a folder": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\n"},
    ),
    "a variable of Harbor's machine": (
        "a setting that sandboxes here lack",
        {"task.toml": 'verifier.env = { A = "${A}" }'},
    ),
    "a variable that is none": ("task.toml is not Harbor's", {"task.toml": "verifier.env = { A = 1 }"}),
    "too much": (
        "a broken file",
        {"environment/Dockerfile": f"FROM {IMAGE}\n", "tests/big": b"0" * (harbor_source.MOST_BYTES + 1)},
    ),
}


@pytest.mark.parametrize("case", list(BROKEN_SCRIPTS))
def test_a_folder_with_a_script_that_cannot_judge_here_is_refused(tmp_path, case):
    reason, changes = BROKEN_SCRIPTS[case]
    folder(tmp_path, **{**SCRIPT_ALONE, "task.toml": 'version = "1.0"\n', **changes})
    assert only(tmp_path).reason == reason


def test_a_script_and_its_files_do_not_lead_out_of_the_folder(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a").touch()
    path = folder(tmp_path / "tasks", **SCRIPT_ALONE)
    (path / "tests/link").symlink_to(secret / "a")
    assert only(tmp_path / "tasks").reason == "a path out of the folder"
    (path / "tests/link").unlink()
    (path / "solution/link").symlink_to(secret)
    assert only(tmp_path / "tasks").reason == "a broken file"
    (path / "solution/link").unlink()
    path.rename(tmp_path / "tasks/with space")
    assert only(tmp_path / "tasks").reason == "no instance id"


def test_an_agent_is_told_the_instruction_without_the_marks_of_benchmarks(tmp_path):
    marked = "<!-- a canary: keep out of training data -->\n# Canary 1\n\n# Mend get\n\nIt fails.\n"
    folder(tmp_path, **{"instruction.md": marked})
    assert only(tmp_path).problem_statement == "# Mend get\n\nIt fails.\n"


@pytest.mark.parametrize(
    ("toml", "row", "seconds"),
    [
        (TOML, {}, 3000),
        (TOML.replace("3000.0", "90.5"), {}, 91),
        (TOML, {"test_timeout": 60}, 60),
        ('version = "1.0"\n', {}, 1800),
    ],
)
def test_tests_may_take_the_time_that_the_verifier_has(tmp_path, toml, row, seconds):
    folder(tmp_path, **{"task.toml": toml, **with_row(**row)})
    assert read_spec(only(tmp_path)).seconds == seconds


LEFT_ALONE = """schema_version = "1.3"
artifacts = ["/logs/artifacts"]
unknown = 1
[agent]
timeout_sec = 60
user = "agent"
[verifier]
environment_mode = "separate"
[verifier.environment]
network_mode = "no-network"
[[verifier.collect]]
command = "git diff"
[environment]
env = {}
gpus = 0
cpus = 4
memory = "8G"
storage = "20G"
allow_internet = true
mcp_servers = []
[solution]
env = { KEY = "1" }
"""


def test_settings_without_a_bearing_on_verdicts_are_left_alone(tmp_path):
    folder(tmp_path, **{"task.toml": LEFT_ALONE, "tests/test.sh": None})
    assert only(tmp_path).instance_id == ROW["instance_id"]


def test_line_ends_of_windows_are_line_feeds(tmp_path):
    names = ("task.toml", "instruction.md", "environment/Dockerfile", "tests/config.json")
    folder(tmp_path / "a")
    folder(tmp_path / "b", **{name: FILES[name].replace("\n", "\r\n") for name in names})
    assert only(tmp_path / "b") == only(tmp_path / "a")


BROKEN = {
    "no task.toml": ("no task.toml", {"task.toml": None}),
    "bad TOML": ("task.toml is not TOML", {"task.toml": "version = = 1"}),
    "a number of 5000 digits": ("task.toml is not TOML", {"task.toml": f"a = {'1' * 5000}"}),
    "TOML that is not UTF-8": ("a broken file", {"task.toml": b'version = "\xff"'}),
    "a table that is none": ("task.toml is not Harbor's", {"task.toml": 'environment = "docker"'}),
    "version 2": ("another version of the format", {"task.toml": 'schema_version = "2.0"'}),
    "a version that is a number": ("another version of the format", {"task.toml": "version = 1.0"}),
    "no instruction": ("no instruction.md", {"instruction.md": None}),
    "an empty instruction": ("no instruction.md", {"instruction.md": " \n"}),
    "steps": ("several steps", {"task.toml": TOML + '[[steps]]\nname = "a"\n'}),
    "a compose file": ("several containers", {"environment/docker-compose.yaml": "services: {}\n"}),
    "Windows": ("not of Linux", {"task.toml": TOML + '[environment]\nos = "windows"\n'}),
    "a conversation": ("a conversation before it", {"trajectory.json": "{}"}),
    "a verifier that is none": ("task.toml is not Harbor's", {"task.toml": "verifier = 1"}),
    "a time that is none": ("task.toml is not Harbor's", {"task.toml": "[verifier]\ntimeout_sec = '1'"}),
    "a time without end": ("task.toml is not Harbor's", {"task.toml": "[verifier]\ntimeout_sec = inf"}),
    "tests that need another container": (
        "an image that has to be built",
        {"task.toml": "[verifier]\nenvironment_mode = 'separate'", "tests/Dockerfile": "FROM python\n"},
    ),
    "an instruction of marks": ("no instruction.md", {"instruction.md": "# canary 1\n"}),
    "neither a row nor a script": ("nothing that judges", {"tests/config.json": None, "tests/test.sh": None}),
    "a row that is no JSON": ("tests/config.json is not JSON", {"tests/config.json": "{"}),
    "a row that is a list": ("tests/config.json holds no row", {"tests/config.json": "[]"}),
    "no tests to repair": ("tests/config.json holds no row", with_row(FAIL_TO_PASS=[])),
    "tests that are no list": ("tests/config.json holds no row", with_row(FAIL_TO_PASS="test_get")),
    "no patch": ("tests/config.json holds no row", with_row(patch="")),
    "an id with a path": ("no tests that can be run here", with_row(instance_id="../x")),
    "nobody knows how it is tested": ("no tests that can be run here", with_row(repo="own/unknown")),
    "no Dockerfile": ("no image", {"environment/Dockerfile": None}),
    "an image of many stages": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nFROM python:3.11\n"},
    ),
    "a Dockerfile that builds": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nRUN rm -rf tests\n"},
    ),
    "a Dockerfile that hides a command": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nRUN mkdir -p /logs && echo $(rm -rf tests)\n"},
    ),
    "a Dockerfile that pipes into a shell": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nRUN echo rm -rf tests | sh\n"},
    ),
    "a Dockerfile that works behind another command": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nRUN apt-get install curl & rm -rf tests\n"},
    ),
    "a Dockerfile that copies": (
        "an image that has to be built",
        {"environment/Dockerfile": f"FROM {IMAGE}\nCOPY . /testbed\n"},
    ),
    "a variable for an image": ("an image that has to be built", {"environment/Dockerfile": "FROM $BASE\n"}),
    "no image's name": ("no image", {"environment/Dockerfile": "FROM ../../etc\n"}),
    "an archive's name that leads out": (
        "a path out of the folder",
        {"task.toml": TOML + '[metadata.swelab]\nrepository = "../../etc"\n'},
    ),
    "a repository that is not in it": ("its repository is not in it", with_row(repo_recipe="calc")),
}


@pytest.mark.parametrize("odd", ["\f", "\x0b", "\x1c", "\x85", "\u2028"])
def test_a_line_feed_alone_ends_a_line_of_a_dockerfile(odd):
    assert image_of(f'FROM {IMAGE}\nLABEL note="a{odd}COPY . /testbed"\n') == IMAGE


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_broken_folder_is_refused_by_name(tmp_path, capsys, case):
    reason, changes = BROKEN[case]
    folder(tmp_path, "good")
    path = folder(tmp_path, "bad", **changes)
    if "tests/config.json" not in changes:
        row = json.dumps({**ROW, "instance_id": "psf__requests-2"})
        (path / "tests/config.json").write_text(row)
    rows, drops = make_tasks(subset(tmp_path), {}, read_spec)
    assert [row["instance_id"] for row in rows] == ["psf__requests-1"] and drops == {reason: 1}
    assert f"refused: bad: {reason}" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "good")
    with pytest.raises(InputError, match="no task folder can be used") as fault:
        make_tasks(subset(tmp_path), {}, read_spec)
    assert reason in str(fault.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("environment.env", "{ A = '1' }"),
        ("environment.gpus", "1"),
        ("environment.tpu", "{ type = 'v4', topology = '2x2' }"),
        ("environment.healthcheck", "{ command = 'true' }"),
        ("environment.mcp_servers", "[{ name = 'a' }]"),
        ("environment.skills_dir", "'/skills'"),
        ("verifier.env", "{ A = '1' }"),
        ("verifier.environment.docker_image", "'python'"),
        ("verifier.environment.env", "{ A = '1' }"),
    ],
)
def test_a_setting_that_sandboxes_lack_is_refused_by_its_key(tmp_path, key, value):
    folder(tmp_path, **{"task.toml": f"{key} = {value}\n"})
    fault = only(tmp_path)
    assert str(fault).startswith(f"a setting that sandboxes here lack: task.toml: {key} = ")


@pytest.mark.parametrize(
    "name", ["task.toml", "instruction.md", "environment/Dockerfile", "tests/config.json"]
)
def test_a_link_out_of_the_folder_is_not_followed(tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text(FILES[name])
    path = folder(tmp_path / "tasks") / name
    path.unlink()
    path.symlink_to(secret)
    assert only(tmp_path / "tasks").reason == "a path out of the folder"


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "tests/config.json"])
def test_a_link_to_itself_is_a_broken_file(tmp_path, name):
    path = folder(tmp_path) / name
    path.unlink()
    path.symlink_to(path)
    assert only(tmp_path).reason == "a broken file"


def test_a_folder_that_is_linked_out_and_a_pipe_are_not_read(tmp_path):
    import os

    path = folder(tmp_path / "tasks")
    shutil.move(path / "tests", tmp_path / "elsewhere")
    (path / "tests").symlink_to(tmp_path / "elsewhere")
    assert only(tmp_path / "tasks").reason == "a path out of the folder"
    (path / "tests").unlink()
    shutil.move(tmp_path / "elsewhere", path / "tests")
    (path / "instruction.md").unlink()
    os.mkfifo(path / "instruction.md")
    assert only(tmp_path / "tasks").reason == "a broken file"


def test_no_folder_an_empty_one_and_the_same_task_twice(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        make_tasks(subset(tmp_path / "none"), {}, read_spec)
    with pytest.raises(InputError, match="holds no task folder"):
        make_tasks(subset(tmp_path), {}, read_spec)
    folder(tmp_path, "a")
    folder(tmp_path, "b")
    rows, drops = make_tasks(subset(tmp_path), {}, read_spec)
    assert len(rows) == 1 and drops == {"the same instance_id twice": 1}
    folder(tmp_path, "c", **with_row(instance_id="psf__requests-3"))
    assert make_tasks(subset(tmp_path, limit=1), {}, read_spec)[1]["over_limit"] == 1


@pytest.fixture
def exported(tmp_path, repos_dir, task):
    """The task of the package calc, twice, as folders."""
    to = tmp_path / "out"
    write_folders([task, task | {"instance_id": "second"}], to, Export(repos_dir))
    return to


def test_the_archive_of_an_export_is_made_again(exported, repos_dir, task):
    recipe = recipes.complete(REPO, {"source": "harbor", "path": str(exported), "repository": "calc"}, "it")
    (repos_dir / "again.tar").write_bytes(build_repo(recipe))
    assert canonical(repos_dir / "again.tar") == canonical(repos_dir / "calc.tar")
    rows, drops = make_tasks(subset(exported, repos=["calc"]), {"calc": repos_dir / "again.tar"}, read_spec)
    assert sorted(row["instance_id"] for row in rows) == ["second", task["instance_id"]] and not drops
    assert next(row for row in rows if row["instance_id"] != "second") == task


def test_an_edited_instruction_of_an_export_is_the_problem_statement(exported, repos_dir, task):
    path, same = exported / "second/instruction.md", exported / task["instance_id"] / "instruction.md"
    path.write_text(path.read_text() + "Add no file.\n")
    same.write_bytes(same.read_bytes().replace(b"\n", b"\r\n"))
    rows, _ = make_tasks(subset(exported, repos=["calc"]), {"calc": repos_dir / "calc.tar"}, read_spec)
    told = {row["instance_id"]: row["problem_statement"] for row in rows}
    statement = task["problem_statement"]
    assert told == {task["instance_id"]: statement, "second": f"{statement.strip()}\nAdd no file.\n"}


def test_a_statement_with_line_ends_of_windows_comes_back_as_it_was(tmp_path, repos_dir, task):
    odd = task | {"problem_statement": "  add fails\r\nwith 2 and 3 \r\n"}
    write_folders([odd], tmp_path / "out", Export(repos_dir))
    assert only(tmp_path / "out") == odd


def test_an_archive_that_is_not_named_or_another_one_is_told(exported, repos_dir, capsys):
    with pytest.raises(InputError, match="its repository is not named"):
        make_tasks(subset(exported), {}, read_spec)
    assert "`repos: [calc]`" in capsys.readouterr().err
    with tarfile.open(repos_dir / "other.tar", "w") as tar:
        entry = tarfile.TarInfo("a.py")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"1"))
    with pytest.raises(InputError, match="its repository is another one"):
        make_tasks(subset(exported, repos=["calc"]), {"calc": repos_dir / "other.tar"}, read_spec)


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "a/.git/config", "link"])
def test_an_archive_with_an_unsafe_entry_is_refused(exported, tmp_path, member):
    with tarfile.open(exported / "second/environment/repository.tar", "w") as tar:
        entry = tarfile.TarInfo(member)
        entry.type = tarfile.SYMTYPE if member == "link" else tarfile.REGTYPE
        entry.linkname = "/etc/passwd" if member == "link" else ""
        tar.addfile(entry)
    found = import_folders(exported, tmp_path / "new", read_spec)
    assert [fault.reason for fault in found.refused.values()] == ["its repository cannot be made again"]
    assert not (tmp_path / "evil.py").exists() and len(found.rows) == 1


def test_a_changed_checkout_is_not_taken_for_the_original(exported, tmp_path):
    path = exported / "second/tests/config.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "patch": row["patch"].replace("a - b", "a * b")}))
    found = import_folders(exported, tmp_path / "new", read_spec)
    assert found.reasons() == {"its repository cannot be made again": 1}
    assert (tmp_path / "new/calc.tar").is_file()


def test_an_evaluation_reads_task_folders(tmp_path, exported):
    folder(exported, "third")
    folder(exported, "fourth", **{"instruction.md": None})
    found = read_benchmark(Source(str(exported)))
    assert Source(str(exported)).name == "out" and found.rows == 4
    assert [len(found.tasks), len(found.refused)] == [3, 1]
    assert found.reasons() == [
        f"1 refused, such as {exported / 'fourth'}: no instruction.md: the file is missing"
    ]


def test_what_refuses_says_what_and_where():
    assert str(Refused("no image", "a\nb")) == "no image: a b"
