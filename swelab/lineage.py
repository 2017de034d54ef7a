"""The graph of everything under results/: each kind of artifact, where it lies, what makes it, and from what.

KINDS is its one table, in the order of the data. Rules take their inputs, outputs and parameters from it;
the trail of a score, `scripts.verify`, the page and results/README.md follow it. A new kind is one entry.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swelab.configs import experiment, kinds, recipes
from swelab.configs.experiment import is_published, local_files
from swelab.configs.recipes import recipe_file
from swelab.configs.trained_on import files_of_model, start_of, trained, training_runs, training_subsets
from swelab.jobs.shards import SHAPES, sample_of, sample_suffix, shard_names
from swelab.records import InputError


@dataclass(frozen=True)
class Wildcards:
    """The names of an artifact by wildcard, and the folders of recipes and results.

    A file is named by its kind (its first file) or by kind and role, as "predictions.usage".
    """

    names: Mapping[str, str]
    configs: Path = recipes.CONFIGS
    results: Path = Path("results")

    def recipe(self, kind: kinds.RecipeKind[kinds.T], name: str = "") -> kinds.T:
        """The recipe of a kind that the wildcard of that name means, or `name`. Raises InputError."""
        return recipes.named(kind, name or self.names[kind.name], self.configs)

    def path(self, file: str, **names: str) -> str:
        """The path of a file; `names` add to the wildcards'."""
        found = pattern(file).format_map({"sample": "", **self.names, **names})
        return f"{self.results.as_posix()}{found[7:]}" if found.startswith("results/") else found

    def each(self, file: str, names: Iterable[str | None]) -> list[str]:
        """A file whose path has one wildcard, for each of these names; None is no name."""
        (wildcard,) = set(re.findall(r"\{(\w+)\}", pattern(file)))
        return [self.path(file, **{wildcard: name}) for name in dict.fromkeys(names) if name]

    def shards(self, file: str, **names: str) -> list[str]:
        """A file for all shards of the wildcard `sample`; of all samples where there is no such wildcard."""
        at = replace(self, names={**self.names, **names})
        policy, sample = at.recipe(kinds.POLICY), at.names.get("sample")
        samples = range(policy.samples or 1) if sample is None else [int(sample.removeprefix(".s") or 0)]
        return [at.path(file, shard=name) for name in shard_names(policy.shards, samples)]

    def samples(self, file: str, **names: str) -> list[str]:
        """A file for each sample of the policy."""
        at = replace(self, names={**self.names, **names})
        return [at.path(file, sample=sample_suffix(n)) for n in range(at.recipe(kinds.POLICY).samples or 1)]

    def taught(self, file: str) -> list[str]:
        """A file for each shard of the runs that the SFT recipe takes its rows from."""
        runs = training_runs(self.names["sft"], self.configs)
        return [path for policy, subset in runs for path in self.shards(file, policy=policy, subset=subset)]


Need = str | Callable[[Wildcards], Iterable[str]]
"""A file with the same wildcards, a path pattern, or a function that gives paths."""
Params = Mapping[str, Callable[[Wildcards], object]]


@dataclass(frozen=True)
class Kind:
    """A kind of artifact: all that one job writes.

    rules: that make it, variants last. files: patterns by role, the artifact first. undated: needs whose date
    runs nothing again. named: the word before the colon in names. paid: files stay until the next is whole.
    """

    rules: str
    files: Mapping[str, str]
    params: Params = field(default_factory=dict)
    undated: tuple[str, ...] = ()
    named: str = ""
    paid: bool = False
    needs: Mapping[str, Need] = field(default_factory=dict)

    def made_from(self, **needs: Need) -> "Kind":
        """The same, made from these."""
        return replace(self, needs=needs)

    @property
    def manifest(self) -> str:
        """Pattern of the file in which the job says what it read and wrote; "" where there is none."""
        return self.files.get("stage") or self.files.get("manifest", "")


