"""The memory tool for the SDK's clients, synchronous and asynchronous."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import anyio
import httpx2
from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    BetaFunctionToolResultType,
    ToolError,
)
from anthropic.types.beta import (
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
    BetaToolResultBlockParam,
)
from typing_extensions import Self, override

from ._calls import (
    TIMEOUT,
    Attempts,
    Body,
    Call,
    Json,
    Pages,
    Server,
    call_of_block,
    call_of_input,
    server,
    server_of_session,
)
from ._errors import KeepsakeError

_PAGE = "100"
_CLEARED = "All memory cleared"
# The first segment of the settings of a store, which only its administrators change.
_SETTINGS = ".keepsake"


def _content(result: Json) -> str:
    """The text of a result; an error that the model can correct is raised."""
    content = cast(str, result["content"])
    if result.get("is_error"):
        raise ToolError(content)
    return content


def _memories_of(page: Json) -> list[str]:
    memories = cast("list[Json]", page["data"])
    return [memory["id"] for memory in memories if str(memory.get("path")).split("/")[1:2] != [_SETTINGS]]


def _stores_of_session(session: Json) -> list[str]:
    resources = cast("list[Json]", session.get("resources", []))
    return [f"/v1/memory_stores/{resource['memory_store_id']}" for resource in resources]


class KeepsakeMemoryTool(BetaAbstractMemoryTool):
    """The memory tool, carried out by Keepsake.

    Use it as one of `tools` of the SDK's tool runner, or pass each `tool_use`
    block to `handle`.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        memory_store_id: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        http_client: httpx2.Client | None = None,
    ) -> None:
        """Takes the server's URL, the API key and the memory store's id.

        Those that are missing come from the variables KEEPSAKE_URL,
        KEEPSAKE_API_KEY and KEEPSAKE_STORE. An `http_client` that is passed is
        not closed by this tool.
        """
        super().__init__(cache_control=cache_control)
        self._open(server(base_url, api_key, memory_store_id), http_client)

    @classmethod
    def from_session(
        cls,
        session: object,
        *,
        base_url: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        http_client: httpx2.Client | None = None,
    ) -> Self:
        """A tool for the stores of a session, which was just created.

        `session` is the answer of `sessions.create`, of the SDK or as a dict;
        its token is the credential.
        """
        tool = cls.__new__(cls)
        BetaAbstractMemoryTool.__init__(tool, cache_control=cache_control)
        tool._open(server_of_session(session, base_url), http_client)
        return tool

    def _open(self, server: Server, http_client: httpx2.Client | None) -> None:
        self._server = server
        self._owned = httpx2.Client(timeout=TIMEOUT) if http_client is None else None
        self._http = http_client or cast(httpx2.Client, self._owned)
        self._sleep = time.sleep
        self._now = time.monotonic

    def close(self) -> None:
        """Closes the connections to the server."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handle(self, block: object) -> BetaToolResultBlockParam:
        """Carries out a `tool_use` block, of the SDK or as a dict.

        Returns the `tool_result` block to append to the next user message. The
        block's id makes the call idempotent, also in another process.
        """
        return cast(BetaToolResultBlockParam, self._send(call_of_block(self._server, block)))

    @override
    def call(self, input: object) -> BetaFunctionToolResultType:
        # The server explains also an input that is no command of the tool.
        if not isinstance(input, dict):
            raise ToolError("The input must be an object with `command`.")
        return self._run(cast(Json, input))

    @override
    def view(self, command: BetaMemoryTool20250818ViewCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def create(self, command: BetaMemoryTool20250818CreateCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> BetaFunctionToolResultType:
        return self._run(command)

    @override
    def clear_all_memory(self) -> BetaFunctionToolResultType:
        """Deletes all memories of the store, or of the session's stores, except the settings of a store.

        Their versions are kept for the retention, and can be restored.
        """
        for store in self._stores():
            for memory_id in list(self._memory_ids(store)):
                try:
                    self._send(Call("DELETE", f"{store}/memories/{memory_id}"))
                except KeepsakeError as error:
                    # An earlier attempt or another client deleted it.
                    if error.status != 404:
                        raise
        return _CLEARED

    def _stores(self) -> list[str]:
        if self._server.stores.startswith("/v1/sessions/"):
            return _stores_of_session(self._send(Call("GET", self._server.stores)))
        return [self._server.stores]

    def _memory_ids(self, store: str) -> Iterator[str]:
        path = f"{store}/memories"
        pages = Pages(f"{self._server.base_url}{path}")
        params = {"limit": _PAGE}
        while True:
            page = self._send(Call("GET", path, params=params))
            yield from _memories_of(page)
            name = pages.after(page)
            if name is None:
                return
            params = {"limit": _PAGE, "page": name}

    def _run(self, command: object) -> str:
        return _content(self._send(call_of_input(self._server, command)))

    def _send(self, call: Call) -> dict[str, Any]:
        url = f"{self._server.base_url}{call.path}"
        attempts = Attempts(self._server.base_url, url, self._now())
        while True:
            try:
                with self._http.stream(
                    call.method,
                    url,
                    params=call.params,
                    content=call.content(),
                    headers=self._server.headers(),
                ) as answer:
                    body = Body(url, answer)
                    for part in answer.iter_bytes():
                        body.add(part)
            except httpx2.TransportError as failure:
                outcome: Json | float = attempts.after_failure(failure, self._now())
            else:
                outcome = attempts.after_answer(answer, body, self._now())
            if isinstance(outcome, dict):
                return outcome
            self._sleep(outcome)


class AsyncKeepsakeMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for asynchronous clients of the SDK, carried out by Keepsake."""

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        memory_store_id: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        """As `KeepsakeMemoryTool`."""
        super().__init__(cache_control=cache_control)
        self._open(server(base_url, api_key, memory_store_id), http_client)

    @classmethod
    def from_session(
        cls,
        session: object,
        *,
        base_url: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> Self:
        """As `KeepsakeMemoryTool.from_session`."""
        tool = cls.__new__(cls)
        BetaAsyncAbstractMemoryTool.__init__(tool, cache_control=cache_control)
        tool._open(server_of_session(session, base_url), http_client)
        return tool

    def _open(self, server: Server, http_client: httpx2.AsyncClient | None) -> None:
        self._server = server
        self._owned = httpx2.AsyncClient(timeout=TIMEOUT) if http_client is None else None
        self._http = http_client or cast(httpx2.AsyncClient, self._owned)
        self._sleep = anyio.sleep
        self._now = time.monotonic

    async def close(self) -> None:
        """Closes the connections to the server."""
        if self._owned is not None:
            await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def handle(self, block: object) -> BetaToolResultBlockParam:
        """As `KeepsakeMemoryTool.handle`."""
        return cast(BetaToolResultBlockParam, await self._send(call_of_block(self._server, block)))

    @override
    async def call(self, input: object) -> BetaFunctionToolResultType:
        # The server explains also an input that is no command of the tool.
        if not isinstance(input, dict):
            raise ToolError("The input must be an object with `command`.")
        return await self._run(cast(Json, input))

    @override
    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> BetaFunctionToolResultType:
        return await self._run(command)

    @override
    async def clear_all_memory(self) -> BetaFunctionToolResultType:
        """As `KeepsakeMemoryTool.clear_all_memory`."""
        for store in await self._stores():
            for memory_id in [memory_id async for memory_id in self._memory_ids(store)]:
                try:
                    await self._send(Call("DELETE", f"{store}/memories/{memory_id}"))
                except KeepsakeError as error:
                    # An earlier attempt or another client deleted it.
                    if error.status != 404:
                        raise
        return _CLEARED

    async def _stores(self) -> list[str]:
        if self._server.stores.startswith("/v1/sessions/"):
            return _stores_of_session(await self._send(Call("GET", self._server.stores)))
        return [self._server.stores]

    async def _memory_ids(self, store: str) -> AsyncIterator[str]:
        path = f"{store}/memories"
        pages = Pages(f"{self._server.base_url}{path}")
        params = {"limit": _PAGE}
        while True:
            page = await self._send(Call("GET", path, params=params))
            for memory_id in _memories_of(page):
                yield memory_id
            name = pages.after(page)
            if name is None:
                return
            params = {"limit": _PAGE, "page": name}

    async def _run(self, command: object) -> str:
        return _content(await self._send(call_of_input(self._server, command)))

    async def _send(self, call: Call) -> dict[str, Any]:
        url = f"{self._server.base_url}{call.path}"
        attempts = Attempts(self._server.base_url, url, self._now())
        while True:
            try:
                async with self._http.stream(
                    call.method,
                    url,
                    params=call.params,
                    content=call.content(),
                    headers=self._server.headers(),
                ) as answer:
                    body = Body(url, answer)
                    async for part in answer.aiter_bytes():
                        body.add(part)
            except httpx2.TransportError as failure:
                outcome: Json | float = attempts.after_failure(failure, self._now())
            else:
                outcome = attempts.after_answer(answer, body, self._now())
            if isinstance(outcome, dict):
                return outcome
            await self._sleep(outcome)
