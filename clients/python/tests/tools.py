"""Shared by the tests of the client: each test runs with both classes of tools."""

import asyncio
import inspect
import os
import unittest

from anthropic import Anthropic, AsyncAnthropic
from fakes import MessagesStub
from keepsake_memory import AsyncKeepsakeMemoryTool, KeepsakeMemoryTool

BASE_URL = os.environ["KEEPSAKE_BASE_URL"]
API_KEY = os.environ["KEEPSAKE_API_KEY"]
TEXT = [{"type": "text", "text": "Done."}]
# One for all tests: making a client reads every certificate of the machine.
SERVER = Anthropic(base_url=BASE_URL, api_key=API_KEY)


async def do(call):
    """The result of a call of either class."""
    return await call if inspect.isawaitable(call) else call


def new_store():
    return SERVER.beta.memory_stores.create(name="client").id


class ToolTests(unittest.IsolatedAsyncioTestCase):
    """Tests of one class of tools."""

    maxDiff = None
    tool_class = None
    client_class = None

    async def asyncSetUp(self):
        # The sync tool blocks the loop, which debugging would log.
        asyncio.get_running_loop().set_debug(False)

    def tool(self, store_id=None, base_url=BASE_URL, api_key=API_KEY):
        """A tool on a new store, or on this one, which is closed at the end of the test."""
        tool = self.tool_class(
            base_url=base_url, api_key=api_key, memory_store_id=store_id or new_store()
        )
        return self.closed_at_last(tool)

    def closed_at_last(self, tool):
        async def close():
            await do(tool.close())

        self.addAsyncCleanup(close)
        return tool

    def patient(self, tool):
        """Makes a tool wait without the time that it takes; returns the times it waited."""
        waited = []

        async def sleep(seconds):
            waited.append(seconds)

        tool._sleep = sleep if self.tool_class is AsyncKeepsakeMemoryTool else waited.append
        return waited

    async def run_tool(self, tool, replies):
        """The results that the SDK's runner sends for these replies of the model."""
        stub = MessagesStub([*replies, TEXT])
        self.addCleanup(stub.server.server_close)
        self.addCleanup(stub.server.shutdown)
        client = self.client_class(base_url=stub.url, api_key="stub", max_retries=0)
        runner = client.beta.messages.tool_runner(
            model="claude-test",
            max_tokens=1000,
            thread=False,  # each request holds the whole conversation
            messages=[{"role": "user", "content": "Go on."}],
            tools=[tool],
        )
        runner = await do(runner)
        reply = await do(runner.until_done())
        await do(client.close())
        self.assertEqual(reply.content[0].text, "Done.")
        return stub.tool_results()


class WithSync:
    tool_class = KeepsakeMemoryTool
    client_class = Anthropic


class WithAsync:
    tool_class = AsyncKeepsakeMemoryTool
    client_class = AsyncAnthropic
