"""The graph of everything under results/: each kind of artifact, where it lies, what makes it, and from what.

KINDS is its one table. The rules take their inputs, outputs and parameters from it; the trail of a score,
`scripts.verify`, the page and results/README.md follow it. A new kind of artifact is one entry and its rule.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from swelab.configs import experiment, recipes
from swelab.configs.experiment import is_published, local_files
from swelab.configs.trained_on import WEIGHTS, files_of_model, trained, training_runs, training_subsets
from swelab.jobs.shards import sample_of, sample_suffix, shard_names
from swelab.records import InputError, Record

SHAPES = {"sample": r"(?:\.s[1-9]\d*)?", "shard": r"\d{3}of\d{3}(?:s[1-9]\d*)?"}
"""Regular expressions of the wildcards that are no names of recipes."""


@dataclass(frozen=True)
class Wildcards:
    """The names of an artifact by wildcard, and the folders of recipes and results.

    A file is named by its kind, or by kind and role: "predictions" is the first file of that kind,
    "predictions.usage" the one with the role `usage`. Paths are from the root of a clone.
    """

    names: Mapping[str, str]
    configs: Path = recipes.CONFIGS
    results: Path = Path("results")

    def recipe(self, kind: str, name: str = "") -> Record:
        """The recipe of a kind that the wildcard of that name means, or `name`. Raises InputError."""
        return recipes.named(kind, name or self.names[kind], self.configs)

    def path(self, file: str, **names: str) -> str:
        """A file, with these names besides the wildcards'."""
        found = pattern(file).format_map({"sample": "", **self.names, **names})
        return f"{self.results.as_posix()}{found[7:]}" if found.startswith("results/") else found

    def each(self, file: str, names: Iterable[str | None]) -> list[str]:
        """A file whose path has one wildcard, for each of these names; None is no name."""
        (wildcard,) = set(re.findall(r"\{(\w+)\}", pattern(file)))
        return [self.path(file, **{wildcard: name}) for name in dict.fromkeys(names) if name]

    def shards(self, file: str, **names: str) -> list[str]:
        """A file for all shards of the wildcard `sample`; of all samples where there is no such wildcard."""
        at = replace(self, names={**self.names, **names})
        policy, sample = at.recipe("policy"), at.names.get("sample")
        samples = range(policy.get("samples", 1)) if sample is None else [int(sample.removeprefix(".s") or 0)]
        return [at.path(file, shard=name) for name in shard_names(policy["shards"], samples)]

    def samples(self, file: str, **names: str) -> list[str]:
        """A file for each sample of the policy."""
        at = replace(self, names={**self.names, **names})
        numbers = range(at.recipe("policy").get("samples", 1))
        return [at.path(file, sample=sample_suffix(number)) for number in numbers]

    def of_sample(self, file: str) -> str:
        """A file of the sample that the shard is of."""
        return self.path(file, sample=sample_suffix(sample_of(self.names["shard"])))

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

    rules: the rule that makes it, then its variants, with spaces. files: path patterns by role, the artifact
    first. params: the parts of recipes that it depends on. undated: needs whose date makes nothing run again,
    as that of no recipe does. named: the word before the colon by which policies name weights of this kind.
    paid: files stay in place until their next version is complete. needs: what it is made from, by role.
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
    """A file and every file behind it, as recipes say now; what a missing recipe would tell is left out."""
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


def base_manifest(sft: Record) -> str:
    """Manifest beside the folder of what an SFT recipe starts from: a model, or another one's checkpoint."""
    return weights_paths(sft["base"] if ":" in sft["base"] else f"model:{sft['base']}")[1]


def policy_sources(policy: Record) -> list[str]:
    """What stands for the weights of a policy's rollouts: their manifests, or folders that have none.

    For trajectories that were recorded into a folder it is that folder.
    """
    named = (policy[key] for key in (*WEIGHTS, "adapter", "folder") if policy.get(key))
    known = () if policy.get("endpoint") else map(weights_paths, named)
    return [manifest or folder for folder, manifest in known if manifest or Path(folder).is_dir()]


def policy_files(policy: Record) -> list[str]:
    """What the rollouts of a policy wait for: manifests of its weights, and files of folders of one's own."""
    return [path for source in policy_sources(policy) for path in (local_files(source) or [source])]


def _files(start: str, manifest: str = ".manifest.json", **ends: str) -> dict[str, str]:
    return {role: start + end for role, end in {**ends, "manifest": manifest}.items()}


def _recipe(kind: str) -> str:
    return f"configs/{recipes.FOLDERS[kind]}/{{{kind}}}.yaml"


def _images(at: Wildcards) -> list[str]:
    """The record of images of a published set; tasks that we make run in none."""
    return [at.path("images")] if at.recipe("subset")["source"] == "dataset" else []


