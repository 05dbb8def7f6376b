"""Shared by the suites: both clients of the SDK, and a proxy that injects faults.

A suite's tests are written once, in a class that knows no client, and run with
the sync and with the async one (`SyncClient`, `AsyncClient`). The clients are
made as users make them, of a base URL and a key; they also check each answer
against the SDK's own models, so that a field of a wrong type fails a test.
"""

import asyncio
import hashlib
import http.client
import inspect
import os
import threading
import unittest
import uuid
from datetime import timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from anthropic import Anthropic, AsyncAnthropic

BASE_URL = os.environ["KEEPSAKE_BASE_URL"]
API_KEY = os.environ["KEEPSAKE_API_KEY"]
WORKSPACE_ID = os.environ["KEEPSAKE_WORKSPACE_ID"]

BYTES_PER_MEMORY = 102_400
MICROSECOND = timedelta(microseconds=1)
#: An id without its prefix.
ID = "^{}_[0-9A-HJKMNP-TV-Z]{{26}}$"
#: RFC 3339 in UTC with microseconds.
TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
#: The header of the API's preview, whose clients overwrite existing memories.
PREVIEW = {"anthropic-beta": "managed-agents-2026-04-01"}
#: Ids of objects that never existed.
NO_STORE = "memstore_00000000000000000000000001"
NO_MEMORY = "mem_00000000000000000000000001"
NO_VERSION = "memver_00000000000000000000000001"


def another_key(name):
    """The secret of an additional key; `name` describes it."""
    return os.environ[f"KEEPSAKE_{name}_API_KEY"]


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


def holds(content):
    """The precondition that a memory's content is this."""
    return {"type": "content_sha256", "content_sha256": sha256(content)}


def paths(items):
    return [item.path for item in items]


async def do(call):
    """The result of a call with either client."""
    return await call if inspect.isawaitable(call) else call


async def everything(listing):
    """Each item of a listing, over all its pages."""
    if hasattr(listing, "__aiter__"):
        return [item async for item in listing]
    return list(listing)


async def pages(listing):
    """Each page of a listing, by `get_next_page`."""
    page = await do(listing)
    found = [page]
    while page.has_next_page():
        page = await do(page.get_next_page())
        found.append(page)
    return found


async def streamed(context, read):
    """The result of `read` on an open streaming response."""
    if hasattr(context, "__aenter__"):
        async with context as response:
            return await do(read(response))
    with context as response:
        return read(response)


class Facts(unittest.IsolatedAsyncioTestCase):
    """Tests of one resource, made for either client."""

    maxDiff = None
    client_class = None

    async def asyncSetUp(self):
        # The sync client blocks the loop, which debugging would log.
        asyncio.get_running_loop().set_debug(False)
        self.client = self.client_with()
        self.stores = self.client.beta.memory_stores
        self.memories = self.stores.memories
        self.versions = self.stores.memory_versions

    def client_with(self, key=API_KEY, base_url=BASE_URL, **options):
        """A client with other options, closed at the end of the test."""
        client = self.client_class(base_url=base_url, api_key=key, _strict_response_validation=True, **options)

        async def close():
            await do(client.close())

        self.addAsyncCleanup(close)
        return client

    def proxy(self):
        """A proxy of the server that ends with the test."""
        proxy = Proxy()
        self.addCleanup(proxy.close)
        return proxy

    def new_idempotency_key(self):
        """A header with a key that no request had, also if the suite runs twice."""
        return {"idempotency-key": str(uuid.uuid4())}

    async def new_store(self, name="notes", **fields):
        return await do(self.stores.create(name=name, **fields))

    async def new_memory(self, store, path="/notes.md", content="first\n", **options):
        return await do(self.memories.create(store.id, path=path, content=content, **options))

    async def refused(self, error_class, error_type, call, *named):
        """Checks that `call` is refused with this error; returns the SDK's error."""
        with self.assertRaises(error_class) as raised:
            await do(call())
        error = raised.exception
        self.assertIs(type(error), error_class, error)
        self.assertEqual(error.body["type"], "error", error.body)
        self.assertEqual(error.body["error"]["type"], error_type, error.body)
        self.assertEqual(error.type, error_type)
        self.assertEqual(error.body["request_id"], error.request_id)
        self.assertRegex(error.request_id, ID.format("req"))
        for text in named:
            self.assertIn(text, error.body["error"]["message"])
        return error

    def assert_id(self, prefix, value):
        self.assertRegex(value, ID.format(prefix))

    def assert_not_to_be_retried(self, error):
        self.assertEqual(error.response.headers.get("x-should-retry"), "false", error.body)


