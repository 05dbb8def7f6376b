"""Keepsake's MCP server, met with the official Python client.

Where it is, the environment says: KEEPSAKE_MCP_URL with KEEPSAKE_API_KEY, or
KEEPSAKE_MCP_COMMAND, a JSON array, for one that is spoken to over stdio.
KEEPSAKE_MCP_ROOT is the directory that the tools' paths begin with, and
KEEPSAKE_MCP_SLUG what the URIs of resources begin with.
"""

import asyncio
import contextlib
import json
import os
import sys
import unittest
from unicodedata import normalize
from urllib.parse import quote

import httpx2
import jsonschema
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

ROOT = os.environ["KEEPSAKE_MCP_ROOT"]
SLUG = os.environ["KEEPSAKE_MCP_SLUG"]
COMMAND = os.environ.get("KEEPSAKE_MCP_COMMAND")

AGENT_TOOLS = {"memory_list", "memory_search", "memory_read", "memory_write", "memory_edit", "memory_append", "memory_delete"}
READING = {"memory_list", "memory_read", "memory_search"}


def credential(key):
    return {"authorization": f"Bearer {key}"} if key else {}


def http_transport(key):
    http = httpx2.AsyncClient(headers=credential(key), timeout=30, trust_env=False)
    return streamable_http_client(os.environ["KEEPSAKE_MCP_URL"], http_client=http)


def transport():
    if COMMAND:
        program, *arguments = json.loads(COMMAND)
        environment = {name: value for name, value in os.environ.items() if name.startswith("KEEPSAKE_API")}
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=environment), errlog=sys.stderr)
    return http_transport(os.environ["KEEPSAKE_API_KEY"])


def client(mode):
    return Client(transport(), mode=mode)


def text_of(result):
    (content,) = result.content
    return content.text


