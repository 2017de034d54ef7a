"""Install steps in the eval scripts of real rows, and in lines of every form."""

import pytest

from swelab.files.dataset_files import read_rows
from swelab.records.task_records import Task
from swelab.tasks.install_steps import preparation, without_installs
from swelab.tasks.published_rows import read_row
from tests.at_hand import DATA, needs_rows

HEAD = "#!/bin/bash\nset -exo pipefail\nsource /opt/miniconda3/bin/activate\ncd /testbed\n"
TAIL = "git checkout abc t.py\ngit apply -v - <<'EOF'\n+pip install nothing\nEOF\npytest -rA t.py\n"


@needs_rows
def test_real_scripts_are_split():
    rows = [read_row(row, "gym") for row in read_rows(DATA / "swe_gym_subset20.jsonl", 64)]
    assert len(rows) == 20
    for row in rows:
        script, steps, kept = row["eval_script"], preparation([row]), without_installs(row["eval_script"])
        named = "make init" if "moto" in row["instance_id"] else "python -m pip install -e ."
        assert f"\n{named} || " in steps and "conda activate testbed\n" in steps and "git " not in steps
        assert "set -e" not in steps and named not in kept
        start = script.index("git checkout")
        assert kept.endswith(script[start:])
        assert len(kept.split("\n")) == len(script.split("\n"))


@pytest.mark.parametrize(
    "line, kept",
    [
        ("pip install -e .", ":"),
        ("python -m pip install -r a.txt; pip3 install pytest; hash -r;", "hash -r"),
        ("FOO=1 python3.9 -m pip install x && echo done", "echo done"),
        ("apt-get update && apt-get install -y make", ":"),
        ("conda install -y numpy", ":"),
        ("conda activate testbed", "conda activate testbed"),
        ("make test", "make test"),
        ("pip list", "pip list"),
        ("python setup.py build_ext --inplace", "python setup.py build_ext --inplace"),
        ("pip install -v --no-build-isolation -e .", "pip install -v --no-build-isolation -e ."),
    ],
)
def test_what_is_left_for_the_sandbox(line, kept):
    assert without_installs(f"{HEAD}{line}\n{TAIL}") == f"{HEAD}{kept}\n{TAIL}"


def test_what_runs_before():
    one, other = (
        Task.of({"eval_script": f"{HEAD}{line}\n{TAIL}"})
        for line in ("pip install it's; make init", "make init")
    )
    told = preparation([one, one, Task.of({"patch": ""})])
    assert told.startswith("source /opt/miniconda3/bin/activate\ncd /testbed\npip install it's || { printf ")
    assert told.count("make init ||") == 1 and "'pip install it'\\''s'" in told
    assert preparation([one, other]).count("make init ||") == 2
    assert preparation([Task.of({"eval_script": HEAD + TAIL})]) == ""
    assert preparation([Task.of({"eval_script": TAIL + "pip install late\n"})]) == ""
