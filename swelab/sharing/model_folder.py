"""Writes the weights behind a score as a model in Hugging Face layout, with a model card."""

import shutil
from pathlib import Path

import yaml

from swelab.configs import kinds
from swelab.configs.kinds.model import Model
from swelab.configs.kinds.policy import weights_of
from swelab.lineage import Wildcards, weights_paths
from swelab.outcomes import GradeEnd
from swelab.records import write_bytes
from swelab.sharing.experiment_files import FinishedExperiment
from swelab.sharing.privacy import Private

TEXT = (".json", ".jinja", ".txt", ".md")
README = """---
{front}---
# {policy}

Weights of the policy `{policy}` of the experiment `{experiment}`: a model that repairs software by shell
commands, with the prompts and limits of the scaffold `{scaffold}` (`configs/scaffolds/{scaffold}.yaml` in the
archive below). {commit}

The folder loads in transformers. To let the model act on tasks, in a clone of swelab:

    .venv/bin/python -m scripts.evaluate --model FOLDER --data TASKS --scaffold {scaffold} --output-dir OUT

## Score

A task is resolved if the tests that judge it pass.

| benchmark | resolved | rate | 95 % interval | lost to infrastructure, counted as not resolved |
|---|---|---|---|---|
{scores}
{comparison}
## Recipe

```yaml
{recipe}```

## Data

{data}

## Reproduce

With the archive `{archive}`, which holds the code and every file behind the score:

    tar xzf {archive} && cd {folder}
    make setup
    .venv/bin/snakemake results/verified_score.json --forceall --config experiment={experiment}

Instead of the third line, `.venv/bin/python -m scripts.verify results/verified_score.json` checks the files.
"""


def write_model(finished: FinishedExperiment, to: Path, private: Private) -> str:
    """Writes the weights and the model card into `to`. Returns "", or the reason why this is impossible."""
    policy = Wildcards({"policy": finished.shown}).recipe(kinds.POLICY)
    weights = next(iter(weights_of(policy)), "")
    folder = Path(weights_paths(weights)[0]) if weights else Path()
    if not weights or not folder.is_dir():
        return f"{finished.shown} has no weights here"
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if path.name.startswith("."):
            continue
        out = to / path.relative_to(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in TEXT:
            write_bytes(out, private.clean(path.read_text(encoding="utf-8")).encode())
        else:
            shutil.copyfile(path, out)
    write_bytes(to / "README.md", private.clean(card(finished, policy, weights)).encode())
    return ""


def card(finished: FinishedExperiment, policy: kinds.Policy, weights: str) -> str:
    """Returns the text of the model card, README.md."""
    record = finished.score
    both = [record, *record.get("others", [])]
    scores = [
        f"| {each['benchmark']['name']} | {its['resolved']} of {its['total']} | {its['resolve_rate']:.1%} "
        f"| {its['interval'][0]:.1%} to {its['interval'][1]:.1%} | {its['statuses'][GradeEnd.INFRA_ERROR]} |"
        for each in both
        if (its := each["policies"][finished.shown])
    ]
    compared = record["comparison"]
    comparison = ""
    if compared["p_value"] is not None:
        comparison = (
            f"\n`{finished.shown}` minus `{compared['from']}` on {record['benchmark']['name']}: "
            f"{compared['difference'] * 100:+.1f} points, "
            f"p = {compared['p_value']:.2g} ({compared['methods']['test']}).\n"
        )
    code = record["manifest"]["code"]
    changed = " with changes" if code["dirty"] else ""
    commit = f"Made by commit {code['commit']} of swelab{changed}." if code["commit"] else ""
    recipe = {
        key: each
        for key, each in record["manifest"]["recipes"].items()
        if key.startswith(("experiments/", "sft/", "rl/", "models/"))
    }
    return README.format(
        front=yaml.safe_dump(_front(weights), sort_keys=False),
        policy=finished.shown,
        experiment=finished.name,
        archive=finished.archive,
        scaffold=getattr(policy, "scaffold", ""),
        scores="\n".join(scores),
        comparison=comparison,
        recipe=yaml.safe_dump(recipe, sort_keys=True, allow_unicode=True),
        data=_data(finished),
        commit=commit,
        folder=finished.archive.partition(".")[0],
    )


def _front(weights: str) -> dict[str, object]:
    """Returns the metadata of the model card. The licence is `other` unless the weights start from a model
    that swelab made."""
    bases = _bases(weights)
    made_here = bool(bases) and bases[-1][1].source == "drill"
    front: dict[str, object] = {"license": "mit" if made_here else "other", "pipeline_tag": "text-generation"}
    published = [model.repository for _, model in bases if model.source == "hub"]
    return front | ({"base_model": published[0]} if published else {})


def _bases(weights: str) -> list[tuple[str, Model]]:
    """Returns [(name, recipe)] of the base model of the weights, or [] if the weights are a plain folder."""
    word, _, name = weights.partition(":")
    while word in ("sft", "rl"):
        start = (
            Wildcards({"sft": name}).recipe(kinds.SFT).base
            if word == "sft"
            else Wildcards({"rl": name}).recipe(kinds.RL).start
        )
        word, _, name = (start if ":" in start else f"model:{start}").partition(":")
    return [(name, Wildcards({"model": name}).recipe(kinds.MODEL))] if word == "model" and name else []


def _data(finished: FinishedExperiment) -> str:
    """Returns lines about the data on which the weights were trained."""
    lines = [f"- attempts of `{policy}` at `{subset}`" for policy, subset in finished.runs(False)]
    for stage in finished.trail.stages.values():
        if stage.rule.startswith("build_sft") and "kept" in stage:
            lines.append(
                f"- {stage['kept']:,} of {stage['trajectories']:,} trajectories became training rows"
            )
    return "\n".join(lines) or "- none behind this score"
