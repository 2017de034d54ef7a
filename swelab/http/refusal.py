"""What a server does not take."""

from swelab.records import Fault


class Refused(Fault):
    """A request that has no effect; the text says why. `status` is the HTTP status of its answer.

    With 503 the same request may be sent again, with any other it is never taken.
    """

    def __init__(self, text: str, status: int = 400):
        super().__init__(text)
        self.status = status