def _repos(at: Wildcards) -> list[str]:
    return at.each("repo", at.recipe("subset").get("repos", []))


def _base(at: Wildcards) -> list[str]:
    return [base_manifest(at.recipe("sft"))]


def _ratings(at: Wildcards) -> list[str]:
    rated = at.recipe("subset").get("ratings", {})
    return [rated.get("path") or at.path("difficulty", **rated)] if rated else []


def _recordings(at: Wildcards) -> list[str]:
    """The manifest of trajectories that were unpacked from rows; a recorded folder has none."""
    policy = at.recipe("policy")
    return [at.path("recordings.manifest")] * (policy["kind"] == "recorded" and is_published(policy))


def _rater_policy(at: Wildcards) -> Record:
    return at.recipe("policy", at.recipe("rater")["policy"])


def _scores(at: Wildcards) -> list[str]:
    named = at.recipe("experiment")
    return [at.path("score", policy=p, subset=s) for s in named["benchmarks"] for p in named["policies"]]


def _expert_reports(at: Wildcards) -> list[str]:
    expert = at.recipe("experiment")["expert"]
    named = ({"policy": expert["policy"], "subset": each} for each in expert["subsets"])
    return [path for names in named for path in at.samples("report", **names)]


LOCKED: Mapping[str, Need] = {"tasks": "tasks", "lock": "lock"}
SUBSET, POLICY, SFT = _recipe("subset"), _recipe("policy"), _recipe("sft")
TRAINING: Params = {"training": lambda at: experiment.training_slice(at.recipe("sft"))}
KINDS = {
    "repo": Kind("build_repo", _files("results/repos/{repo}", archive=".tar", manifest=".json"),
        {"settings": lambda at: at.recipe("repo")}).made_from(recipe=_recipe("repo")),
    "tasks": Kind("make_tasks fetch_tasks", _files("results/tasks/{subset}", tasks=".json"),
        {"settings": lambda at: experiment.tasks_slice(at.recipe("subset"))}).made_from(
        recipe=SUBSET, repos=_repos, rows=lambda at: local_files(at.recipe("subset").get("path")),
        exclude=lambda at: at.each("tasks", at.recipe("subset").get("exclude", [])), ratings=_ratings),
    "images": Kind("pull_images", _files("results/images/{subset}", images=".json")).made_from(tasks="tasks"),
    "sandbox_image": Kind("build_sandbox_image", {"record": "results/images/sandbox/image.json",
        "archive": "results/images/sandbox/root.tar", "root": "results/images/sandbox/root"}).made_from(
        pins="envs/sandbox.txt"),
    "lock": Kind("validate_tasks validate_training_tasks", _files("results/tasks/{subset}.lock",
        lock=".json"), {"settings": lambda at: at.recipe("subset")["validate"]}).made_from(
        tasks="tasks", recipe=SUBSET, repos=_repos, images=_images),
    "disjoint": Kind("check_disjoint", _files("results/disjoint/{experiment}", verdict=".json"),
        {"same_commit": lambda at: at.recipe("experiment")["same_commit"]}).made_from(
        train=lambda at: at.each("tasks", training_subsets(at.recipe("experiment"), at.configs)),
        heldout=lambda at: at.each("tasks", at.recipe("experiment")["benchmarks"])),
    "exports": Kind("export_tasks", _files("results/exports/{subset}/", ids="instance_ids.txt",
        images="docker_images.txt", evaluation="evaluation.jsonl", gold="gold.jsonl", slime="slime.jsonl",
        miles="miles.jsonl", manifest="manifest.json")).made_from(tasks="tasks", recipe=SUBSET),
    "difficulty": Kind("rate_difficulty rate_difficulty_hosted",
        _files("results/difficulty/{rater}/{subset}", ratings=".jsonl"),
        {"rater": lambda at: at.recipe("rater"), "policy": _rater_policy}, paid=True).made_from(
        tasks="tasks", rater=_recipe("rater"), weights=lambda at: policy_files(_rater_policy(at)),
        policy=lambda at: at.each(POLICY, [at.recipe("rater")["policy"]])),
    "recordings": Kind("unpack_trajectories", _files("results/recordings/{policy}", folder="",
        manifest=".json", stage=".manifest.json"), {"policy": lambda at: at.recipe("policy")}).made_from(
        recipe=POLICY, rows=lambda at: local_files(at.recipe("policy").get("path"))),
    "trajectories": Kind("rollout rollout_hosted",
        _files("results/rollouts/{policy}/{subset}/{shard}", trajectories=".jsonl"),
        {"policy": lambda at: experiment.rollout_slice(at.recipe("policy")),
         "scaffold": lambda at: experiment.scaffold_of(at.recipe("policy"), at.configs)}, paid=True
        ).made_from(**LOCKED, images=_images, policy=POLICY, recordings=_recordings,
        scaffold=lambda at: at.each(_recipe("scaffold"), [at.recipe("policy").get("scaffold")]),
        sources=lambda at: policy_files(at.recipe("policy"))),
    "predictions": Kind("collect_predictions", _files("results/rollouts/{policy}/{subset}/",
        predictions="preds{sample}.json", usage="usage{sample}.json", manifest="preds{sample}.manifest.json")
        ).made_from(**LOCKED, trajectories=lambda at: at.shards("trajectories")),
    "service": Kind("submit_predictions", _files("results/grades/{policy}/{subset}/service{sample}",
        run=".json")).made_from(**LOCKED, predictions="predictions", recipe=SUBSET),
    "grades": Kind("grade", _files("results/grades/{policy}/{subset}/{shard}", grades=".jsonl")).made_from(
        **LOCKED, predictions=lambda at: [at.of_sample("predictions")], images=_images, policy=POLICY,
        service=lambda at: [at.of_sample("service")] * (at.recipe("subset").get("scorer") == "sb-cli")),
    "report": Kind("report_grades", _files("results/grades/{policy}/{subset}/report{sample}", report=".json")
        ).made_from(**LOCKED, grades=lambda at: at.shards("grades")),
    "regrades": Kind("regrade", {"regrades": "results/regrades/{policy}/{subset}{sample}.json"}).made_from(
        **LOCKED, predictions="predictions", grades=lambda at: at.shards("grades"), images=_images),
    "cheats": Kind("check_cheats", {"verdicts": "results/cheats/{subset}.json"}).made_from(**LOCKED),
    "model": Kind("make_base_model fetch_model take_model", _files("results/models/{model}", folder="",
        manifest=".json", stage=".manifest.json", loss=".loss.jsonl"), named="model",
        params={"settings": lambda at: at.recipe("model")}).made_from(recipe=_recipe("model"),
        files=lambda at: files_of_model(at.recipe("model")),
        repo=lambda at: at.each("repo", [at.recipe("model").get("repo")])),
    "dataset": Kind("build_sft_dataset build_sft_pairs",
        _files("results/sft/{sft}/dataset", dataset=".jsonl", lengths=".lengths.tsv", stats=".stats.json"),
        {"selection": lambda at: experiment.selection_slice(at.recipe("sft"))}).made_from(
        trajectories=lambda at: at.taught("trajectories"), grades=lambda at: at.taught("grades"),
        base=_base, recipe=SFT),
    "training_check": Kind("check_training", _files("results/sft/{sft}/disjoint", verdict=".json")).made_from(
        train=lambda at: at.each("tasks", [each for _, each in training_runs(at.names["sft"], at.configs)])),
    "preflight": Kind("preflight", {"report": "results/sft/{sft}/preflight.json"}, TRAINING).made_from(
        dataset="dataset", stats="dataset.stats", base=_base, recipe=SFT),
    "checkpoint": Kind("train_sft", _files("results/sft/{sft}/", checkpoint="checkpoint",
        manifest="checkpoint.json", stage="checkpoint.manifest.json", loss="loss.jsonl",
        metrics="metrics.tsv", plot="training.svg", tensorboard="tensorboard"), TRAINING,
        undated=("disjoint",), named="sft", paid=True).made_from(
        dataset="dataset", disjoint="training_check", preflight="preflight", base=_base, recipe=SFT),
    "modal": Kind("train_on_modal", _files("results/modal/{sft}/", checkpoint="checkpoint",
        manifest="checkpoint.json", loss="loss.jsonl"), TRAINING, undated=("disjoint",), paid=True).made_from(
        dataset="dataset", disjoint="training_check", base=_base, recipe=SFT),
    "score": Kind("score", _files("results/scores/{policy}/{subset}", score=".json")).made_from(**LOCKED,
        reports=lambda at: at.samples("report"), usage=lambda at: at.samples("predictions.usage")),
    "verified_score": Kind("score_experiment",
        {"score": "results/experiments/{experiment}/verified_score.json"}).made_from(
        scores=_scores, disjoint="disjoint", expert=_expert_reports,
        checkpoints=lambda at: at.each("checkpoint.manifest", trained(at.recipe("experiment"), at.configs))),
    "page": Kind("report", {"page": "results/experiments/{experiment}/report.html"}).made_from(
        score="verified_score"),
    "published": Kind("publish", {"published": "results/verified_score.json"}),
    "published_page": Kind("publish_page", {"published": "results/report.html"}),
}  # fmt: skip
"""Every kind of artifact, in the order of the data."""
