"""The official SDK's tool runner with Keepsake behind the memory tool.

The Messages API is a stub in this process that plays a scripted model: each of
its replies calls the tool `memory`. The real SDK runs the loop, in the two ways
that an application has:

1. a tool class whose `call` sends the bare input to Keepsake, and
2. the application's own handling of each reply, which sends whole `tool_use`
   blocks and appends Keepsake's `tool_result` blocks as they are.

Needs KEEPSAKE_BASE_URL, KEEPSAKE_API_KEY and KEEPSAKE_WORKSPACE_ID; prints the
id of the memory store that it made.
"""

import os

from anthropic import Anthropic, NotFoundError
from anthropic.lib.tools import BetaBuiltinFunctionTool, ToolError

from fakes import MessagesStub, calls

MEMORY_TOOL = {"type": "memory_20250818", "name": "memory"}
FILE = "/memories/preferences.md"


class Keepsake:
    """One memory store, through the SDK's own client."""

    def __init__(self):
        self.client = Anthropic(
            base_url=os.environ["KEEPSAKE_BASE_URL"], api_key=os.environ["KEEPSAKE_API_KEY"], max_retries=0
        )
        store = self.client.beta.memory_stores.create(name="SDK", metadata={"made_by": "the SDK"})
        assert store.type == "memory_store" and store.metadata == {"made_by": "the SDK"}, store
        assert self.client.beta.memory_stores.retrieve(store.id) == store
        self.store_id = store.id
        self.answers = []

    def tool_call(self, body):
        """Posts a block or a bare input; returns the result block."""
        response = self.client.post(
            f"/v1/memory_stores/{self.store_id}/tool_calls", body=body, cast_to=object
        )
        self.answers.append(response)
        return response


class KeepsakeMemoryTool(BetaBuiltinFunctionTool):
    """The memory tool, carried out by Keepsake."""

    def __init__(self, keepsake):
        self.keepsake = keepsake

    def to_dict(self):
        return MEMORY_TOOL

    def call(self, input):
        result = self.keepsake.tool_call(input)
        if result["is_error"]:
            raise ToolError(result["content"])
        return result["content"]


DONE = [{"type": "text", "text": "Done."}]


def run_with_a_tool_class(keepsake):
    stub = MessagesStub(
        [
            calls({"command": "view", "path": "/memories"}, start=0),
            calls(
                {"command": "create", "path": FILE, "file_text": "Likes coffee.\n"},
                {"command": "view", "path": "/memories/missing.md"},
                start=1,
            ),
            calls({"command": "str_replace", "path": FILE, "old_str": "coffee", "new_str": "tea"}, start=3),
            DONE,
        ]
    )
    runner = stub.client.beta.messages.tool_runner(
        model="claude-test",
        max_tokens=1000,
        thread=False,  # each request holds the whole conversation
        messages=[{"role": "user", "content": "Remember what I like."}],
        tools=[KeepsakeMemoryTool(keepsake)],
    )
    final = runner.until_done()
    assert final.content[0].text == "Done.", final
    assert len(stub.requests) == 4, stub.requests
    for request in stub.requests:
        assert request["tools"] == [MEMORY_TOOL], request["tools"]

    results = stub.tool_results()
    assert [result["content"] for result in results] == [answer["content"] for answer in keepsake.answers]
    assert [result.get("is_error", False) for result in results] == [False, False, True, False]
    assert [result["content"] for result in results] == [
        "Here're the files and directories up to 2 levels deep in /memories, "
        "excluding hidden items and node_modules:\n0B\t/memories",
        f"File created successfully at: {FILE}",
        "The path /memories/missing.md does not exist. Please provide a valid path.",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\tLikes tea.\n     2\t",
    ]


def run_with_whole_blocks(keepsake):
    insert = {"command": "insert", "path": FILE, "insert_line": 1, "insert_text": "Lives in Garmisch."}
    stub = MessagesStub(
        [
            calls(insert, {"command": "insert", "path": FILE, "insert_line": 9, "insert_text": "x"}, start=10),
            calls({"command": "view", "path": FILE}, start=12),
            DONE,
        ]
    )
    already = len(keepsake.answers)
    runner = stub.client.beta.messages.tool_runner(
        model="claude-test",
        max_tokens=1000,
        thread=False,  # each request holds the whole conversation
        messages=[{"role": "user", "content": "Remember where I live."}],
        tools=[MEMORY_TOOL],
    )
    for message in runner:
        blocks = [block.to_dict() for block in message.content if block.type == "tool_use"]
        if not blocks:
            break
        results = [keepsake.tool_call(block) for block in blocks]
        # A harness that lost the answer sends the block again; it is applied once.
        assert [keepsake.tool_call(block) for block in blocks] == results
        del keepsake.answers[-len(blocks) :]
        runner.append_messages(message, {"role": "user", "content": results})

    assert stub.tool_results() == keepsake.answers[already:]
    assert [result["tool_use_id"] for result in stub.tool_results()] == ["toolu_10", "toolu_11", "toolu_12"]
    assert [result["is_error"] for result in stub.tool_results()] == [False, True, False]
    assert stub.tool_results()[2]["content"].endswith("     1\tLikes tea.\n     2\tLives in Garmisch.\n     3\t")
    assert len(stub.requests) == 3, stub.requests


def check_errors_and_headers(keepsake):
    try:
        keepsake.client.beta.memory_stores.retrieve("memstore_00000000000000000000000001")
    except NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error", error.body
        assert error.request_id == error.body["request_id"], error.request_id
    else:
        raise AssertionError("a store that is nowhere was found")
    raw = keepsake.client.beta.memory_stores.with_raw_response.retrieve(keepsake.store_id)
    assert raw.headers["anthropic-workspace-id"] == os.environ["KEEPSAKE_WORKSPACE_ID"], raw.headers
    assert raw.request_id.startswith("req_"), raw.headers


def main():
    keepsake = Keepsake()
    run_with_a_tool_class(keepsake)
    run_with_whole_blocks(keepsake)
    check_errors_and_headers(keepsake)
    print(f"memory store: {keepsake.store_id}")


if __name__ == "__main__":
    main()
