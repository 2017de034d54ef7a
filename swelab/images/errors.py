"""Errors about images. Every message is one line that names the image."""

from swelab.records import Fault

INSTALL_FAILED = "SWELAB-INSTALL-FAILED"
"""First word of the output line with the exit code and the text of the failed install step."""


class ImageError(Fault):
    """An image could not be obtained. reason: the word under which such failures are counted."""

    reason = "failed"


class ImageUnknown(ImageError):
    """The registry has no such image, tag or platform."""

    reason = "unknown"


class AccessRefused(ImageError):
    """The registry requires an account, or another account."""

    reason = "refused"


class RateLimited(ImageError):
    """The registry still answered "too many requests" at the end of our maximum waiting time."""

    reason = "rate_limited"


class RegistryDown(ImageError):
    """The registry could not be reached, or failed repeatedly."""

    reason = "registry_down"


class RegistryUnreachable(RegistryDown):
    """The registry's host answered no request, so its other images cannot be pulled either."""


class ImageBroken(ImageError):
    """The registry sent something other than the image: wrong bytes, or an invalid layer."""

    reason = "broken"


class NoRoom(ImageError):
    """The disk has too little space for the image."""

    reason = "no_room"


class EngineFailed(ImageError):
    """The container engine rejected the pull, or the pull failed."""

    reason = "engine"


class ProgramMissing(ImageError):
    """A program that this kind of image needs is not installed."""

    reason = "program_missing"
