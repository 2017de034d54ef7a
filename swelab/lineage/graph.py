"""Kinds of artifacts: the path patterns of their files, and the inputs of each file."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from swelab.configs import kinds, recipes
from swelab.configs.experiment import local_files
from swelab.configs.trained_on import training_runs
from swelab.jobs.shards import SHAPES, sample_suffix, shard_names
from swelab.records import InputError


@dataclass(frozen=True)
class Wildcards:
    """The wildcard values of an artifact, and the folders of recipes and results. The argument `file` of the
    methods is a kind, such as "predictions" (the kind's first file). Or it is a kind and a role, such as
    "predictions.usage"."""

    names: Mapping[str, str]
    configs: Path = recipes.CONFIGS
    results: Path = Path("results")

    def recipe(self, kind: kinds.RecipeKind[kinds.T], name: str = "") -> kinds.T:
        """Returns the recipe `name`.

        By default the name is the value of the kind's wildcard. Raises InputError.
        """
        return recipes.load_named(kind, name or self.names[kind.name], self.configs)

    def path(self, file: str, **names: str) -> str:
        """Returns the path of a file. names: further wildcard values."""
        found = pattern(file).format_map({"sample": "", **self.names, **names})
        return f"{self.results.as_posix()}{found[7:]}" if found.startswith("results/") else found

    def each(self, file: str, names: Iterable[str | None]) -> list[str]:
        """Returns the paths of a file whose pattern has one wildcard: one path for each name. Names that are
        None are skipped."""
        (wildcard,) = set(re.findall(r"\{(\w+)\}", pattern(file)))
        return [self.path(file, **{wildcard: name}) for name in dict.fromkeys(names) if name]

    def shards(self, file: str, **names: str) -> list[str]:
        """Returns the paths of a file for all shards of the wildcard `sample`. Without this wildcard, the
        shards of all samples are used."""
        at = replace(self, names={**self.names, **names})
        policy, sample = at.recipe(kinds.POLICY), at.names.get("sample")
        samples = range(policy.samples or 1) if sample is None else [int(sample.removeprefix(".s") or 0)]
        return [at.path(file, shard=name) for name in shard_names(policy.shards, samples)]

    def samples(self, file: str, **names: str) -> list[str]:
        """Returns the paths of a file, one for each sample of the policy."""
        at = replace(self, names={**self.names, **names})
        return [at.path(file, sample=sample_suffix(n)) for n in range(at.recipe(kinds.POLICY).samples or 1)]

    def training_rollouts(self, file: str) -> list[str]:
        """Returns the paths of a file for each shard of the rollouts that give the SFT recipe its rows."""
        runs = training_runs(self.names["sft"], self.configs)
        return [path for policy, subset in runs for path in self.shards(file, policy=policy, subset=subset)]


Need = str | Callable[[Wildcards], Iterable[str]]
"""An input: a file with the same wildcard values, a path pattern, or a function that returns paths."""
Params = Mapping[str, Callable[[Wildcards], object]]


@dataclass(frozen=True)
class Kind:
    """A kind of artifact: all files that one job writes.

    rules: the rules that make the files, with variants last. files: maps a role to a path pattern. The first
    role is the artifact itself. params: maps a parameter of the rule to a function that computes its value.
    undated: inputs whose modification time causes no rerun. named: for kinds that are weights, the prefix of
    their names, such as `sft` in `sft:<name>`. paid: whether old files are kept until new files are complete.
    needs: maps an input of the rule to its files.
    """

    rules: str
    files: Mapping[str, str]
    params: Params = field(default_factory=dict)
    undated: tuple[str, ...] = ()
    named: str = ""
    paid: bool = False
    needs: Mapping[str, Need] = field(default_factory=dict)

    @property
    def manifest(self) -> str:
        """Pattern of the file in which the job records its inputs and outputs, or "" if there is none."""
        return self.files.get("stage") or self.files.get("manifest", "")


KINDS: dict[str, Kind] = {}
"""Maps a name to its kind of artifact, in the order in which data flows. The package's `__init__` fills this
table."""


def pattern(file: str) -> str:
    """Returns the path pattern of a kind's first file, or of `kind.role`. A path pattern is returned
    unchanged."""
    kind, _, role = file.partition(".")
    return file if "/" in file else KINDS[kind].files[role or next(iter(KINDS[kind].files))]


def find(path: str) -> tuple[str, dict[str, str]] | None:
    """Returns the kind of a file and its wildcard values, or None if the file is not an artifact."""
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
    """Returns a file and all files from which it is made, according to the current recipes. Inputs that need
    a missing recipe are omitted."""
    queue, visited = [path], {path}
    for each in queue:
        kind, names = find(each) or ("", {})
        at = Wildcards(names, configs)
        for need in KINDS[kind].needs.values() if kind else ():
            with suppress(InputError):
                made = dict.fromkeys([at.path(need)] if isinstance(need, str) else need(at))
                queue += [file for file in made if file not in visited]
                visited.update(made)
    return queue


def weights_paths(weights: str) -> tuple[str, str]:
    """Returns (folder, manifest) of weights such as `sft:<name>` or `model:<name>`. The manifest of a plain
    folder is ""."""
    word, _, name = weights.partition(":")
    for kind, artifact in KINDS.items():
        if name and word == artifact.named:
            return pattern(kind).format(**{word: name}), pattern(f"{kind}.manifest").format(**{word: name})
    return weights, ""


def base_manifest(sft: kinds.Sft) -> str:
    """Returns the manifest of the weights from which an SFT recipe starts: a model, or another recipe's
    checkpoint."""
    return weights_paths(sft.base if ":" in sft.base else f"model:{sft.base}")[1]


def policy_sources(policy: kinds.Policy) -> list[str]:
    """Returns the inputs of a policy's rollouts: manifests of weights, or folders and files that have no
    manifest."""
    known = map(weights_paths, kinds.policy.folders_of(policy))
    return [manifest or path for path, manifest in known if manifest or Path(path).exists()]


def policy_files(policy: kinds.Policy) -> list[str]:
    """Returns the files that must exist before a policy's rollouts: manifests of weights, and the user's own
    files."""
    return [path for source in policy_sources(policy) for path in (local_files(source) or [source])]
