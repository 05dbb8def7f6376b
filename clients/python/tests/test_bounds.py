"""Answers and lists of a hostile server."""

import unittest

import httpx2
from keepsake_memory import KeepsakeError, _calls
from tools import ToolTests, WithAsync, WithSync, do

PART = b" " * (64 << 10)
STORE = "memstore_00000000000000000000000001"


class Bounds:
    def tool_of(self, answer):
        """A tool whose requests get these answers."""
        client = httpx2.Client if self.tool_class is WithSync.tool_class else httpx2.AsyncClient
        http_client = client(transport=httpx2.MockTransport(answer))
        return self.tool_class(
            base_url="http://hostile", api_key="key", memory_store_id=STORE, http_client=http_client
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