def ways_to_write(time):
    """The forms in which a query may give one moment."""
    assert time.tzinfo == timezone.utc or time.utcoffset() == timedelta(0), time
    elsewhere = timezone(timedelta(hours=-3, minutes=-30))
    return [
        time,
        time.astimezone(elsewhere),
        time.replace(tzinfo=None).isoformat(),
        time.isoformat().replace("+00:00", "Z"),
        time.astimezone(elsewhere).isoformat(),
    ]


class OneStore:
    """Tests with a separate store for each."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.store = await self.new_store()

    async def create(self, path="/notes.md", content="first\n", **options):
        return await self.new_memory(self.store, path, content, **options)

    async def update(self, memory, **changes):
        return await do(self.memories.update(memory.id, memory_store_id=self.store.id, **changes))

    async def delete(self, memory):
        await do(self.memories.delete(memory.id, memory_store_id=self.store.id))


class SyncClient(Facts):
    client_class = Anthropic


class AsyncClient(Facts):
    client_class = AsyncAnthropic


#: Faults of the proxy, each for one request.
UNAVAILABLE = "answered with 503, unseen by the server"
LOST = "carried out, and the answer lost"


class Proxy:
    """A proxy of the server that counts requests and injects faults.

    A fault is for one request; a function among them is called before its
    request goes on to the server. Further requests pass.
    """

    def __init__(self):
        self._faults = []
        self._spoilt_method = None
        self._requests = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self):
                proxy._handle(self)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spoil(self, *faults, method=None):
        """Resets the record and injects faults into the next requests (of one method)."""
        with self._lock:
            self._requests.clear()
            self._faults[:] = faults
            self._spoilt_method = method

    def seen(self, method=None):
        """Method and status of each request since `spoil`; none if the server got no request."""
        with self._lock:
            return [request for request in self._requests if method in (None, request[0])]

    def _handle(self, handler):
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        with self._lock:
            is_spoilt = self._faults and self._spoilt_method in (None, handler.command)
            fault = self._faults.pop(0) if is_spoilt else None
        if fault == UNAVAILABLE:
            self._note(handler, None)
            reply = b'{"type":"error","error":{"type":"overloaded_error","message":"not now"}}'
            headers = [("content-type", "application/json"), ("retry-after", "0.01")]
            self._answer(handler, 503, headers, reply)
            return
        if callable(fault):
            fault()
        status, headers, reply = self._forward(handler, body)
        self._note(handler, status)
        if fault == LOST:
            handler.close_connection = True
            return
        self._answer(handler, status, headers, reply)

    def _note(self, handler, status):
        with self._lock:
            self._requests.append((handler.command, status))

    def _forward(self, handler, body):
        target = urlsplit(BASE_URL)
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in HOP_BY_HOP}
            connection.request(handler.command, handler.path, body=body, headers=headers)
            response = connection.getresponse()
            reply = response.read()
            headers = [(name, value) for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP]
            return response.status, headers, reply
        finally:
            connection.close()

    def _answer(self, handler, status, headers, reply):
        handler.send_response_only(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(reply)))
        handler.end_headers()
        handler.wfile.write(reply)


HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