def pattern(file: str) -> str:
    """Path pattern of a kind's first file, or of `kind.role`; a path pattern is its own."""
    kind, _, role = file.partition(".")
    return file if "/" in file else KINDS[kind].files[role or next(iter(KINDS[kind].files))]


def find(path: str) -> tuple[str, dict[str, str]] | None:
    """The kind of a file and its names by wildcard; None of a file that is no artifact."""
    matched = list[tuple[str, dict[str, str]]]()
    for name, kind in KINDS.items():
        for each in kind.files.values():
            parts = re.split(r"\{(\w+)\}", each)
            if path.startswith(parts[0]):
                parts[::2] = map(re.escape, parts[::2])
                parts[1::2] = (f"(?P<{part}>{SHAPES.get(part, '[^/]+?')})" for part in parts[1::2])
                if found := re.fullmatch("".join(parts), path):
                    matched.append((name, found.groupdict()))
    return min(matched, key=lambda each: sum(map(len, each[1].values())), default=None)


def behind(path: str, configs: Path = recipes.CONFIGS) -> list[str]:
    """A file and every file behind it, as recipes say now; what a missing recipe would name is left out."""
    queue, seen = [path], {path}
    for each in queue:
        kind, names = find(each) or ("", {})
        at = Wildcards(names, configs)
        for need in KINDS[kind].needs.values() if kind else ():
            with suppress(InputError):
                made = dict.fromkeys([at.path(need)] if isinstance(need, str) else need(at))
                queue += [file for file in made if file not in seen]
                seen.update(made)
    return queue


def weights_paths(weights: str) -> tuple[str, str]:
    """Folder and manifest of `sft:<name>`, `model:<name>` or a folder, which has no manifest."""
    word, _, name = weights.partition(":")
    for kind, artifact in KINDS.items():
        if name and word == artifact.named:
            return pattern(kind).format(**{word: name}), pattern(f"{kind}.manifest").format(**{word: name})
    return weights, ""


def base_manifest(sft: kinds.Sft) -> str:
    """Manifest of the weights that an SFT recipe starts from: a model's, or another recipe's checkpoint's."""
    return weights_paths(sft.base if ":" in sft.base else f"model:{sft.base}")[1]


def policy_sources(policy: kinds.Policy) -> list[str]:
    """What a policy's rollouts are made from: manifests of weights, or folders and files without one."""
    known = map(weights_paths, kinds.policy.folders_of(policy))
    return [manifest or path for path, manifest in known if manifest or Path(path).exists()]


def policy_files(policy: kinds.Policy) -> list[str]:
    """What the rollouts of a policy wait for: manifests of its weights, and files of one's own."""
    return [path for source in policy_sources(policy) for path in (local_files(source) or [source])]


def _files(start: str, manifest: str = ".manifest.json", **ends: str) -> dict[str, str]:
    return {role: start + end for role, end in {**ends, "manifest": manifest}.items()}


def _images(at: Wildcards, subsets: Iterable[str] | None = None) -> list[str]:
    names = [at.names["subset"]] if subsets is None else subsets
    return at.each("images", [whole for each in names for whole in experiment.in_images(each, at.configs)])


def _recordings(at: Wildcards) -> list[str]:
    policy = at.recipe(kinds.POLICY)
    return [at.path("recordings.manifest")] * (policy.kind == "recorded" and is_published(policy))


def _rater_policy(at: Wildcards) -> kinds.Policy:
    return at.recipe(kinds.POLICY, at.recipe(kinds.RATER).policy)


def _expert_runs(at: Wildcards) -> list[str]:
    expert = at.recipe(kinds.EXPERIMENT).expert
    named = [(file, each) for file in ("report", "predictions") for each in expert.subsets]
    return [path for file, each in named for path in at.samples(file, policy=expert.policy, subset=each)]


def _setting(at: Wildcards, kind: kinds.RecipeKind[Any], name: str) -> Any:
    return getattr(at.recipe(kind), name, None)


