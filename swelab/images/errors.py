"""Errors about images; every message is one line that names the image."""

from swelab.records import Fault

INSTALL_FAILED = "SWELAB-INSTALL-FAILED"
"""Prefix of the line that reports which install step failed, and how."""


class ImageError(Fault):
    """An image could not be obtained. reason: the word under which we count the failure."""

    reason = "failed"


class ImageUnknown(ImageError):
    """The registry has no such image, tag or platform."""

    reason = "unknown"


class AccessRefused(ImageError):
    """The registry requires an account, or another account."""

    reason = "refused"


class RateLimited(ImageError):
    """The registry answered "too many requests" for as long as we were willing to wait."""

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
    """The disk has too little room for the image; no part of it was fetched."""

    reason = "no_room"


class EngineFailed(ImageError):
    """The container engine refused or failed the pull."""

    reason = "engine"


class ProgramMissing(ImageError):
    """A program that this kind of image needs is not installed."""

    reason = "program_missing"
