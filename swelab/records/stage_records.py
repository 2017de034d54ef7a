"""The manifest that every stage writes about itself."""

from typing import Annotated, Any

from swelab.records.typed import Bounds, ClosedRecord, TypedRecord, field

Sha256 = Annotated[str, Bounds(pattern="^[0-9a-f]{64}$")]


class Code(ClosedRecord):
    """Version of the code that ran."""

    commit: str = field("git commit; empty where git does not say")
    dirty: bool | None = field("the tree differed from the commit; null where git does not say")


class UsedRecipe(ClosedRecord):
    """The settings of a recipe that a stage used."""

    sha256: Sha256 = field("hash of the settings that were used")
    used: dict[str, Any] = field("settings that the stage depends on, with defaults")


class Manifest(TypedRecord):
    """Describes how a stage made its outputs: the code, inputs, recipes and packages that it used. A stage
    may add further fields."""

    rule: str = field("the rule that made the outputs")
    code: Code = field("version of the code")
    inputs: dict[str, dict[str, Sha256]] = field(
        "hashes of the files that were read, by role and path; one hash per folder"
    )
    recipes: dict[str, UsedRecipe] = field("maps the path of each recipe to the settings that were used")
    outputs: dict[str, Sha256] = field("hashes of the files that were written, by path")
    packages: dict[str, str] = field("versions of Python and packages")
    wall_seconds: float = field("wall time of the stage's last run, in seconds", minimum=0)
    place: dict[str, Any] = field(
        "where the stage ran: backend, executor, partition, workers, the service that "
        "responded; a change here reruns nothing",
        default=None,
    )