REPOS: Mapping[str, Need] = {"repos": lambda at: at.each("repo", _setting(at, kinds.SUBSET, "repos") or [])}
BASE: Mapping[str, Need] = {"base": lambda at: [base_manifest(at.recipe(kinds.SFT))]}
SUBSET, POLICY, SFT, RL = map(recipe_file, ("subset", "policy", "sft", "rl"))
GRADED: Mapping[str, Need] = {"tasks": "lock.kept", "witness": "lock.witness", "images": _images}
TRAINING: Params = {"training": lambda at: experiment.training_slice(at.recipe(kinds.SFT))}
LEARNING: Params = {"training": lambda at: experiment.rl_slice(at.recipe(kinds.RL), at.configs)}
KINDS = {
    "repo": Kind("build_repo", _files("results/repos/{repo}", archive=".tar", manifest=".json"),
        {"settings": lambda at: at.recipe(kinds.REPO).plain()}).made_from(recipe=recipe_file("repo"),
        rows=lambda at: local_files(_setting(at, kinds.REPO, "path"))),
    "tasks": Kind("make_tasks fetch_tasks choose_tasks", _files("results/tasks/{subset}", tasks=".json"),
        {"settings": lambda at: experiment.tasks_slice(at.recipe(kinds.SUBSET))}).made_from(
        recipe=SUBSET, **REPOS, rows=lambda at: local_files(_setting(at, kinds.SUBSET, "path")),
        exclude=lambda at: at.each("tasks", _setting(at, kinds.SUBSET, "exclude") or []),
        ratings=lambda at: [rated.path or at.path("difficulty", **rated.plain())
            for rated in filter(None, [_setting(at, kinds.SUBSET, "ratings")])],
        attempted=lambda at: at.each("lock.kept", [_setting(at, kinds.SUBSET, "subset")]),
        grades=lambda at: [path for run in experiment.attempts(at.names["subset"], at.configs)
            for path in at.shards("grades", **run)]),
    "images": Kind("pull_images", _files("results/images/{subset}", images=".json")).made_from(tasks="tasks"),
    "sandbox_image": Kind("build_sandbox_image", {"record": "results/images/sandbox/image.json",
        "archive": "results/images/sandbox/root.tar", "root": "results/images/sandbox/root"}).made_from(
        pins="envs/sandbox.txt"),
    "lock": Kind("validate_tasks validate_training_tasks lock_chosen_tasks", _files("results/tasks/{subset}",
        ".lock.manifest.json", lock=".lock.json", kept=".kept.json", witness=".witness.zip"),
        {"settings": lambda at: experiment.validation_slice(at.recipe(kinds.SUBSET))}).made_from(
        tasks="tasks", recipe=SUBSET, **REPOS, images=_images,
        validated=lambda at: at.each("lock", of := [_setting(at, kinds.SUBSET, "subset")])
        + at.each("lock.witness", of)),
    "disjoint": Kind("check_disjoint", _files("results/disjoint/{experiment}", verdict=".json"),
        {"same_commit": lambda at: at.recipe(kinds.EXPERIMENT).same_commit}).made_from(
        train=lambda at: at.each("tasks", training_subsets(at.recipe(kinds.EXPERIMENT), at.configs)),
        heldout=lambda at: at.each("tasks", at.recipe(kinds.EXPERIMENT).benchmarks)),
    "exports": Kind("export_tasks", _files("results/exports/{subset}/", ids="instance_ids.txt",
        images="docker_images.txt", evaluation="evaluation.jsonl", gold="gold.jsonl", slime="slime.jsonl",
        miles="miles.jsonl", manifest="manifest.json")).made_from(tasks="tasks", recipe=SUBSET),
    "difficulty": Kind("rate_difficulty rate_difficulty_hosted",
        _files("results/difficulty/{rater}/{subset}", ratings=".jsonl"),
        {"rater": lambda at: at.recipe(kinds.RATER).plain(), "policy": lambda at: _rater_policy(at).plain()},
        paid=True).made_from(weights=lambda at: policy_files(_rater_policy(at)), rater=recipe_file("rater"),
        policy=lambda at: at.each(POLICY, [at.recipe(kinds.RATER).policy]), tasks="tasks"),
    "recordings": Kind("unpack_trajectories", _files("results/recordings/{policy}", folder="",
        manifest=".json", stage=".manifest.json"), {"policy": lambda at: at.recipe(kinds.POLICY).plain()}
        ).made_from(recipe=POLICY, rows=lambda at: local_files(_setting(at, kinds.POLICY, "path"))),
    "trajectories": Kind("rollout rollout_hosted",
        _files("results/rollouts/{policy}/{subset}/{shard}", trajectories=".jsonl"),
        {"policy": lambda at: experiment.rollout_slice(at.recipe(kinds.POLICY)),
         "scaffold": lambda at: experiment.scaffold_of(at.recipe(kinds.POLICY), at.configs)}, paid=True
        ).made_from(tasks="lock.kept", images=_images, policy=POLICY, recordings=_recordings,
        scaffold=lambda at: at.each(recipe_file("scaffold"), [_setting(at, kinds.POLICY, "scaffold")]),
        sources=lambda at: policy_files(at.recipe(kinds.POLICY))),
    "predictions": Kind("collect_predictions", _files("results/rollouts/{policy}/{subset}/",
        predictions="preds{sample}.json", usage="usage{sample}.json", manifest="preds{sample}.manifest.json")
        ).made_from(tasks="lock.kept", trajectories=lambda at: at.shards("trajectories")),
    "service": Kind("submit_predictions", _files("results/grades/{policy}/{subset}/service{sample}",
        run=".json")).made_from(tasks="lock.kept", predictions="predictions", recipe=SUBSET),
    "grades": Kind("grade", _files("results/grades/{policy}/{subset}/{shard}", grades=".jsonl")).made_from(
        **GRADED, trajectories="trajectories", policy=POLICY,
        service=lambda at: [at.path("service", sample=sample_suffix(sample_of(at.names["shard"])))]
        * (_setting(at, kinds.SUBSET, "scorer") == "sb-cli")),
    "report": Kind("report_grades", _files("results/grades/{policy}/{subset}/report{sample}", report=".json")
        ).made_from(tasks="lock.kept", lock="lock", grades=lambda at: at.shards("grades")),
    "regrades": Kind("regrade", {"regrades": "results/regrades/{policy}/{subset}{sample}.json"}).made_from(
        **GRADED, predictions="predictions", grades=lambda at: at.shards("grades")),
    "cheats": Kind("check_cheats", {"verdicts": "results/cheats/{subset}.json"}).made_from(tasks="lock.kept"),
    "model": Kind("make_base_model fetch_model take_model", _files("results/models/{model}", folder="",
        manifest=".json", stage=".manifest.json", loss=".loss.jsonl"), named="model",
        params={"settings": lambda at: at.recipe(kinds.MODEL).plain()}).made_from(recipe=recipe_file("model"),
        files=lambda at: files_of_model(at.recipe(kinds.MODEL)),
        repo=lambda at: at.each("repo", [_setting(at, kinds.MODEL, "repo")])),
    "dataset": Kind("build_sft_dataset build_sft_pairs",
        _files("results/sft/{sft}/dataset", dataset=".jsonl", lengths=".lengths.tsv", stats=".stats.json"),
        {"selection": lambda at: experiment.selection_slice(at.recipe(kinds.SFT))}).made_from(
        trajectories=lambda at: at.taught("trajectories"), grades=lambda at: at.taught("grades"),
        **BASE, recipe=SFT),
    "training_check": Kind("check_training", _files("results/sft/{sft}/disjoint", verdict=".json")).made_from(
        train=lambda at: at.each("tasks", [each for _, each in training_runs(at.names["sft"], at.configs)])),
    "preflight": Kind("preflight", {"report": "results/sft/{sft}/preflight.json"}, TRAINING).made_from(
        dataset="dataset", stats="dataset.stats", **BASE, recipe=SFT),
    "checkpoint": Kind("train_sft", _files("results/sft/{sft}/", checkpoint="checkpoint",
        manifest="checkpoint.json", stage="checkpoint.manifest.json", loss="loss.jsonl",
        metrics="metrics.tsv", plot="training.svg", tensorboard="tensorboard"), TRAINING,
        undated=("disjoint",), named="sft", paid=True).made_from(
        dataset="dataset", disjoint="training_check", preflight="preflight", **BASE, recipe=SFT),
    "modal": Kind("train_on_modal", _files("results/modal/{sft}/", checkpoint="checkpoint",
        manifest="checkpoint.json", loss="loss.jsonl"), TRAINING, undated=("disjoint",), paid=True).made_from(
        dataset="dataset", disjoint="training_check", **BASE, recipe=SFT),
    "rewarded_check": Kind("check_rl_tasks", _files("results/rl/{rl}/disjoint", verdict=".json")).made_from(
        train=lambda at: at.each("tasks", [at.recipe(kinds.RL).subset]),
        held_out=lambda at: at.each("tasks", at.recipe(kinds.RL).held_out)),
    "rewarded": Kind("train_rl", _files("results/rl/{rl}/", checkpoint="checkpoint",
        manifest="checkpoint.json", stage="checkpoint.manifest.json", metrics="metrics.jsonl",
        validation="validation.jsonl", rollouts="rollouts", tensorboard="tensorboard"), named="rl", paid=True,
        undated=("disjoint",), params=LEARNING).made_from(
        start=lambda at: local_files(own := start_of(at.names["rl"], find, at.configs))
        or [weights_paths(own)[1] or own], recipe=RL,
        scaffold=lambda at: at.each(recipe_file("scaffold"), [at.recipe(kinds.RL).scaffold]),
        disjoint="rewarded_check", tasks=lambda at: at.each("lock.kept", [at.recipe(kinds.RL).subset]),
        images=lambda at: _images(at, [at.recipe(kinds.RL).subset]),
        witness=lambda at: at.each("lock.witness", (rl := at.recipe(kinds.RL)).held_out + [rl.subset]),
        judge=lambda at: [path for name in at.recipe(kinds.RL).judges
            for path in (*at.each(POLICY, [name]), *policy_files(at.recipe(kinds.POLICY, name)))],
        held_out_tasks=lambda at: at.each("lock.kept", at.recipe(kinds.RL).held_out),
        held_out_images=lambda at: _images(at, at.recipe(kinds.RL).held_out)),
    "score": Kind("score", _files("results/scores/{policy}/{subset}", score=".json")
        ).made_from(tasks="lock.kept", reports=lambda at: at.samples("report"),
        usage=lambda at: at.samples("predictions.usage")),
    "verified_score": Kind("score_experiment", {"score":
        "results/experiments/{experiment}/verified_score.json"}).made_from(expert=_expert_runs,
        disjoint="disjoint", scores=lambda at: [at.path("score", policy=each, subset=benchmark)
            for benchmark in at.recipe(kinds.EXPERIMENT).benchmarks
            for each in at.recipe(kinds.EXPERIMENT).policies], checkpoints=lambda at:
            at.each("checkpoint.manifest", trained(at.recipe(kinds.EXPERIMENT), at.configs))),
    "page": Kind("report", {"page": "results/experiments/{experiment}/report.html"}).made_from(
        score="verified_score"),
    "published": Kind("copy_result", {"published": "results/verified_score.json"}),
    "published_page": Kind("copy_page", {"published": "results/report.html"}),
}  # fmt: skip
