"""Uses SWE-bench's evaluation service through its program sb-cli, which has an environment of its own."""

from swelab.records import Fault


class ServiceError(Fault):
    """The service failed a request, or gave an impossible answer."""


class SubmissionRefused(ServiceError):
    """The service refuses permanently, because of the key or the quota. Retries do not help."""
