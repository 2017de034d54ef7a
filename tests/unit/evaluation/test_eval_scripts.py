"""Exported eval scripts: each can fail, and ends with the exit code of its tests."""

import json
import subprocess

import pytest

from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.eval_scripts import with_exit_code, with_script
from swelab.evaluation.prompt_rows import write_assets, write_prompts
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError, read_jsonl
from swelab.records.task_records import Task

DIFF = """diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1 @@
-old
+new
diff --git a/tests/test_b.py b/tests/test_b.py
new file mode 100644
--- /dev/null
+++ b/tests/test_b.py
@@ -0,0 +1 @@
+new
"""
ROW = {
    "instance_id": "django__django-1",
    "repo": "django/django",
    "version": "4.2",
    "base_commit": "0" * 40,
    "patch": "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-1\n+2\n",
    "test_patch": DIFF,
    "problem_statement": "It is wrong.",
    "FAIL_TO_PASS": '["t (m.T)"]',
    "PASS_TO_PASS": "[]",
    "image_name": "",
}
OFFICIAL = "#!/bin/bash\nset -uxo pipefail\npytest -rA tests/test_a.py\ngit checkout 0\n"


def test_a_script_is_made_that_fails_with_its_tests():
    row = with_script(Task.of(ROW | {"FAIL_TO_PASS": ["t (m.T)"], "PASS_TO_PASS": []}))
    text = row.eval_script
    assert row.log_parser == "parse_log_django"
    assert "git checkout " + "0" * 40 + " tests/test_a.py\n" in text and "test_b.py\nset" not in text
    assert "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 test_a test_b\n" in text
    body = text[text.index("set +e") :].replace("./tests/runtests.py", "run_tests").replace("git ", ": ")
    for code in (0, 3):
        script = f"set -e\nrun_tests() {{ return {code}; }}\n{body}"
        assert subprocess.run(["bash", "-c", script], capture_output=True).returncode == code
    assert read_spec(row).eval_script.count(">>>>> Start Test Output") == 1


@pytest.mark.parametrize("ended", ["0", "1"])
def test_a_script_that_goes_on_after_its_tests_is_mended(ended):
    text = (
        with_exit_code(OFFICIAL, "a")
        .replace("pytest", f"(exit {ended}) #", 1)
        .replace("git checkout 0", "true")
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert done.returncode == int(ended), done.stderr
    assert with_exit_code(text, "a") == text, "an exported row can be exported again"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  \n", "is empty"),
        ("set -e\nif true\n", "is not valid bash"),
        ("python run.py\ngit checkout 0\n", "never fails"),
    ],
)
def test_a_vacuous_script_is_refused(text, why):
    with pytest.raises(InputError, match=f"eval_script.*{why}"):
        with_exit_code(text, "a__b-1")


def test_the_three_files_hold_only_rows_whose_script_can_fail(tmp_path):
    good = "set -e\npytest tests\n"
    rows = [
        ROW,
        ROW | {"instance_id": "getmoto__moto-2", "repo": "getmoto/moto", "eval_script": good},
        ROW | {"instance_id": "x__y-3", "repo": "x/y"},
        ROW | {"instance_id": "x__y-4", "repo": "x/y", "eval_script": " "},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    told = write_assets(Source(str(tmp_path / "rows.json")), tmp_path / "out")
    assert (tmp_path / "out/instance_ids.txt").read_text() == "django__django-1\ngetmoto__moto-2\n"
    images = (tmp_path / "out/docker_images.txt").read_text().splitlines()
    assert images[0] == "docker.io/swebench/sweb.eval.x86_64.django_1776_django-1:latest"
    lines = list(read_jsonl(tmp_path / "out/verified_eval.jsonl"))
    assert all(line["metadata"]["instance"]["eval_script"].strip() for line in lines) and len(lines) == 2
    assert len(told["refused"]) == 2 and told["lines"]["verified_eval.jsonl"] == 2
    prompts = write_prompts(Source(str(tmp_path / "rows.json")), tmp_path / "train.jsonl", 3)
    assert prompts["rows"] == 3 and next(iter(prompts["left_out"])).startswith("rows without eval_script")
    first = next(iter(read_jsonl(tmp_path / "train.jsonl")))
    assert first == {
        "text": ROW["problem_statement"],
        "metadata": {"instance": ROW, "data_source": str(tmp_path / "rows.json")},
    }
