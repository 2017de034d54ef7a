"""SWE-smith's repositories run the commands of swesmith's profiles, and their logs are read the same way."""

import json
import subprocess

import pytest

from swelab.grading.harness.logs import statuses
from swelab.grading.harness.spec import read_spec
from swelab.grading.harness.swesmith_profiles import BY_FILE, OWN, command, listed_tests, repository
from swelab.records import InputError
from swelab.records.task_records import Task
from tests.at_hand import PEER, needs_peer
from tests.conftest import BUG

PYTEST = """
tests/test_a.py::test_one PASSED                                        [ 25%]
tests/test_a.py::test_two[x-1] FAILED                                   [ 50%]
tests/test_b.py::T::test_three SKIPPED (no)                             [ 75%]
tests/test_b.py::T::test_four XFAIL (why)                               [100%]
"""
REPORTED = """
PASSED tests/test_a.py::test_one
FAILED tests/test_a.py::test_two - assert 1 == 2
ERROR tests/test_b.py::test_three
"""
UNITTEST = """
test_ok (tornado.test.web_test.HelloTest) ... ok
test_left (tornado.test.web_test.HelloTest) ... skipped 'no network'
test_not (tornado.test.web_test.HelloTest) ... FAIL
test_raises (tornado.test.web_test.HelloTest) ... ERROR

======================================================================
ERROR: test_raises (tornado.test.web_test.HelloTest)
FAIL: test_not (tornado.test.web_test.HelloTest)
----------------------------------------------------------------------
"""
GO = """
=== RUN   TestAdd
--- PASS: TestAdd (0.00s)
=== RUN   TestTable
=== RUN   TestTable/one_case
    calc_test.go:9: got 1
--- FAIL: TestTable (0.01s)
    --- FAIL: TestTable/one_case (0.00s)
    --- PASS: TestTable/other (0.00s)
--- SKIP: TestLong (0.00s)
FAIL
FAIL\tgithub.com/o/calc\t0.012s
FAIL\tgithub.com/o/calc/broken [build failed]
ok  \tgithub.com/o/calc/sub\t0.003s
"""
LOGS = {"pytest": PYTEST, "reported": REPORTED, "unittest": UNITTEST, "go": GO}
GO_BUG = "--- a/calc.go\n+++ b/calc.go\n@@ -1 +1 @@\n-\treturn a + b\n+\treturn a - b\n"
ASK = """
import json, sys
from swesmith.profiles import registry
from swesmith.profiles.golang import GoProfile
from swesmith.profiles.python import PythonProfile

logs, found = json.load(sys.stdin), {}
for profile in registry.values():
    if isinstance(profile, (PythonProfile, GoProfile)):
        row = {"instance_id": f"{profile.repo_name}.x__1", "patch": "", **logs["listed"]}
        read = {name: profile.log_parser(log) for name, log in logs.items() if name != "listed"}
        found[profile.mirror_name] = [isinstance(profile, GoProfile), profile.get_test_cmd(row)[0], read]
json.dump(found, sys.stdout)
"""
LISTED = {"FAIL_TO_PASS": ["tests/b.py::t1"], "PASS_TO_PASS": ["tests/b.py::t0", "tests/a.py::t2"]}


def row(name, listed=LISTED, patch=BUG):
    return Task.of({"instance_id": f"{name}.x__1", "repo": f"swesmith/{name}", "patch": patch, **listed})


