"""The error of a call that neither the model nor a retry can correct."""

from __future__ import annotations


class KeepsakeError(Exception):
    """A call failed: the server refused it, or could not be reached.

    What the model can correct, such as a path that does not exist, is the SDK's
    `ToolError` instead.
    """

    url: str
    """The URL of the call."""
    message: str
    """What went wrong, in the server's words if it answered."""
    status: int | None
    """The HTTP status; `None`: there was no answer."""
    error_type: str | None
    """The type of the server's error, such as `not_found_error`."""
    request_id: str | None
    """The id under which the server logged the request."""

    def __init__(
        self,
        url: str,
        message: str,
        *,
        status: int | None = None,
        error_type: str | None = None,
        request_id: str | None = None,
    ) -> None:
        self.url = url
        self.message = message
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        answered = f" answered {status}" if status is not None else ""
        request = f" (request {request_id})" if request_id is not None else ""
        super().__init__(f"{url}{answered}: {message}{request}")
