"""SWE-bench's evaluation service, reached through its own program sb-cli, in an environment of its own."""

from swelab.records import Fault


class ServiceError(Fault):
    """The service failed a request, or gave an impossible answer."""


class SubmissionRefused(ServiceError):
    """The service refuses lastingly, because of the key or the quota; retries do not help."""
