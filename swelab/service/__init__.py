"""SWE-bench's evaluation service, reached through its own program sb-cli, in an environment of its own."""

from swelab.records import Fault


class ServiceError(Fault):
    """The service did not do what was asked, or answered what cannot be."""


class SubmissionRefused(ServiceError):
    """The service will not do it, however often it is asked: the key, or the quota."""
