"""Names of images, in the forms of task rows and of registries.

The rules are those of Docker's reference format. The first part is a registry if it contains a dot or a
colon, or is "localhost". A name without a registry belongs to Docker's own registry. In that registry, a name
with only one part gets the prefix "library/".
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swelab.files.json_streams import RowSelection, Spool
from swelab.records import InputError
from swelab.records.task_records import Task

DEFAULT = "docker.io"
DEFAULT_HOST = "registry-1.docker.io"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(f"{_PART}(?:/{_PART})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Name:
    """The full name of an image. Exactly one of `tag` and `digest` is ""."""

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def host(self) -> str:
        """Host name of the registry, with its port if it has one."""
        return DEFAULT_HOST if self.registry == DEFAULT else self.registry

    @property
    def base(self) -> str:
        """The name without tag and digest."""
        return f"{self.registry}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.base}@{self.digest}" if self.digest else f"{self.base}:{self.tag}"


def parse_image_name(text: str) -> Name:
    """Returns the full name for `text`. The default tag is "latest". Raises InputError."""
    name, at, digest = text.partition("@")
    name = name.removeprefix("docker://")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first.startswith("[")):
        registry = DEFAULT if first in ("index.docker.io", DEFAULT_HOST) else first
    else:
        registry, rest = DEFAULT, name
    repository, _, tag = rest.partition(":")
    if registry == DEFAULT and "/" not in repository:
        repository = f"library/{repository}"
    good = _HOST.fullmatch(registry) and _REPOSITORY.fullmatch(repository) and len(repository) <= 255
    if not good or (at and not DIGEST.fullmatch(digest)) or not _TAG.fullmatch(tag or "latest"):
        raise InputError(f"{text!r} is not the name of an image", expected="[host/]name[:tag|@sha256:...]")
    return Name(registry, repository, "" if digest else tag or "latest", digest)


def behind(name: Name, prefix: str) -> Name:
    """Returns the name under which a mirror has the image: `prefix`, then the name.

    prefix: the mirror's host, perhaps with folders. An empty prefix changes nothing. The name of Docker's
    registry is omitted, as mirrors expect. The name of any other registry becomes a folder. Raises
    InputError.
    """
    if not prefix:
        return name
    inner = (
        name.repository
        if name.registry == DEFAULT
        else f"{name.registry.replace(':', '-')}/{name.repository}"
    )
    reference = f"@{name.digest}" if name.digest else f":{name.tag}"
    host = prefix.strip("/").partition("/")[0]
    if not ("." in host or ":" in host or host == "localhost"):
        raise InputError(f"{prefix!r} does not begin with a registry", expected="host[:port][/folder]/")
    return parse_image_name(f"{prefix.strip('/')}/{inner}{reference}")


def is_file(text: str) -> bool:
    """Returns whether an image is an apptainer file (a path that ends in .sif), not a name in a registry."""
    return text.endswith(".sif")


def images_of(tasks: Iterable[Task]) -> dict[str, Sequence[Task]]:
    """Maps the name of each image to the tasks that run in the image.

    Tasks of our own code run in no image, and are left out. The rows are stored on disk.
    """
    spool = Spool()
    found: dict[str, list[int]] = {}
    for task in tasks:
        if task.in_image:
            found.setdefault(image_name(task), []).append(spool.add(task))
    return {name: RowSelection(spool, numbers, Task) for name, numbers in found.items()}


def image_name(task: Task) -> str:
    """Returns the image that a task's row names, in `image` (new rows of SWE-bench) or in `image_name`."""
    return str(task.image or task.image_name)
