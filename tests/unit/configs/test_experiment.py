"""Parts of subsets by the results of attempts, and tasks that an experiment may not train on."""

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.experiment import attempts, load_experiment, local_files, parts_of
from swelab.configs.kinds import EXPERIMENT
from swelab.configs.trained_on import rl_recipes, subsets_behind
from swelab.lineage import Wildcards, behind
from tests.conftest import ROOT
from tests.unit.configs.faults import fault

DRILL = {"source": "drill", "repos": ["drill"], "side": "train", "heldout_share": 0.15, "limit": 9}
KNOWN = {"source": "kodcode", "path": "x", "evaluation_set": "syn-debug"}
PART = {"source": "attempted", "subset": "whole", "policy": "tries", "at_least": 0.1, "at_most": 0.9}
RECIPES = {
    "experiments/one": {
        "expert": {"policy": "tries", "subsets": ["shown"]},
        "sft": "taught",
        "policies": ["learner", "plain"],
        "benchmarks": ["held"],
        "compare": ["learner", "plain"],
    },
    "policies/tries": {"kind": "scripted", "scaffold": "demo", "samples": 4, "shards": 2},
    "policies/once": {"kind": "scripted", "scaffold": "demo"},
    "policies/plain": {"kind": "checkpoint", "scaffold": "demo", "weights": "model:tiny"},
    "policies/taught": {"kind": "checkpoint", "scaffold": "demo", "weights": "sft:taught", "samples": 4},
    "policies/learner": {"kind": "checkpoint", "scaffold": "demo", "weights": "rl:learns", "samples": 4},
    "sft/taught": {"base": "tiny"},
    "rl/learns": {
        "start": "sft:taught",
        "subset": "part",
        "scaffold": "demo",
        "train": {"steps": 1},
        "validation": {"subset": "held"},
    },
    "subsets/whole": DRILL,
    "subsets/shown": DRILL,
    "subsets/held": DRILL | {"side": "heldout"},
    "subsets/known": KNOWN,
    "subsets/part": PART,
    "subsets/part-of-part": PART | {"subset": "part"},
    "subsets/published": {"source": "dataset", "path": "rows.jsonl"},
    "subsets/part-of-published": PART | {"subset": "published"},
}


@pytest.fixture
def configs(tmp_path):
    for name in ("models/tiny", "repos/drill", "scaffolds/demo"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.yaml").write_text((ROOT / f"configs/{name}.yaml").read_text())
    for name, recipe in RECIPES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path, name, recipe)
    return tmp_path


def write(configs, name, recipe):
    (configs / f"{name}.yaml").write_text(yaml.safe_dump(recipe))


def test_a_part_is_made_of_all_attempts_at_the_whole(configs):
    assert parts_of("part-of-part", configs) == ["part-of-part", "part", "whole"]
    assert attempts("part", configs) == [{"policy": "tries", "subset": "whole"}] and not attempts(
        "whole", configs
    )
    made = behind("results/tasks/part.json", configs)
    grades = [path for path in made if path.startswith("results/grades/")]
    assert len(grades) == 2 * 4 and "results/grades/tries/whole/001of002s3.jsonl" in grades
    assert "results/tasks/whole.kept.json" in made and "results/repos/drill.tar" in made
    assert "results/tasks/whole.lock.json" in behind("results/tasks/part.lock.json", configs)


def test_a_part_runs_in_the_images_of_the_whole(configs):
    rollouts = behind("results/rollouts/tries/part-of-published/000of002.jsonl", configs)
    assert "results/images/published.json" in rollouts
    assert "results/images/part-of-published.json" not in rollouts
    write(configs, "rl/learns", RECIPES["rl/learns"] | {"subset": "part-of-published"})
    made = behind("results/rl/learns/checkpoint.json", configs)
    assert "results/images/published.json" in made and "results/rl/learns/disjoint.json" in made
    assert Wildcards({"rl": "learns"}, configs).each("tasks", ["held"])[0] in made


def test_what_was_learned_from_counts_as_trained(configs):
    assert rl_recipes(recipes.load_named(EXPERIMENT, "one", configs), configs) == ["learns"]
    assert subsets_behind("rl:learns", configs) == ["part", "shown"]
    assert load_experiment("one", configs).benchmarks == ["held"]


@pytest.mark.parametrize(
    ("name", "recipe", "words"),
    [
        ("subsets/part", PART | {"subset": "held"},
         "subset 'held' is trained on in part, as 'part', and scored"),
        ("rl/learns", RECIPES["rl/learns"] | {"subset": "held", "validation": {"subset": "whole"}},
         "subset 'held' is trained on and scored"),
        ("subsets/part", PART | {"subset": "part"}, "made from itself: part -> part"),
        ("subsets/part", PART | {"subset": "part-of-part"}, "made from itself: part -> part-of-part -> part"),
        ("subsets/part", PART | {"policy": "learner"}, "made from itself: part -> part"),
        ("subsets/shown", PART | {"policy": "taught"}, "made from itself: shown -> shown"),
        ("subsets/part", PART | {"policy": "once"},
         "no pass rate is from 0.1 to 0.9: policy once attempts a task 1 times; expected more `samples`"),
        ("subsets/part", PART | {"policy": "trys"}, "unknown policy 'trys' (did you mean 'tries'?)"),
        ("subsets/part", PART | {"subset": "hole"}, "unknown subset 'hole' (did you mean 'whole'?)"),
        ("subsets/whole", {"source": "dataset", "path": "x", "scorer": "sb-cli"},
         "tasks of whole are judged by a service; expected tasks with tests"),
        ("subsets/shown", KNOWN, "subset 'shown' is the evaluation set syn-debug, trained or validated on"),
        ("subsets/whole", KNOWN, "subset 'part' is the evaluation set syn-debug, trained or validated on"),
        ("rl/learns", RECIPES["rl/learns"] | {"validation": {"subset": "known"}},
         "subset 'known' is the evaluation set syn-debug, trained or validated on"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_one_line_before_anything_runs(configs, name, recipe, words):
    write(configs, name, recipe)
    assert words in fault(load_experiment, "one", configs)


def test_a_file_with_braces_in_its_path_is_followed_by_its_folder(tmp_path):
    for name in ("plain/a b.txt", "plain/{name}.txt", "{{cookiecutter.slug}}/x/y.txt"):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).touch()
    own = tmp_path / "own"
    assert local_files(str(own)) == [str(own), str(own / "plain"), str(own / "plain/a b.txt")]
    assert local_files(str(tmp_path / "none")) == local_files(None) == []
