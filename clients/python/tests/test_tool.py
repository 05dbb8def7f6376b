"""What the tools promise: commands, errors, retries, sessions."""

import os
import unittest
from unittest import mock

from anthropic import Anthropic
from anthropic.lib.tools import ToolError
from anthropic.types.beta import BetaMemoryTool20250818CreateCommand, BetaToolUseBlock
from fakes import calls
from keepsake_memory import KeepsakeError
from support import LOST, UNAVAILABLE, Proxy
from tools import API_KEY, BASE_URL, ToolTests, WithAsync, WithSync, do, new_store

CREATE = {"command": "create", "path": "/memories/a.md", "file_text": "one\n"}
INSERT = {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "again\n"}
VIEW = {"command": "view", "path": "/memories/a.md"}
HEAD = "Here's the content of /memories/a.md with line numbers:\n"


class Tools:
    def proxy(self):
        proxy = Proxy()
        self.addCleanup(proxy.close)
        return proxy

    async def test_commands_are_called_and_typed_commands_too(self):
        tool = self.tool()
        command = BetaMemoryTool20250818CreateCommand.construct(**CREATE)
        self.assertEqual(await do(tool.execute(command)), "File created successfully at: /memories/a.md")
        self.assertEqual(await do(tool.call(VIEW)), f"{HEAD}     1\tone\n     2\t")
        for command in [
            {"command": "str_replace", "path": "/memories/a.md", "old_str": "one", "new_str": "two"},
            INSERT,
            {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"},
            {"command": "delete", "path": "/memories/b.md"},
        ]:
            self.assertIsInstance(await do(tool.call(command)), str)
        self.assertEqual(tool.to_dict(), {"type": "memory_20250818", "name": "memory"})

    async def test_errors_that_the_model_can_correct_are_tool_errors(self):
        tool = self.tool()
        # As the SDK's own tool: existing files, missing files, directories, paths outside, the root.
        await do(tool.call(CREATE))
        for command, message in [
            (CREATE, "File /memories/a.md already exists"),
            ({**VIEW, "path": "/memories/b.md"}, "The path /memories/b.md does not exist"),
            ({**VIEW, "path": "/etc/passwd"}, "/etc/passwd"),
            ({**VIEW, "path": "/memories/../etc/passwd"}, "/memories/../etc/passwd"),
            ({"command": "delete", "path": "/memories"}, "/memories"),
            ({**INSERT, "insert_line": 9}, "insert_line"),
            ({"command": "erase"}, "erase"),
            ({}, "command"),
            ({**CREATE, "path": "/memories/b.md", "file_text": "bad \ud83d end"}, "`file_text` has a character"),
        ]:
            with self.assertRaises(ToolError) as raised:
                await do(tool.call(command))
            self.assertIn(message, raised.exception.content)
        with self.assertRaises(ToolError):
            await do(tool.call("view"))
        whole = {**CREATE, "path": "/memories/c.md", "file_text": "\ud83d\ude00"}
        self.assertIsInstance(await do(tool.call(whole)), str)
        self.assertEqual(await do(tool.call(VIEW)), f"{HEAD}     1\tone\n     2\t")

    async def test_runner_shows_results_and_errors_to_the_model(self):
        results = await self.run_tool(self.tool(), [calls(CREATE, start=0), calls(CREATE, VIEW, start=1)])
        self.assertEqual([result.get("is_error", False) for result in results], [False, True, False])
        self.assertEqual(results[1]["content"], "Error: File /memories/a.md already exists")

    async def test_clear_all_memory_deletes_every_memory(self):
        tool = self.tool()
        for number in range(120):
            await do(tool.call({**CREATE, "path": f"/memories/{number % 7}/{number}.md"}))
        self.assertEqual(await do(tool.clear_all_memory()), "All memory cleared")
        listing = await do(tool.call({"command": "view", "path": "/memories"}))
        self.assertTrue(listing.endswith("\n0B\t/memories"), listing)

    async def test_handle_takes_blocks_and_repeats_them_once(self):
        tool = self.tool()
        await do(tool.call(CREATE))
        block = {"type": "tool_use", "id": "toolu_1", "name": "memory", "input": INSERT}
        result = await do(tool.handle(block))
        self.assertEqual((result["tool_use_id"], result["is_error"]), ("toolu_1", False))
        again = BetaToolUseBlock.construct(**block)
        self.assertEqual(await do(self.tool(tool._server.stores.split("/")[-1]).handle(again)), result)
        view = {"type": "tool_use", "id": "toolu_2", "name": "memory_read", "input": {"path": "/memories/a.md"}}
        self.assertEqual((await do(tool.handle(view)))["content"].count("again"), 1)
        bad = await do(tool.handle({**block, "id": "toolu_3", "input": {"command": "view", "path": "/x"}}))
        self.assertTrue(bad["is_error"])
        with self.assertRaises(TypeError):
            await do(tool.handle(7))

    async def test_lost_answer_does_not_make_a_change_twice(self):
        proxy = self.proxy()
        tool = self.tool(base_url=proxy.url)
        waited = self.patient(tool)
        await do(tool.call(CREATE))
        for fault in [LOST, UNAVAILABLE]:
            proxy.spoil(fault)
            await do(tool.call(INSERT))
            self.assertEqual(len(proxy.seen()), 2)
        proxy.spoil(LOST, LOST)
        await do(tool.handle({"type": "tool_use", "id": "toolu_1", "name": "memory", "input": INSERT}))
        self.assertEqual(len(proxy.seen()), 3)
        self.assertEqual((await do(tool.call(VIEW))).count("again"), 3)
        self.assertEqual(len(waited), 4)

    async def test_retries_are_bounded(self):
        proxy = self.proxy()
        tool = self.tool(base_url=proxy.url)
        waited = self.patient(tool)
        proxy.spoil(*[UNAVAILABLE] * 9)
        with self.assertRaises(KeepsakeError) as raised:
            await do(tool.call(VIEW))
        error = raised.exception
        self.assertEqual((error.status, error.error_type, error.message), (503, "overloaded_error", "not now"))
        self.assertEqual((len(proxy.seen()), len(waited)), (5, 4))
        self.assertTrue(all(later > sooner / 2 for sooner, later in zip(waited, waited[1:])), waited)
        # After a minute there is no further attempt.
        proxy.spoil(LOST)
        times = iter([0.0, 61.0])
        tool._now = lambda: next(times)
        with self.assertRaisesRegex(KeepsakeError, "no answer: .*; the call may have been carried out"):
            await do(tool.call(VIEW))
        self.assertEqual(len(proxy.seen()), 1)

    async def test_server_that_is_not_there_is_named(self):
        tool = self.tool(base_url="http://127.0.0.1:9", store_id="memstore_1")
        self.patient(tool)
        with self.assertRaises(KeepsakeError) as raised:
            await do(tool.call(VIEW))
        self.assertIn("http://127.0.0.1:9/v1/memory_stores/memstore_1/tool_calls: the server cannot be", str(raised.exception))
        self.assertIsNotNone(raised.exception.__cause__)

    async def test_refusal_is_an_error_with_its_details(self):
        tool = self.tool(api_key="ks_live_unknown")
        waited = self.patient(tool)
        with self.assertRaises(KeepsakeError) as raised:
            await do(tool.call(VIEW))
        error = raised.exception
        self.assertEqual((error.status, error.error_type), (401, "authentication_error"))
        self.assertIn(error.request_id, str(error))
        self.assertRegex(error.request_id, "^req_")
        self.assertEqual(waited, [])
        self.assertNotIn("ks_live_unknown", repr(tool._server) + str(error))

    async def test_session_has_its_stores_and_nothing_else(self):
        store = new_store()
        with Anthropic(base_url=BASE_URL, api_key=API_KEY) as client:
            session = client.beta.sessions.create(
                agent="agent",
                environment_id="here",
                resources=[{"type": "memory_store", "memory_store_id": store}],
            )
            for answer in (session, session.to_dict()):
                tool = self.closed_at_last(self.tool_class.from_session(answer, base_url=BASE_URL))
                listing = await do(tool.call({"command": "view", "path": "/memories"}))
                self.assertIn("/memories/client", listing)
            await do(tool.call({**CREATE, "path": "/memories/client/a.md"}))
            memories = client.beta.memory_stores.memories
            [memory] = memories.list(store)
            self.assertEqual(memory.path, "/a.md")
            # A setting of the store, which the session may not delete.
            setting = memories.create(store, path="/.keepsake/a", content="")
            await do(tool.clear_all_memory())
            self.assertEqual([memory.id for memory in memories.list(store)], [setting.id])
            found = client.beta.sessions.retrieve(session.id)
            with self.assertRaisesRegex(ValueError, "`token` is missing"):
                self.tool_class.from_session(found, base_url=BASE_URL)

    async def test_arguments_win_over_variables_and_missing_ones_are_named(self):
        variables = {"KEEPSAKE_URL": BASE_URL, "KEEPSAKE_API_KEY": f"{API_KEY}\n", "KEEPSAKE_STORE": new_store()}
        with mock.patch.dict(os.environ, variables):
            tool = self.closed_at_last(self.tool_class())
            await do(tool.call(CREATE))
            other = self.closed_at_last(self.tool_class(memory_store_id=new_store()))
            with self.assertRaises(ToolError):
                await do(other.call(VIEW))
        bare = {name: value for name, value in os.environ.items() if name not in variables}
        with mock.patch.dict(os.environ, bare, clear=True):
            for given, message in [
                ({}, "`memory_store_id` is missing: pass it, or set KEEPSAKE_STORE"),
                ({"memory_store_id": "a"}, "`base_url` is missing: pass it, or set KEEPSAKE_URL"),
                ({"memory_store_id": "a", "base_url": "host"}, "`base_url` must begin with http"),
                ({"memory_store_id": "a", "base_url": BASE_URL}, "`api_key` is missing"),
                ({"memory_store_id": "memstore_/a", "base_url": BASE_URL, "api_key": "k"}, "`memory_store_id` must be an id"),
                ({"memory_store_id": "notes", "base_url": BASE_URL, "api_key": "k"}, "an id, memstore_…, not 'notes'"),
            ]:
                with self.assertRaisesRegex(ValueError, message):
                    self.tool_class(**given)


class WithTheSyncTool(Tools, WithSync, ToolTests):
    pass


class WithTheAsyncTool(Tools, WithAsync, ToolTests):
    pass


if __name__ == "__main__":
    unittest.main()
