"""The error of a rejected request."""

from swelab.records import Fault


class Refused(Fault):
    """A request that the server rejects without any effect. The text gives the reason.

    status: HTTP status. After 503 the client may send the same request again. Any other status is final.
    """

    def __init__(self, text: str, status: int = 400):
        super().__init__(text)
        self.status = status
