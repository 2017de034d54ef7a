"""The words of a Snakemake command line that names stages: variants are added, and targets stay targets."""

import pytest
from snakemake.cli import get_argument_parser

from swelab.configs.targets import check_targets, with_variants
from swelab.lineage import find
from swelab.records import InputError

RULES = [("rollout", "rollout_hosted"), ("dataset", "pairs"), ("grade",)]
TARGET = "results/grades/p/s/report.json"
BOTH = ["rollout", "rollout_hosted"]
COMMANDS = [
    (f"--forcerun=rollout {TARGET}", [TARGET], {"forcerun": BOTH}),
    (f"--until=dataset {TARGET} other", [TARGET, "other"], {"until": ["dataset", "pairs"]}),
    (f"-R=rollout {TARGET}", [TARGET], {"forcerun": BOTH}),
    (f"--config a=b --forcerun=rollout {TARGET}", [TARGET], {"forcerun": BOTH, "config": ["a=b"]}),
    (f"--quiet --forcerun=rollout {TARGET} -n", [TARGET], {"forcerun": BOTH}),
    (f"--forcerun=rollout --until=dataset {TARGET} --omit-from grade", [TARGET],
     {"forcerun": BOTH, "until": ["dataset", "pairs"], "omit_from": ["grade"]}),
    (f"--forcerun=rollout -- {TARGET}", [TARGET], {"forcerun": BOTH}),
    (f"--forcerun rollout -- {TARGET}", [TARGET], {"forcerun": BOTH}),
    (f"{TARGET} --forcerun rollout dataset -n", [TARGET], {"forcerun": [*BOTH, "dataset", "pairs"]}),
    (f"{TARGET} --forcerun=rollout", [TARGET], {"forcerun": BOTH}),
    (f"--forcerun=grade {TARGET}", [TARGET], {"forcerun": ["grade"]}),
    ("--forcerun=grade rollout", ["rollout"], {"forcerun": ["grade"]}),
    ("--until=rollout rollout", ["rollout"], {"until": BOTH}),
]  # fmt: skip


@pytest.mark.parametrize("line, targets, options", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_a_target_stays_a_target_beside_named_stages(line, targets, options):
    words = with_variants(line.split(), RULES)
    parsed = get_argument_parser().parse_args(words)
    assert parsed.targets == targets
    assert {name: set(getattr(parsed, name)) for name in options} == {
        name: set(values) for name, values in options.items()
    }
    assert with_variants(words, RULES) == words  # else the command would start again without end


def test_a_command_without_variants_stays_as_it_is():
    for line in (f"--forcerun=grade {TARGET}", f"{TARGET} -n", "--until grade -- --forcerun=rollout"):
        assert with_variants(line.split(), RULES) == line.split()


@pytest.mark.parametrize("left", [True, False])
def test_a_target_of_a_recipe_that_is_gone_is_named(tmp_path, monkeypatch, left):
    """Also if the file is still there, from the time before the recipe was renamed."""
    path = tmp_path / "results/tasks/gone.json"
    path.parent.mkdir(parents=True)
    if left:
        path.touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="configs/subsets has no subset 'gone'"):
        check_targets(["results/tasks/gone.json"], [], {}, find)
    (tmp_path / "notes.txt").touch()
    check_targets(["notes.txt"], [], {}, find)
