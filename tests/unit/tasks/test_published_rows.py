"""Prompt rows of slime's and Miles' training as tasks, made from real rows."""

import json

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.records import InputError
from swelab.tasks.datasets_source import make_tasks
from swelab.tasks.published_rows import read_row
from tests.at_hand import DATA, needs_rows
from tests.unit.tasks.test_datasets_source import row

SCRIPT = "#!/bin/bash\nset -exo pipefail\npytest -rA tests/test_m.py\n"
INSTANCE = {
    "instance_id": "own__pack-7",
    "repo": "own/pack",
    "base_commit": "1" * 40,
    "version": "4.1",
    "problem_statement": "tags are lost",
    "patch": row(1)["patch"],
    "test_patch": row(1)["patch"].replace("m.py", "tests/test_m.py"),
    "FAIL_TO_PASS": ["tests/test_m.py::test_0"],
    "PASS_TO_PASS": [],
    "eval_script": SCRIPT,
}


def real_instances():
    lines = (DATA / "swe_gym_subset20.jsonl").read_text().splitlines()
    return [json.loads(line)["metadata"]["instance"] for line in lines]


def slime(instance, source="SWE-Gym/SWE-Gym"):
    return {"text": instance["problem_statement"], "metadata": {"instance": instance, "data_source": source}}


def miles(instance, subset="gym"):
    columns = {**instance, "subset": subset, "split": "train"}
    return {"prompt": instance["problem_statement"], "metadata": columns}


SHAPES = {
    "slime": slime,
    "slime, the instance as metadata": lambda it: {"prompt": it["problem_statement"], "instance": it},
    "slime's coding agent": lambda it: {
        "prompt": [{"role": "user", "content": it["problem_statement"]}],
        "label": it["instance_id"],
        "metadata": {"remote_env_info": it, "workdir": "/testbed"},
    },
    "Miles": miles,
    "Miles on Harbor": lambda it: {
        "prompt": it["problem_statement"],
        "metadata": {**it, "agent_name": "mini-swe-agent", "split": "train"},
    },
}
AT = ("metadata.instance", "instance", "metadata.remote_env_info", "metadata", "metadata")


@pytest.fixture
def make(tmp_path):
    """Makes tasks from the lines of a file, as a subset recipe does."""

    def run(*rows, cut=None):
        path = tmp_path / "train.jsonl"
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n"
        path.write_text(text[:cut])
        settings = {"source": "dataset", "path": str(path), "order": "published", "images": "swe-gym"}
        return list(make_tasks(recipes.complete(SUBSET, settings, "it"))[0])

    return run


@needs_rows
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_instances_that_are_in_it(shape, make):
    instances = {each["instance_id"]: each for each in real_instances()}
    tasks = make(*map(SHAPES[shape], instances.values()))
    assert len(tasks) == len(instances) >= 10
    for task, instance in zip(tasks, instances.values(), strict=True):
        image = f"xingyaoww/sweb.eval.x86_64.{instance['instance_id'].replace('__', '_s_').lower()}:latest"
        assert task == {**instance, "image_name": image, "source": "dataset"}


def test_the_row_says_whose_names_its_image_has():
    named = {
        "SWE-Gym/SWE-Gym": "xingyaoww/sweb.eval.x86_64.own_s_pack-7:latest",
        "SumanthRH/SWE-bench_Verified": "swebench/sweb.eval.x86_64.own_1776_pack-7:latest",
    }
    for source, image in named.items():
        assert read_row(slime(INSTANCE, source), "it", "swe-gym").image_name == image
    for subset, image in zip(("gym", "verified"), named.values()):
        assert read_row(miles(INSTANCE, subset), "it", "swe-bench").image_name == image
    own = INSTANCE | {"image_name": "here/it:1"}
    assert read_row(slime(own), "it").image_name == "here/it:1"


