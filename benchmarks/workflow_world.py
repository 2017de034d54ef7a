"""A copy of the repository with recipes and synthetic task rows for any number of instances."""

import json
import random
import shutil
from pathlib import Path

import yaml

from swelab.configs.recipes import read_yaml
from tests.e2e.clone import copy_repository

IMAGES = 250
"""Number of different images per subset, about as many as in SWE-smith."""
HELDOUT = 500

EXPERIMENT = """\
expert: {policy: scale-expert, subsets: [scale-train]}
sft: scale
policies: [scale-base, scale-sft]
benchmarks: [scale-heldout]
compare: [scale-base, scale-sft]
"""


def make_world(
    folder: Path, instances: int, shards: int, heldout: int = HELDOUT, heldout_shards: int = 4, seed: int = 0
) -> Path:
    """Copies the repository's files to `folder`, and adds the experiment `scale`. Returns the folder.

    In the experiment, an expert attempts `instances` rows in `shards` shards, and two policies attempt
    `heldout` rows.
    """
    copy_repository(folder)
    configs = folder / "configs"
    (configs / "experiments" / "scale.yaml").write_text(EXPERIMENT)
    for name, count in (("train", instances), ("heldout", heldout)):
        rows = folder / f"{name}.jsonl"
        write_rows(rows, name, count, seed)
        (configs / "subsets" / f"scale-{name}.yaml").write_text(f"source: dataset\npath: {rows.name}\n")
    for name, count in (("expert", shards), ("base", heldout_shards), ("sft", heldout_shards)):
        text = f"kind: hosted\nscaffold: demo\nmodel: idle/{name}\nshards: {count}\n"
        (configs / "policies" / f"scale-{name}.yaml").write_text(text)
    sft = read_yaml(configs / "sft" / "demo.yaml")
    sft |= {"base": "scale", "selection": {}}  # the tokenizer of this world has more tokens per word
    (configs / "sft" / "scale.yaml").write_text(yaml.safe_dump(sft))
    shutil.copy(configs / "models" / "tiny.yaml", configs / "models" / "scale.yaml")
    return folder


def write_rows(path: Path, name: str, count: int, seed: int) -> None:
    """Writes rows in SWE-smith's schema, of about 6 kB each. Equal arguments give equal bytes."""
    draw = random.Random(f"{seed} {name}")
    with path.open("w") as stream:
        for number in range(count):
            stream.write(json.dumps(row(name, number, draw)) + "\n")


def row(name: str, number: int, draw: random.Random) -> dict:
    """Makes a task row: a bug of one line, 1 to 3 tests to repair, 5 to 1,000 (median 40) tests to keep."""
    image = number % IMAGES
    repo = f"{name}{image}__package{image}.{image:08x}"
    keep = max(5, min(1000, round(draw.lognormvariate(3.7, 1))))
    tests = [f"tests/test_module_{n % 7}.py::TestBehaviour{n % 13}::test_case_{n}" for n in range(keep + 3)]
    fails = draw.randint(1, 3)
    context = "".join(f"     value_{n} = compute(value_{n - 1}, {draw.random()})\n" for n in range(20))
    path = f"package{image}/module_{number}.py"
    patch = (
        f"diff --git a/{path} b/{path}\nindex 0000001..0000002 100644\n--- a/{path}\n+++ b/{path}\n"
        f"@@ -{number},21 +{number},21 @@ def function_{number}(value):\n{context}-    return value\n"
        f"+    return {name}_{number}\n"
    )
    return {
        "instance_id": f"{repo}.{name}__{number:06d}",
        "repo": f"swesmith/{repo}",
        "patch": patch,
        "problem_statement": "It returns the wrong value. " * 40,
        "FAIL_TO_PASS": tests[:fails],
        "PASS_TO_PASS": tests[fails:],
        "image_name": f"jyangballin/swesmith.x86_64.{repo.lower()}",
    }
