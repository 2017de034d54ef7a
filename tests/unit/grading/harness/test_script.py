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
        ("if true; then\n  pytest a\nfi", ""),
        ("cd a &&\npytest b", ""),
        ("make test", ""),
    ],
)
def test_where_a_line_goes_before_the_tests(text, place):
    changed = script.with_line_before_tests(text, "HERE")
    assert changed == (text.replace(place, f"HERE\ngit() {{ :; }}\n{place}") if place else text)