def test_the_prompt_is_the_issue_of_an_instance_without_one():
    bare = {name: value for name, value in INSTANCE.items() if name != "problem_statement"}
    for prompt in (
        "it breaks",
        [{"role": "system", "content": "be"}, {"role": "user", "content": "it breaks"}],
    ):
        assert read_row({"prompt": prompt, "instance": bare}, "it").problem_statement == "it breaks"
    assert read_row({"prompt": 7, "instance": bare}, "it").problem_statement == ""


@pytest.mark.parametrize(("shape", "at"), zip(SHAPES, AT, strict=True))
@pytest.mark.parametrize("script", ["", " \n", None])
def test_an_instance_without_its_script_is_refused_by_name(shape, at, script, make):
    lines = [INSTANCE, "", INSTANCE | {"instance_id": "own__pack-8", "eval_script": script}]
    rows = [each and SHAPES[shape](each) for each in lines]
    with pytest.raises(InputError) as caught:
        make(*rows)
    expected = "expected bash that runs its tests: with none, every patch would count as right"
    assert str(caught.value).endswith(
        f"train.jsonl, line 3 (own__pack-8): field {at}.eval_script is empty; {expected}"
    )


def test_an_instance_that_is_tested_otherwise_needs_no_script(make):
    bare = {name: value for name, value in INSTANCE.items() if name != "eval_script"}
    assert make(slime(bare)) and make(miles(INSTANCE | {"eval_script": "", "test_cmd": "pytest"}))
    smith = {name: value for name, value in row(1).items() if name != "source"}
    assert make(slime(smith))[0].is_bug
    untested = {name: value for name, value in bare.items() if name not in ("test_patch", "version")}
    with pytest.raises(InputError, match=r"own__pack-7\): field metadata.instance.eval_script is missing"):
        make(slime(untested))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"text": "x"}, "line 2: field metadata is missing; expected the instance of the prompt"),
        ({"text": "x", "metadata": {"instance": ["y"]}}, "line 2: field metadata.instance is a list"),
        ({"text": "x", "metadata": {}}, "line 2: field metadata.instance_id is missing"),
        (slime(INSTANCE | {"eval_script": 7}), "(own__pack-7): field metadata.instance.eval_script is a int"),
        (miles({k: v for k, v in INSTANCE.items() if k != "patch"}), "field metadata.patch is missing"),
        ('{"text": "x", "metadata": {"instance": {', "line 2: not JSON"),
        ('["text"]', "line 2: a list; expected one JSON object a line"),
    ],
)
def test_what_is_wrong_with_a_line_is_one_line(broken, words, make):
    with pytest.raises(InputError) as caught:
        make(slime(INSTANCE | {"instance_id": "own__pack-1"}), broken)
    assert words in str(caught.value) and "train.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("files", ["tests/test_m.py", ["tests/test_m.py"], None, 3, {"a": 1}])
def test_a_column_that_is_named_as_one_of_ours_does_not_count(files):
    assert not read_row(INSTANCE | {"files": files}, "rows.jsonl:1").files


def test_a_column_of_another_type_is_one_line():
    with pytest.raises(InputError, match="rows.jsonl:1 .own__pack-7.: a field of another type"):
        read_row(INSTANCE | {"null_run": ["x"]}, "rows.jsonl:1")


def test_what_pytest_says_of_its_progress_is_no_test():
    listed = json.dumps(["tests/test_m.py::test_1[5%]", "[100%]", "[  3%]"])
    task = read_row(INSTANCE | {"PASS_TO_PASS": listed}, "row")
    assert task.PASS_TO_PASS == ["tests/test_m.py::test_1[5%]"]


def test_the_image_is_the_row_s_own():
    names = {"docker_image": "a/c:1"}
    assert read_row(INSTANCE | names, "row").image_name == "a/c:1"
    assert read_row(INSTANCE | names | {"image_name": "a/b:1"}, "row").image_name == "a/b:1"
    assert read_row(INSTANCE, "row").image_name == "swebench/sweb.eval.x86_64.own_1776_pack-7:latest"
    with pytest.raises(InputError, match="field docker_image is a int"):
        read_row(INSTANCE | {"docker_image": 7}, "row")