class Server(unittest.IsolatedAsyncioTestCase):
    """Each test runs with the old handshake and with the discovery handshake."""

    async def in_both_modes(self, fact):
        for mode in ("legacy", "auto"):
            with self.subTest(mode):
                async with client(mode) as server:
                    await fact(server, f"{ROOT}/{fact.__name__}-{mode}")

    async def test_server_info_and_capabilities_are_sent(self):
        async def introduced(server, _):
            self.assertEqual(server.server_info.name, "keepsake")
            self.assertIn("memory_protocol", server.instructions)
            capabilities = server.server_capabilities
            self.assertIsNotNone(capabilities.tools)
            self.assertIsNotNone(capabilities.resources)
            self.assertIsNotNone(capabilities.prompts)
            self.assertFalse(capabilities.tools.list_changed)
            self.assertFalse(capabilities.resources.subscribe)

        await self.in_both_modes(introduced)

    async def test_tools_have_descriptions_and_annotations(self):
        async def listed(server, _):
            tools = {tool.name: tool for tool in (await server.list_tools()).tools}
            self.assertLessEqual(AGENT_TOOLS | {"memory"}, set(tools))
            for name, tool in tools.items():
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                self.assertEqual(tool.input_schema["type"], "object")
                self.assertEqual(tool.annotations.read_only_hint, name in READING)
                self.assertIs(tool.annotations.open_world_hint, False)
                self.assertIsInstance(tool.annotations.destructive_hint, bool)
                self.assertIsInstance(tool.annotations.idempotent_hint, bool)
                if name != "memory":
                    jsonschema.Draft202012Validator.check_schema(tool.output_schema)

        await self.in_both_modes(listed)

    async def test_every_tool_works(self):
        async def worked(server, folder):
            schemas = {tool.name: tool.output_schema for tool in (await server.list_tools()).tools}
            path = f"{folder}/day.md"

            async def done(tool, **arguments):
                result = await server.call_tool(tool, arguments)
                self.assertFalse(result.is_error, text_of(result))
                if schemas[tool]:
                    jsonschema.validate(result.structured_content, schemas[tool])
                return result

            written = await done("memory_write", path=path, content="one\n", precondition={"type": "not_exists"})
            self.assertEqual(written.structured_content["outcome"], "created")
            self.assertIn(written.structured_content["content_sha256"], text_of(written))
            await done("memory_append", path=path, content="two")
            edits = [{"old_str": "one", "new_str": "1"}, {"old_str": "two", "new_str": "2"}]
            edited = await done("memory_edit", path=path, edits=edits)
            self.assertEqual(edited.structured_content["snippets"], [{"first_line": 1, "text": "1\n2\n", "is_cut": False}])
            await done("memory", command="insert", path=path, insert_line=2, insert_text="3")
            read = await done("memory_read", path=path, offset=2, limit=2)
            self.assertEqual(read.structured_content["content"], "2\n")
            self.assertEqual(read.structured_content["next_offset"], 4)
            listed = await done("memory_list", path_prefix=folder)
            (entry,) = listed.structured_content["entries"]
            self.assertEqual((entry["path"], entry["first_line"], entry["content_size_bytes"]), (path, "1", 6))
            found = await done("memory_search", query="day", path_prefix=folder)
            (hit,) = found.structured_content["hits"]
            self.assertEqual((hit["path"], hit["line"]), (path, 1))
            await done("memory_delete", path=folder)
            gone = await server.call_tool("memory_list", {"path_prefix": folder})
            self.assertTrue(gone.is_error)

        await self.in_both_modes(worked)

    async def test_correctable_errors_are_results(self):
        async def told(server, folder):
            for tool, arguments, text in [
                ("memory_read", {"path": f"{folder}/none"}, "does not exist"),
                ("memory_read", {"path": 3}, "`path` must be a string"),
                ("memory_write", {"path": f"{folder}/x"}, "`content` is missing"),
                ("memory_edit", {"path": f"{folder}/none", "edits": [{"old_str": "a"}]}, "does not exist"),
                ("memory", {"command": "fly"}, "`command` must be one of"),
                ("memory", {"command": "view", "path": f"{ROOT}/../secret"}, "would escape"),
                ("memory_search", {"query": 3}, "`query` must be a string"),
                ("memory_list", {"limit": 1000, "path_prefix": ROOT}, "`limit` must be 1 to 100"),
                ("memory_list", {"page": "page_x", "path_prefix": ROOT}, "`page` must be"),
            ]:
                result = await server.session.call_tool(tool, arguments)
                self.assertTrue(result.is_error, arguments)
                self.assertIn(text, text_of(result))
                self.assertIsNone(result.structured_content)

        await self.in_both_modes(told)

    async def test_unknown_tools_are_protocol_errors(self):
        async def refused(server, _):
            for asked in [
                server.call_tool("memory_forget", {}),
                server.get_prompt("no_prompt"),
                server.get_prompt("memory_protocol", {"keep_tidy": "perhaps"}),
                server.list_resources(cursor="9.page_x"),
                server.list_resources(cursor="0.page_x"),
                server.read_resource(f"memory://{SLUG}/none"),
                server.read_resource("memory://elsewhere/a"),
                server.read_resource(f"memory://{SLUG}/../a"),
                server.read_resource("file:///etc/passwd"),
            ]:
                with self.assertRaises(MCPError):
                    await asked

        await self.in_both_modes(refused)

    async def test_memories_are_listed_as_resources_in_pages(self):
        async def paged(server, folder):
            name = folder.removeprefix(ROOT)
            paths = [f"{folder}/{number:03} ä?#%.md" for number in range(130)]
            writes = [server.call_tool("memory_write", {"path": path, "content": path}) for path in paths]
            for result in await asyncio.gather(*writes):
                self.assertFalse(result.is_error, text_of(result))
            found, cursor, pages = {}, None, 0
            while True:
                page = await server.list_resources(cursor=cursor, cache_mode="bypass")
                pages += 1
                for resource in page.resources:
                    self.assertNotIn(resource.uri, found)
                    found[resource.uri] = resource
                cursor = page.next_cursor
                if cursor is None:
                    break
            self.assertGreater(pages, 1)
            mine = [uri for uri in found if uri.startswith(f"memory://{SLUG}{name}/")]
            self.assertEqual(len(mine), len(paths))
            (template,) = (await server.list_resource_templates()).resource_templates
            self.assertEqual(template.uri_template, "memory://{slug}/{+path}")
            for uri, path in zip(sorted(mine)[:3], paths):
                (content,) = (await server.read_resource(uri)).contents
                self.assertEqual(content.text, path)
                self.assertEqual(content.mime_type, "text/markdown")
                self.assertEqual(found[uri].size, len(path.encode()))
            decomposed = quote(normalize("NFD", paths[0].removeprefix(ROOT)))
            (content,) = (await server.read_resource(f"memory://{SLUG}{decomposed}")).contents
            self.assertEqual(content.text, paths[0])
            await server.call_tool("memory_delete", {"path": folder})

        await self.in_both_modes(paged)

    async def test_prompt_describes_the_protocol(self):
        async def prompted(server, _):
            (prompt,) = (await server.list_prompts()).prompts
            self.assertEqual(prompt.name, "memory_protocol")
            self.assertEqual([argument.name for argument in prompt.arguments], ["keep_tidy", "topic", "file_index"])
            plain = (await server.get_prompt("memory_protocol")).messages[0].content.text
            full = await server.get_prompt("memory_protocol", {"keep_tidy": "true", "topic": "the garden"})
            full = full.messages[0].content.text
            self.assertTrue(full.startswith(plain))
            self.assertIn("the garden", full)
            self.assertIn("interrupted", plain)

        await self.in_both_modes(prompted)

    async def test_concurrent_calls_are_all_answered(self):
        async def answered(server, folder):
            calls = [
                server.call_tool("memory_append", {"path": f"{folder}/log", "content": f"line {number}"})
                for number in range(20)
            ]
            for result in await asyncio.gather(*calls):
                self.assertFalse(result.is_error, text_of(result))
            read = await server.call_tool("memory_read", {"path": f"{folder}/log"})
            lines = sorted(read.structured_content["content"].splitlines())
            self.assertEqual(lines, sorted(f"line {number}" for number in range(20)))
            await server.call_tool("memory_delete", {"path": folder})

        await self.in_both_modes(answered)