@pytest.fixture(scope="module")
def profiles():
    """Maps `repo` of rows to (whether it is Go, command, statuses by log) of the peer's profile."""
    given = {"listed": LISTED, **LOGS}
    done = subprocess.run([PEER, "-c", ASK], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def words(line):
    """Returns a command's words without conda, repeated files, and our deliberate differences."""
    line = line.replace("activate; ", "activate && ").replace("testbed; ", "testbed && ")
    return [word for word in dict.fromkeys(line.split()) if word not in ("--rootdir=.", "-n0")]


@pytest.mark.full
@needs_peer
def test_every_profile_is_run_as_the_peer_does(profiles):
    assert len(profiles) == 220 and sum(go for go, *_ in profiles.values()) == 87
    names = {repository(row(repo.rpartition("/")[2])) for repo in profiles}
    assert set(OWN) | BY_FILE <= names
    for repo, (go, line, _) in profiles.items():
        ours, _ = command(row(repo.rpartition("/")[2], patch=GO_BUG if go else BUG))
        if line.endswith(" -k"):  # mypy: its command names no case, and pytest would not start
            line += " 't1 or t0 or t2'"
        assert words(ours) == words(line), repo


@pytest.mark.full
@needs_peer
def test_every_log_is_read_as_the_peer_does(profiles):
    forms = {
        "parse_log_go_verbose": "go",
        "parse_log_pytest_verbose": "pytest",
        "parse_log_pytest": "reported",
    }
    otherwise = []
    for repo, (go, _, read) in profiles.items():
        parser = command(row(repo.rpartition("/")[2], patch=GO_BUG if go else BUG))[1]
        if form := forms.get(parser):
            otherwise += [repo.rpartition("__")[2]] * (statuses(LOGS[form], parser) != read[form])
        else:
            passed = {test for test, word in read["unittest"].items() if word == "PASSED"}
            assert {t for t, word in statuses(UNITTEST, parser).items() if word == "PASSED"} == passed
            assert set(read["unittest"]) <= set(statuses(UNITTEST, parser))
    # autograd: its parser reads the output of several processes. mypy: a line's last word is the test.
    assert sorted(otherwise) == ["autograd.ac044f0d", "mypy.e93f06ce"]


def test_a_test_of_one_name_in_two_packages_fails_if_one_does():
    assert statuses(GO, "parse_log_go_verbose")["TestTable/one_case"] == "FAILED"
    assert statuses(GO + "--- PASS: TestTable (0.00s)\n", "parse_log_go_verbose")["TestTable"] == "FAILED"
    late = UNITTEST + "test_not (tornado.test.web_test.HelloTest) ... ok\n"
    assert (
        statuses(late, "parse_log_unittest_verbose")["test_not (tornado.test.web_test.HelloTest)"] == "FAILED"
    )
    assert statuses("PASS\nok  \tx\t0.1s\nPASSED y\nFAIL\n", "parse_log_go_verbose") == {}


def test_a_repository_is_found_without_its_name():
    unnamed = row("scrapy__scrapy.35212ec5") | {"repo": ""}
    assert repository(unnamed) == "scrapy/scrapy" == repository(row("Scrapy__scrapy.35212ec5"))
    assert command(unnamed)[0].endswith(" tests/b.py tests/a.py")
    listed = {"FAIL_TO_PASS": ["../dev/tests/t.py::t"], "PASS_TO_PASS": []}
    assert listed_tests(listed)["FAIL_TO_PASS"] == ["tests/t.py::t"]
    assert read_spec(row("mido__mido.a0158ff9", listed)).listed == ["tests/t.py::t"]


def test_what_decides_a_go_test_is_restored():
    spec = read_spec(row("o__calc.00000000", {"FAIL_TO_PASS": ["TestAdd"], "PASS_TO_PASS": []}, GO_BUG))
    assert not spec.by_pytest and spec.test_cmd == "go test -v ./..."
    assert (
        spec.protects("sub/calc_test.go")
        and spec.protects("sub/testdata/a.golden")
        and spec.protects("go.mod")
    )
    assert not spec.protects("calc.go")


def test_files_of_tests_that_pytest_does_not_name_are_restored():
    named = [
        ("un33k__python-slugify.872b3750", "test_a (__main__.TestSlugify)", "test.py"),
        ("un33k__python-slugify.872b3750", "test_a (__main__.TestSlugify.test_a)", "test.py"),
        (
            "tornadoweb__tornado.d5ac65c1",
            "test_a (tornado.test.web_test.GetTest)",
            "tornado/test/web_test.py",
        ),
        ("tornadoweb__tornado.d5ac65c1", "test_a (tornado.test.web_test.GetTest)", "tornado/test/util.py"),
        (
            "python__mypy.e93f06ce",
            "mypy/test/testcheck.py::S::check-a.test::testA",
            "test-data/unit/check-a.test",
        ),
    ]
    for name, test, path in named:
        spec = read_spec(row(name, {"FAIL_TO_PASS": [test], "PASS_TO_PASS": []}))
        assert spec.protects(path) and not spec.protects("tornado/web.py"), (path, spec.test_files)


def test_a_language_without_a_known_command_is_one_line():
    listed = {"FAIL_TO_PASS": ["adds"], "PASS_TO_PASS": []}
    task = row("o__calc.00000000", listed, GO_BUG.replace("calc.go", "calc.ts"))
    with pytest.raises(InputError, match="no test command is known for typescript.*languages: .python, go."):
        read_spec(task)
    assert read_spec(task | {"test_cmd": "npx vitest run", "log_parser": "parse_log_vitest"}).test_cmd
