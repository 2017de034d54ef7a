"""Where the files behind an experiment's score lie: the one place of this package that knows paths."""

from dataclasses import dataclass
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import sample_paths, shard_paths
from swelab.records import Record


@dataclass(frozen=True)
class Layout:
    """The files of one experiment under `results` and `configs`; none of them need be there."""

    experiment: Record
    results: Path
    configs: Path

    @classmethod
    def of(cls, name: str, results: Path = Path("results"), configs: Path = recipes.CONFIGS) -> "Layout":
        """The layout of the experiment `name`. Raises InputError when its recipe is missing or faulty."""
        return cls({"name": name, **recipes.named("experiment", name, configs)}, results, configs)

    @property
    def runs(self) -> list[tuple[str, str, bool]]:
        """(policy, subset, scored) of every run: the benchmarks' first, then the expert's."""
        scored = [
            (policy, subset, True) for subset in self.benchmarks for policy in self.experiment["policies"]
        ]
        return scored + [(self.expert, subset, False) for subset in self.experiment["expert"]["subsets"]]

    @property
    def benchmarks(self) -> list[str]:
        return self.experiment["benchmarks"]

    @property
    def expert(self) -> str:
        return self.experiment["expert"]["policy"]

    @property
    def subsets(self) -> list[str]:
        return list(dict.fromkeys(subset for _, subset, _ in self.runs))

    def tasks(self, subset: str) -> Path:
        return self.results / "tasks" / f"{subset}.json"

    def lock(self, subset: str) -> Path:
        return self.results / "tasks" / f"{subset}.lock.json"

    def reports(self, policy: str, subset: str) -> list[Path]:
        """The grading reports of a policy's samples, in their order."""
        return self.samples("grades", "report", policy, subset)

    def samples(self, stage: str, name: str, policy: str, subset: str) -> list[Path]:
        """The files `name` of a stage (rollouts or grades) for each sample of a policy."""
        pattern = (self.results / stage / f"{{policy}}/{{subset}}/{name}{{sample}}.json").as_posix()
        return [Path(name) for name in sample_paths(pattern, policy, subset, self.configs)]

    def usage(self, policy: str, subset: str) -> list[Path]:
        """Tokens and cost of the trajectories of a policy's samples."""
        return self.samples("rollouts", "usage", policy, subset)

    def shards(self, stage: str, policy: str, subset: str) -> list[Path]:
        """Files of `stage` (rollouts or grades), all samples; those of another number of shards are stale."""
        pattern = (self.results / stage / "{policy}/{subset}/{shard}.jsonl").as_posix()
        return [Path(name) for name in shard_paths(pattern, policy, subset, self.configs)]

    def rollouts(self, policy: str, subset: str) -> str:
        """The folder of a policy's trajectories on a subset."""
        return (self.results / "rollouts" / policy / subset).as_posix()

    @property
    def sft(self) -> Path:
        return self.results / "sft" / self.experiment["sft"]

    @property
    def weights(self) -> list[str]:
        """`sft:<name>` and `model:<name>` of all weights scored or trained, and of those below them."""
        named = [self.recipe("policy", policy).get("weights", "") for policy in self.experiment["policies"]]
        found = list(dict.fromkeys([f"sft:{self.experiment['sft']}", *named]))
        for weights in found:
            kind, _, name = weights.partition(":")
            base = self.recipe("sft", name).get("base", "") if kind == "sft" else ""
            below = base if ":" in base else f"model:{base}"
            found += [below] if base and below not in found else []
        return found

    @property
    def models(self) -> list[str]:
        """Names of the models that the experiment starts from."""
        return [name.removeprefix("model:") for name in self.weights if name.startswith("model:")]

    @property
    def losses(self) -> dict[str, Path]:
        """Loss files by what was trained."""
        found = {
            f"Pretraining of {model}": self.results / "models" / f"{model}.loss.jsonl"
            for model in self.models
            if self.recipe("model", model).get("source") == "drill"
        }
        return found | {f"Fine-tuning, {self.experiment['sft']}": self.sft / "loss.jsonl"}

    @property
    def lengths(self) -> Path:
        return self.sft / "dataset.lengths.tsv"

    @property
    def dataset_manifest(self) -> Path:
        return self.sft / "dataset.manifest.json"

    @property
    def disjoint(self) -> Path:
        return self.results / "disjoint" / f"{self.experiment['name']}.json"

    def tasks_manifest(self, subset: str) -> Path:
        return self.results / "tasks" / f"{subset}.manifest.json"

    def model_manifest(self, model: str) -> Path:
        return self.results / "models" / f"{model}.json"

    def manifests(self) -> list[Path]:
        """What the stages wrote about themselves, in the order of the stages."""
        found = [self.results / "repos" / f"{repo}.json" for repo in self.repos()]
        found += [self.tasks_manifest(subset) for subset in self.subsets]
        found += [self.disjoint, *(self.model_manifest(model) for model in self.models)]
        trained = [name.removeprefix("sft:") for name in self.weights if name.startswith("sft:")]
        checkpoints = [self.results / "sft" / name / "checkpoint.json" for name in trained]
        return [*found, self.dataset_manifest, *checkpoints]

    def recipe(self, kind: str, name: str) -> Record:
        """A recipe, or {} when there is no such file."""
        path = self.configs / recipes.FOLDERS[kind] / f"{name}.yaml"
        return recipes.load(kind, path) if path.is_file() else {}

    def repos(self) -> list[str]:
        return sorted(
            {repo for subset in self.subsets for repo in self.recipe("subset", subset).get("repos", [])}
        )
