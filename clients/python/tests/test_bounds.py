"""Answers and lists of a hostile server, and URLs that lead to none."""

import unittest
from unittest import mock

import httpx2
from keepsake_memory import KeepsakeError, _calls
from tools import ToolTests, WithAsync, WithSync, do

PART = b" " * (64 << 10)
STORE = "memstore_00000000000000000000000001"


class Bounds:
    def tool_of(self, answer, base_url="http://hostile"):
        """A tool whose requests get these answers."""
        client = httpx2.Client if self.tool_class is WithSync.tool_class else httpx2.AsyncClient
        http_client = client(transport=httpx2.MockTransport(answer))
        return self.tool_class(
            base_url=base_url, api_key="key", memory_store_id=STORE, http_client=http_client
        )

    def endless(self, read):
        """A body without an end, which counts the parts that were read."""
        if self.tool_class is WithSync.tool_class:

            def parts():
                while True:
                    read.append(None)
                    yield PART

        else:

            async def parts():
                while True:
                    read.append(None)
                    yield PART

        return parts()

    async def test_answer_is_read_up_to_the_bound(self):
        for status in [200, 400]:
            read = []
            tool = self.tool_of(lambda _: httpx2.Response(status, content=self.endless(read)))
            with self.assertRaises(KeepsakeError) as raised:
                await do(tool.call({"command": "view", "path": "/memories"}))
            self.assertEqual(raised.exception.status, status)
            self.assertIn(f"more than {_calls.MAX_ANSWER_BYTES} bytes", raised.exception.message)
            self.assertEqual(len(read), _calls.MAX_ANSWER_BYTES // len(PART) + 1)

    async def test_error_of_a_wrong_url_says_what_was_reached_and_what_to_write(self):
        def failing(failure):
            def fail(_):
                raise failure

            return fail

        def moved(to):
            return lambda request: httpx2.Response(301, headers={"location": to.replace("PATH", request.url.path)})

        page, no_route = httpx2.Response(404, text="<html>"), {"error": {"type": "a", "message": "no such route"}}
        for base_url, answer, reached, instead in [
            (
                "https://h:1",
                failing(httpx2.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")),
                "without TLS",
                "http://h:1",
            ),
            ("http://h", failing(httpx2.RemoteProtocolError("illegal request line")), "with TLS", "https://h"),
            ("http://h", lambda _: httpx2.Response(400, text="to an HTTPS server"), "with TLS", "https://h"),
            ("http://h/k/v1/", lambda _: httpx2.Response(404, json=no_route), "no such route;", "http://h/k"),
            ("http://h/console", lambda _: httpx2.Response(200, text="<html>"), "is not a JSON object", "http://h"),
            ("http://mcp/mcp/m_1", lambda _: httpx2.Response(404, json=no_route), "no such route;", "http://mcp"),
            ("http://h", moved("https://hPATH?t=1"), "a redirect to https://h/v1/memory_stores", "https://h"),
            ("http://h", moved("/sign-in"), "a redirect to http://h/sign-in,", "the URL of the server itself"),
        ]:
            with self.assertRaises(KeepsakeError) as raised:
                await do(self.tool_of(answer, base_url).call({"command": "view", "path": "/memories"}))
            self.assertIn(reached, raised.exception.message)
            self.assertTrue(raised.exception.message.endswith(f": write {instead} as `base_url`"), raised.exception)
        for closed in ["", "EOF occurred in violation of protocol", "[Errno 104] Connection reset by peer"]:
            tool = self.tool_of(failing(httpx2.ConnectError(closed)), "https://h:1")
            told = self.assertRaisesRegex(KeepsakeError, "if the port is one without TLS, write http://h:1 as")
            with mock.patch.object(_calls, "ATTEMPTS", 1), told:
                await do(tool.call({"command": "view", "path": "/memories"}))
        for unsent, told in [
            (httpx2.PoolTimeout(""), "all connections of the client are in use: PoolTimeout$"),
            (httpx2.ProxyError("403 Forbidden"), "the server cannot be reached: 403 Forbidden$"),
        ]:
            with mock.patch.object(_calls, "ATTEMPTS", 1), self.assertRaisesRegex(KeepsakeError, told):
                await do(self.tool_of(failing(unsent)).call({"command": "view", "path": "/memories"}))
        with self.assertRaisesRegex(KeepsakeError, "; check that http://hostile is the URL of a Keepsake server"):
            await do(self.tool_of(lambda _: page).call({"command": "view", "path": "/memories"}))
        for location in ["http://[bad/x", "//["]:
            with self.assertRaisesRegex(KeepsakeError, "a redirect to nowhere: is `base_url` a Keepsake server"):
                await do(self.tool_of(moved(location)).call({"command": "view", "path": "/memories"}))
        for base_url, told in [
            ("h:1", "begin with http:// or https://, not 'h:1': write http://h:1, or https://h:1 for a port with TLS"),
            ("http://u:p@h/k?a", "`base_url` must have no credentials, query and fragment: write http://h/k"),
            ("http://h?", "query and fragment: write http://h"),
            ("http://h#", "query and fragment: write http://h"),
            ("http://h:http", "its port as a number"),
        ]:
            with self.assertRaises(ValueError) as raised:
                self.tool_of(None, base_url)
            self.assertIn(told, str(raised.exception))

    async def test_credential_that_no_header_takes_is_not_printed(self):
        for api_key in ["secret\nx", "secret\u00e9", "secret x"]:
            with self.assertRaisesRegex(ValueError, "^`api_key` must be an API key or token: ASCII") as raised:
                self.tool_class(base_url="http://h", api_key=api_key, memory_store_id=STORE)
            self.assertNotIn("secret", repr(raised.exception))

    async def test_list_without_an_end_ends(self):
        def same(_):
            return httpx2.Response(200, json={"data": [{"id": "mem_1"}], "next_page": "same"})

        names = iter(range(1_000_000))

        def empty(_):
            return httpx2.Response(200, json={"data": [], "next_page": f"page_{next(names)}"})

        for answer, reason in [(same, "for the second time"), (empty, "the list has no end")]:
            with self.assertRaises(KeepsakeError) as raised:
                await do(self.tool_of(answer).clear_all_memory())
            self.assertIn(reason, raised.exception.message)
        self.assertEqual(next(names), _calls.MAX_EMPTY_PAGES + 1)


class WithTheSyncTool(Bounds, WithSync, ToolTests):
    pass


class WithTheAsyncTool(Bounds, WithAsync, ToolTests):
    pass


if __name__ == "__main__":
    unittest.main()
