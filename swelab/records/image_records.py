"""Records of the container images in which tasks run."""

from swelab.records.task_records import Leak
from swelab.records.typed import ClosedRecord, Count, field


class HeldImage(ClosedRecord):
    """An image from which sandboxes can start."""

    digest: str = field(
        "digest of the manifest for this platform, or of the apptainer file", pattern="^sha256:[0-9a-f]{64}$"
    )
    bytes: Count = field("size of the image's files; shared layers are counted in full")
    folder: str = field(
        'path of the unpacked root or apptainer file, relative to this record; "" if an '
        "engine stores the image"
    )
    workdir: str = field("path of the repository in the image", pattern="^/")
    install: str = field(
        'why an install step of the tasks\' eval scripts failed; "" if all succeeded; absent '
        "if there are no install steps",
        default="",
    )


class PulledImage(HeldImage):
    """An image that was pulled, and its files and history that reveal answers of tasks."""

    pulled: str = field("time of the pull, UTC")
    checked: Count = field(
        "number of tasks for which the image was searched for history and copies that reveal the answer"
    )
    leaks: list[Leak] = field("findings that reveal an answer; a task with a leak is refused")


class FailedImage(ClosedRecord):
    """An image that could not be pulled, and the reason."""

    reason: str = field("word under which the failure is counted")
    error: str = field("error in one line")


class Images(ClosedRecord):
    """The images of a subset's tasks: images that were pulled, and images that could not be pulled."""

    images: dict[str, PulledImage] = field("pulled images, keyed by the name in the tasks' rows")
    failed: dict[str, FailedImage] = field("failed images, keyed by name, with the reason")
    counts: dict[str, Count] = field(
        "number of images: named, pulled, present from earlier runs, leaking, and failed by reason"
    )