@unittest.skipIf(COMMAND, "a process of its own asks for no credential")
class Door(unittest.IsolatedAsyncioTestCase):
    async def test_missing_credential_is_refused(self):
        for key in (None, "ks_live_nonsense"):
            with self.subTest(key):
                with self.assertRaises(Exception) as raised:
                    async with Client(http_transport(key), mode="legacy"):
                        pass
                self.assertIsInstance(raised.exception, (MCPError, ExceptionGroup, httpx2.HTTPError))

    async def test_refusals_have_the_api_error_envelope(self):
        url, key = os.environ["KEEPSAKE_MCP_URL"], os.environ["KEEPSAKE_API_KEY"]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        # Separate connections: a server may close one with an unread request.
        for kind, status, method, request in [
            ("authentication_error", 401, "POST", {"json": ping}),
            ("invalid_request_error", 405, "GET", {"headers": credential(key)}),
            ("invalid_request_error", 405, "DELETE", {"headers": credential(key)}),
            ("invalid_request_error", 415, "POST", {"content": "x", "headers": credential(key)}),
            ("permission_error", 403, "POST", {"json": ping, "headers": {**credential(key), "origin": "https://e.example"}}),
        ]:
            async with httpx2.AsyncClient(trust_env=False) as http:
                answer = await http.request(method, url, **request)
            self.assertEqual(answer.status_code, status, answer.text)
            self.assertEqual(answer.json()["error"]["type"], kind)
            self.assertEqual(answer.json()["request_id"], answer.headers["request-id"])
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.post(url, json=ping, headers=credential(key))
        self.assertEqual(answer.json(), {"jsonrpc": "2.0", "id": 1, "result": {}})
        self.assertTrue(answer.headers["request-id"].startswith("req_"))



if __name__ == "__main__":
    unittest.main()
