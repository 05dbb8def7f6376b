"""Calls of the server, and when a call is sent again; without any input or output."""

from __future__ import annotations

import json
import os
import random
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import httpx2

from . import _advice
from ._errors import KeepsakeError

TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
"""Limits of one attempt, in seconds."""
ATTEMPTS = 5
"""The most attempts of one call."""
TOTAL_SECONDS = 60.0
"""No attempt begins later than this after the first one."""

MAX_ANSWER_BYTES = (64 << 20) + (64 << 10)
"""The longest answer that is read: the longest that a server gives is one memory as JSON."""
MAX_EMPTY_PAGES = 1_000
"""The most pages of a list without an item that follow each other."""

# The outcome of a call is unknown, or the server asks to send it again.
AGAIN = frozenset({408, 429, 500, 502, 503, 504, 529})
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
"""Failures of an attempt before its request was sent."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """Where the calls go, and the credential they carry."""

    base_url: str
    api_key: str = field(repr=False)
    stores: str
    """The part of the paths that names the memory: a store or a session."""

    def headers(self) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.api_key}",
            "content-type": "application/json",
            "user-agent": "keepsake-memory-python",
        }


@dataclass
class Call:
    """One call of the API, as it is sent at each attempt."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    params: dict[str, str] = field(default_factory=dict[str, str])
    body: Json | None = None
    """For a tool call a block, whose id keeps a repeated change from being made twice."""

    def content(self) -> bytes | None:
        """The body as JSON. Half of a surrogate pair stays an escape: the server explains it."""
        if self.body is None:
            return None
        text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode(errors="backslashreplace")


def server(base_url: str | None, api_key: str | None, memory_store_id: str | None) -> Server:
    """The server that the arguments name, or else the variables."""
    store = _required("memory_store_id", memory_store_id, "KEEPSAKE_STORE")
    return Server(
        base_url=_url(base_url),
        api_key=_key("api_key", _required("api_key", api_key, "KEEPSAKE_API_KEY")),
        stores=f"/v1/memory_stores/{_segment('memory_store_id', store, 'memstore_')}",
    )


def server_of_session(session: object, base_url: str | None) -> Server:
    """The server of a session, whose token is the credential."""
    fields = _as_dict(session)
    session_id, token = fields.get("id"), fields.get("token")
    if not isinstance(session_id, str):
        raise ValueError("`session` must be the answer of the call that created the session: `id` is missing")
    if not isinstance(token, str):
        raise ValueError(
            "`session` must be the answer of the call that created the session: `token` is missing, "
            "which only that answer has"
        )
    segment = _segment("session", session_id, "sesn_")
    return Server(_url(base_url), _key("session.token", token), f"/v1/sessions/{segment}")


def call_of_input(server: Server, command: object) -> Call:
    """A call of the memory tool by its input: the runner does not pass the block on."""
    block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": "memory", "input": _as_dict(command)}
    return call_of_block(server, block)


def call_of_block(server: Server, block: object) -> Call:
    """A call with the model's block."""
    fields = _as_dict(block)
    wanted = {name: fields[name] for name in ("type", "id", "name", "input") if name in fields}
    return Call("POST", f"{server.stores}/tool_calls", body=wanted)


def _as_dict(value: object) -> Json:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    to_dict = getattr(value, "to_dict", None)
    if to_dict is None:
        raise TypeError(f"expected an object of the SDK or a dict, not {type(value).__name__}")
    return cast(Json, to_dict())


def _required(argument: str, value: str | None, variable: str) -> str:
    value = value or os.environ.get(variable)
    if not value:
        raise ValueError(f"`{argument}` is missing: pass it, or set {variable}")
    return value


def _url(base_url: str | None) -> str:
    return _advice.server_url(_required("base_url", base_url, "KEEPSAKE_URL"))


def _key(argument: str, value: str) -> str:
    """A credential that is safe in a header: `httpx2` would print an invalid one in its error."""
    key = value.strip()
    if re.fullmatch("[!-~]+", key):
        return key
    raise ValueError(f"`{argument}` must be an API key or token: ASCII characters without spaces")


def _segment(argument: str, value: str, prefix: str) -> str:
    if not value.startswith(prefix) or not value.isascii() or not value.replace("_", "").isalnum():
        raise ValueError(f"`{argument}` must be an id, {prefix}…, not {value!r}")
    return value


