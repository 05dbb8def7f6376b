"""A Messages API that plays a model; everything else in the tests is real.

As a program, it is a model that first views /memories, and then answers with the
text of its argument. It prints its URL and runs until its stdin ends.
"""

import functools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from anthropic import Anthropic


class MessagesStub:
    """A Messages API that answers each request with the next scripted reply."""

    def __init__(self, replies):
        self.replies = list(replies)
        self.requests = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.requests.append(body)
                reply = json.dumps(stub.reply()).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @functools.cached_property
    def client(self):
        return Anthropic(base_url=self.url, api_key="stub", max_retries=0)

    def content(self):
        return self.replies[len(self.requests) - 1]

    def reply(self):
        content = self.content()
        calls_tools = any(block["type"] == "tool_use" for block in content)
        return {
            "id": f"msg_{len(self.requests):02}",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": content,
            "stop_reason": "tool_use" if calls_tools else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def tool_results(self):
        """Every tool result that the stub was sent, in order, once."""
        found = {}
        for request in self.requests:
            for message in request["messages"]:
                if message["role"] == "user" and not isinstance(message["content"], str):
                    for block in message["content"]:
                        assert block["type"] == "tool_result", block
                        known = found.setdefault(block["tool_use_id"], block)
                        assert known == block, "a result changed from request to request"
        return list(found.values())


class ViewingStub(MessagesStub):
    """Views /memories in each conversation, and then answers with a text."""

    def __init__(self, text):
        super().__init__([])
        self.text = text

    def content(self):
        last = self.requests[-1]["messages"][-1]["content"]
        if isinstance(last, str) or all(block["type"] != "tool_result" for block in last):
            return calls({"command": "view", "path": "/memories"}, start=len(self.requests))
        return [{"type": "text", "text": self.text}]


def calls(*inputs, start):
    """A reply that calls the memory tool with each input."""
    return [
        {"type": "tool_use", "id": f"toolu_{start + n:02}", "name": "memory", "input": input}
        for n, input in enumerate(inputs)
    ]


if __name__ == "__main__":
    print(ViewingStub(sys.argv[1]).url, flush=True)
    sys.stdin.read()
