"""What to write instead of a URL that does not lead to the API of a server."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit, urlunsplit

# Ends of a URL that the client adds itself, or that are pages for people, with what follows them.
_ENDS = re.compile(r"(?<![:/])/+(admin|console|docs|mcp|v1)(/.*)?$")
_WITHOUT_TLS = re.compile(r"(wrong.version.number|packet.length.too.long|record.layer.failure)", re.IGNORECASE)
# The asynchronous client says nothing of a connection that was closed.
_CLOSED = re.compile(r"EOF|reset by peer|broken pipe|^ConnectError$", re.IGNORECASE)
_WITH_TLS = re.compile(r"illegal (request|status) line|HTTPS")


def server_url(text: str) -> str:
    """The URL of a server as it was given, without a final `/`."""
    url = text.strip()
    # The message does not repeat a text that may hold a password.
    if not re.match("https?://", url, re.IGNORECASE):
        is_host = "://" not in url and "@" not in url
        instead = f", not {url!r}: write http://{url}, or https://{url} for a port with TLS" if is_host else ""
        raise ValueError(f"`base_url` must begin with http:// or https://{instead}")
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host, parts = False, urlsplit("")
    if not has_host:
        raise ValueError("`base_url` must name a host, and its port as a number: http://host:8080")
    host = parts.netloc.rpartition("@")[2]
    # Also an empty query or fragment would take the path that the client adds.
    if "?" in url or "#" in url or "@" in parts.netloc:
        plain = urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/")
        raise ValueError(f"`base_url` must have no credentials, query and fragment: write {plain}")
    return url.rstrip("/")


def of_scheme(base_url: str, reason: str) -> str | None:
    """What is wrong if the port is one without TLS, or with TLS, unlike the URL."""
    scheme, _, rest = base_url.partition("://")
    if scheme.lower() == "https" and _WITHOUT_TLS.search(reason):
        return f"the port answered without TLS: write http://{rest} as `base_url`"
    if scheme.lower() == "http" and _WITH_TLS.search(reason):
        return f"the port answered as one with TLS: write https://{rest} as `base_url`"
    return None


def of_closed_handshake(base_url: str, reason: str) -> str:
    """What to add to the reason why a connection failed, if the port closed it during the TLS handshake."""
    scheme, _, rest = base_url.partition("://")
    if scheme.lower() != "https" or not _CLOSED.search(reason):
        return ""
    return f"; if the port is one without TLS, write http://{rest} as `base_url`"


def of_answer(base_url: str, status: int) -> str:
    """What to add to the reason of an answer, if the URL has an end that is too much."""
    instead = _ENDS.sub("", base_url)
    if instead == base_url or (status >= 300 and status not in (404, 405)):
        return ""
    return f"; the client adds the end of the path itself: write {instead} as `base_url`"


def of_other_answer(base_url: str, status: int) -> str:
    """The same for an answer that is not one of the API."""
    if status >= 500:
        return ""
    return of_answer(base_url, status) or f"; check that {base_url} is the URL of a Keepsake server"


def of_redirect(base_url: str, url: str, location: str) -> str:
    """What to do after a redirect, which would send the credential to another server."""
    try:
        parts = urlsplit(urljoin(url, location))
    except ValueError:
        return "a redirect to nowhere: is `base_url` a Keepsake server?"
    # The query may hold a token.
    target = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    instead = target.removesuffix(url.removeprefix(base_url))
    if instead in (target, base_url):
        instead = "the URL of the server itself"
    return f"a redirect to {target}, which is not followed: write {instead} as `base_url`"