class Body:
    """The body of an answer, which may be too long."""

    def __init__(self, url: str, answer: httpx2.Response) -> None:
        self._url = url
        self._status = answer.status_code
        self._read = bytearray()

    def add(self, part: bytes) -> None:
        """Adds a part that was read."""
        if len(self._read) + len(part) > MAX_ANSWER_BYTES:
            raise KeepsakeError(self._url, f"the answer has more than {MAX_ANSWER_BYTES} bytes", status=self._status)
        self._read += part

    def text(self) -> str:
        """Its text, as far as it is one."""
        return self._read.decode(errors="replace")

    def json(self) -> Json | None:
        """The JSON object that it is; `None`: it is something else."""
        try:
            body = json.loads(self._read)
        except (ValueError, RecursionError):
            return None
        return cast(Json, body) if isinstance(body, dict) else None


class Pages:
    """The pages of a list, which must end."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._named: set[str] = set()
        self._empty = 0

    def after(self, page: Json) -> str | None:
        """The name of the page after this one; `None`: it is the last."""
        name = cast("str | None", page["next_page"])
        if name is None:
            return None
        self._empty = 0 if page["data"] else self._empty + 1
        if name in self._named:
            raise KeepsakeError(self._url, "the list names a next page for the second time")
        if self._empty > MAX_EMPTY_PAGES:
            raise KeepsakeError(self._url, "the list has no end")
        self._named.add(name)
        return name


class Attempts:
    """Decides after each attempt what follows: an answer, another attempt or an error."""

    def __init__(self, base_url: str, url: str, started_at: float) -> None:
        self._base_url = base_url
        self._url = url
        self._started_at = started_at
        self._made = 0
        # Whether an attempt may have reached the server.
        self._was_sent = False

    def after_answer(self, answer: httpx2.Response, read: Body, now: float) -> Json | float:
        """The answer's body, or the seconds to wait before the next attempt."""
        body = read.json()
        if answer.is_success:
            if body is None:
                advice = _advice.of_other_answer(self._base_url, answer.status_code)
                raise KeepsakeError(self._url, f"the answer is not a JSON object{advice}", status=answer.status_code)
            return body
        if body is None and answer.status_code == 400:
            of_scheme = _advice.of_scheme(self._base_url, read.text())
            if of_scheme:
                raise KeepsakeError(self._url, of_scheme, status=answer.status_code)
        error = self._error(answer, body or {})
        if answer.status_code not in AGAIN:
            raise error
        return self._wait(error, now, answer.headers.get("retry-after"))

    def after_failure(self, failure: httpx2.TransportError, now: float) -> float:
        """The seconds to wait before the next attempt, when there was no answer."""
        what = str(failure) or type(failure).__name__
        of_scheme = _advice.of_scheme(self._base_url, what)
        is_connecting = isinstance(failure, httpx2.ConnectError)
        advice = _advice.of_closed_handshake(self._base_url, what) if is_connecting else ""
        is_sent = not isinstance(failure, UNSENT)
        self._was_sent = self._was_sent or is_sent
        problem = "no answer" if is_sent else "the server cannot be reached"
        if isinstance(failure, httpx2.PoolTimeout):
            problem = "all connections of the client are in use"
        outcome = "; the call may have been carried out" if self._was_sent else ""
        error = KeepsakeError(self._url, of_scheme or f"{problem}: {what}{advice}{outcome}")
        error.__cause__ = failure
        if of_scheme:
            raise error
        return self._wait(error, now, None)

    def _wait(self, error: KeepsakeError, now: float, retry_after: str | None) -> float:
        self._made += 1
        # Random, so that clients that failed together do not come back together.
        seconds = 0.25 * 2**self._made * random.uniform(0.5, 1.0)
        if retry_after is not None and retry_after.isdecimal():
            seconds = max(seconds, float(retry_after))
        if self._made >= ATTEMPTS or now + seconds > self._started_at + TOTAL_SECONDS:
            raise error
        return seconds

    def _error(self, answer: httpx2.Response, body: Json) -> KeepsakeError:
        error = body.get("error")
        fields = cast(Json, error) if isinstance(error, dict) else {}
        return KeepsakeError(
            self._url,
            self._message(answer, fields.get("message")),
            status=answer.status_code,
            error_type=fields.get("type"),
            request_id=body.get("request_id") or answer.headers.get("request-id"),
        )

    def _message(self, answer: httpx2.Response, stated: object) -> str:
        status = answer.status_code
        if stated:
            return f"{stated}{_advice.of_answer(self._base_url, status)}"
        location = answer.headers.get("location")
        if 300 <= status < 400 and location is not None:
            return _advice.of_redirect(self._base_url, self._url, location)
        reason = answer.reason_phrase or "no message"
        return f"{reason}{_advice.of_other_answer(self._base_url, status)}"
