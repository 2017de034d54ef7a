"""Eval scripts and test commands as text."""

import pytest

from swelab.grading.harness import script


@pytest.mark.parametrize(
    "text, expected",
    [
        ("python -m pytest -rA tests/a.py", "python -m pytest"),
        (
            "source /opt/x/activate && conda activate testbed && pytest -rA a",
            "source /opt/x/activate\nconda activate testbed\npytest",
        ),
        ("TZ=UTC python -W ignore -m pytest -q", "TZ=UTC python -W ignore -m pytest"),
        (
            "pip install pytest\ncd /testbed\ngit apply - <<'E'\ncd /nowhere\nE\npytest -rA a",
            "cd /testbed\npytest",
        ),
        (
            "conda() { export PATH=/x:$PATH; }\nsource /a\npytest x",
            "conda() { export PATH=/x:$PATH; }\nsource /a\npytest",
        ),
        ("make test", "python -m pytest"),
    ],
)
def test_how_pytest_is_started_without_its_arguments(text, expected):
    assert script.launcher(text) == expected


MARKED = ": '>>>>> Start Test Output'"


@pytest.mark.parametrize(
    "text, place",
    [
        ("git apply x\npytest -rA a\ngit checkout b", "pytest -rA a"),
        (f"git apply x\n{MARKED}\n./run a\n: '>>>>> End Test Output'\ngit checkout b", MARKED),
        (f"git apply x\n{MARKED}\npytest a\n", MARKED),
        ("cat <<'E'\npytest a\nE\npytest b", "pytest b"),
        ("git apply x\nif true; then\n  pytest a\nfi", "if true;"),
        ("git apply x\nif true\nthen\n  cd b\nelse\n  pytest a\nfi", "if true\n"),
        ("git apply x\ncd a &&\npytest b", "cd a &&"),
        ("git apply x\npython -u \\\n -m pytest b", "python -u"),
        ("#!/bin/bash\nmake test", "make test"),
        ("make test", "make test"),
    ],
)
def test_where_a_line_goes_before_the_tests(text, place):
    changed = script.with_line_before_tests(text, "HERE")
    assert changed == text.replace(place, f"HERE\ngit() {{ :; }}\n{place}")


@pytest.mark.parametrize(
    "text",
    [
        "git apply x\nmake test",
        "if true; then\n  git apply x\n  pytest a\nfi",
        "run() {\n  pytest a\n}\ngit apply x\nrun",
        "bash <<'E'\ngit apply x\npytest a\nE\n",
    ],
)
def test_a_script_that_does_not_tell_where_its_tests_begin(text):
    with pytest.raises(ValueError, match="git"):
        script.with_line_before_tests(text, "HERE")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("PYTHONPATH=src pytest a", "PYTHONPATH=/g:src pytest a"),
        ("env PYTHONPATH='src' pytest", "env PYTHONPATH=/g:'src' pytest"),
        ('export "PYTHONPATH=a:$PYTHONPATH"; pytest', 'export "PYTHONPATH=/g:a:$PYTHONPATH"; pytest'),
        ("PYTHONPATH= pytest", "PYTHONPATH=/g pytest"),
        ("PYTHONPATH='' pytest", "PYTHONPATH=/g pytest"),
        ("export PYTHONPATH=", "export PYTHONPATH=/g"),
        ("PYTHONPATH+=:src pytest", "PYTHONPATH+=:src pytest"),
        ("MY_PYTHONPATH=x pytest ${PYTHONPATH:=y}", "MY_PYTHONPATH=x pytest ${PYTHONPATH:=y}"),
    ],
)
def test_a_folder_goes_before_every_value_of_pythonpath(text, expected):
    assert script.with_folder_first(text, "/g") == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("pytest a", []),
        ("PYTHONPATH=src:./lib/ pytest", ["lib", "src"]),
        ("PYTHONPATH=$PWD:/opt/x:$PYTHONPATH pytest", ["."]),
        ('PYTHONPATH="$(pwd)/src${PYTHONPATH:+:$PYTHONPATH}" pytest', ["src"]),
        ("PYTHONPATH+=:/testbed/a pytest", [".", "a"]),
        ("cd sub && PYTHONPATH=..:x pytest", [".", "sub/x", "x"]),
        ("cd a\ncd b\nbash -c 'PYTHONPATH=x pytest'", ["a/b/x", "a/x", "b/x", "x"]),
        ("env -C sub PYTHONPATH=. pytest", [".", "sub"]),
        ("cd /opt && PYTHONPATH=. pytest", ["."]),
    ],
)
def test_the_folders_that_a_command_puts_on_pythonpath(text, expected):
    assert script.import_folders(text) == expected


@pytest.mark.parametrize(
    "text, part",
    [
        ("PYTHONPATH=$X pytest", "PYTHONPATH=$X"),
        ("PYTHONPATH=$(./where) pytest", "PYTHONPATH=$(./where)"),
        ("cd $X && PYTHONPATH=. pytest", "cd $X"),
        ("PYTHONPATH=s* pytest", "PYTHONPATH=s*"),
    ],
)
def test_a_folder_that_only_the_shell_knows(text, part):
    with pytest.raises(ValueError) as fault:
        script.import_folders(text)
    assert str(fault.value) == part
