"""Errors about images; every message is one line that names the image."""

from swelab.records import Fault

INSTALL_FAILED = "SWELAB-INSTALL-FAILED"
"""Prefix of the line that reports which install step failed, and how."""


class ImageError(Fault):
    """An image could not be had. `reason` is the word that failures are counted under."""

    reason = "failed"


class ImageUnknown(ImageError):
    """The registry has no such image, tag or platform."""

    reason = "unknown"


class AccessRefused(ImageError):
    """The registry wants an account, or another one."""

    reason = "refused"


class RateLimited(ImageError):
    """The registry went on saying "too many requests" for as long as we were willing to wait."""

    reason = "rate_limited"


class RegistryDown(ImageError):
    """The registry could not be reached, or went on failing."""

    reason = "registry_down"


class RegistryUnreachable(RegistryDown):
    """The host answered no request; none of its other images can be pulled either."""


class ImageBroken(ImageError):
    """The registry sent something other than the image: wrong bytes, or a layer that no image may have."""

    reason = "broken"


class NoRoom(ImageError):
    """The disk is too full for the image; nothing of it was fetched."""

    reason = "no_room"


class EngineFailed(ImageError):
    """The container engine refused or failed the pull."""

    reason = "engine"


class ProgramMissing(ImageError):
    """A program that this kind of image needs is not installed."""

    reason = "program_missing"
