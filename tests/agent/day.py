"""Two days of an agent with memory. The transcript is docs/example-session.md.

The agent is a script; the server is real, at KEEPSAKE_URL with KEEPSAKE_API_KEY.
The transcript contains no ids, times or ports, so that it is the same each time.
--write FILE writes it to a file.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import textwrap

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["KEEPSAKE_URL"]
KEY = os.environ["KEEPSAKE_API_KEY"]

HANDBOOK = {
    "/deploys.md": "# Deploys\n\nThe checkout service is deployed on Tuesdays and Thursdays, before noon.\n"
    "Roll back with `shipctl rollback checkout`.\n",
    "/oncall.md": "# On call\n\nWho is on call is in the calendar `payments-oncall`. Page with severity 2 or worse.\n",
}

CHANGING = [
    (re.compile(r"\b(memstore|mem|memver|sesn|sesrsc|req|toolu)_[0-9A-HJKMNP-TV-Z]{26}\b"), r"\1_…"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "2026-…Z"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "eyJ…"),
    (re.compile(r"page_[\w-]+"), "page_…"),
    (re.compile(re.escape(URL)), "https://keepsake.example.com"),
]


class Transcript:
    def __init__(self):
        self.text = ""

    def say(self, text):
        self.text += textwrap.dedent(text).strip() + "\n\n"

    def show(self, kind, value):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        for pattern, constant in CHANGING:
            shown = pattern.sub(constant, shown)
        self.text += f"```{kind}\n{shown.rstrip()}\n```\n\n"


class Agent:
    """The harness of one session."""

    def __init__(self, transcript, session):
        self.transcript = transcript
        self.id, self.token = session["id"], session["token"]
        self.http = client(self.token)
        self.calls = 0

    def tool(self, name, refused=False, **given):
        """Sends a block as a model writes it, and shows the result."""
        self.calls += 1
        block = {"type": "tool_use", "id": f"toolu_{self.calls:02}", "name": name, "input": given}
        answer = self.http.post(f"/v1/sessions/{self.id}/tool_calls", json=block)
        assert answer.status_code == 200, answer.text
        result = answer.json()
        assert result["is_error"] == refused, result
        self.transcript.show("json", {"name": name, "input": given})
        self.transcript.show("text", result["content"])
        return result["content"]


def client(credential):
    headers = {"authorization": f"Bearer {credential}"}
    return httpx2.Client(base_url=URL, headers=headers, timeout=30, trust_env=False)


def made(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


def begin(transcript, api, stores, title):
    handbook, project = stores
    session = made(
        api.post(
            "/v1/sessions",
            json={
                "agent": "agent_checkout",
                "environment_id": "env_checkout",
                "title": title,
                "resources": [
                    {
                        "type": "memory_store",
                        "memory_store_id": project,
                        "instructions": "Keep progress.md current, with finished and next steps.",
                    },
                    {"type": "memory_store", "memory_store_id": handbook, "access": "read_only"},
                ],
            },
        )
    )
    return Agent(transcript, session), session


async def over_mcp(agent, work):
    http = httpx2.AsyncClient(
        headers={"authorization": f"Bearer {agent.token}"}, timeout=30, trust_env=False
    )
    async with Client(streamable_http_client(f"{URL}/mcp", http_client=http)) as server:
        await work(server)


def text_of(result):
    assert not result.is_error, result
    return result.content[0].text


def morning(agent):
    t = agent.transcript
    t.say("## Morning: the memory tool\n\nThe agent first looks at its memory, as the system prompt says.")
    shown = agent.tool("memory", command="view", path="/memories")
    assert "/memories/team-handbook/deploys.md" in shown
    agent.tool("memory", command="view", path="/memories/team-handbook/deploys.md")
    t.say("There is nothing about the project yet. Before it starts, the agent writes down its task.")
    progress = "/memories/checkout-service/progress.md"
    agent.tool(
        "memory",
        command="create",
        path=progress,
        file_text="# Card payments time out\n\n- [ ] find out which network\n- [ ] fix it\n- [ ] deploy\n",
    )
    t.say("An hour later, the agent knows more.")
    agent.tool(
        "memory",
        command="str_replace",
        path=progress,
        old_str="- [ ] find out which network",
        new_str="- [x] find out which network: only Girocard, through the `paygate-eu` proxy",
    )
    agent.tool(
        "memory",
        command="insert",
        path=progress,
        insert_line=3,
        insert_text="      `proxy_read_timeout` is 3 s there, and Girocard takes up to 8 s",
    )
    t.say("The handbook is wrong about the rollback, but the agent may not change it.")
    agent.tool(
        "memory",
        refused=True,
        command="str_replace",
        path="/memories/team-handbook/deploys.md",
        old_str="shipctl rollback checkout",
        new_str="shipctl undo checkout",
    )


def midday(agent):
    t = agent.transcript
    t.say("## Midday: the agent tools\n\nThe same files, with tools that any agent can use.")
    found = agent.tool("memory_search", query="on which days do we deploy checkout?", limit=2)
    assert "/memories/team-handbook/deploys.md" in found
    agent.tool(
        "memory_write",
        path="/memories/checkout-service/decisions/0001-timeouts.md",
        content="# Timeouts by network\n\nEach card network has a separate timeout.\nGirocard: 10 s. Others: 3 s.\n",
        precondition={"type": "not_exists"},
    )
    agent.tool(
        "memory_edit",
        path="/memories/checkout-service/progress.md",
        edits=[
            {"old_str": "- [ ] fix it", "new_str": "- [x] fix it: see decisions/0001-timeouts.md"},
            {"old_str": "- [ ] deploy", "new_str": "- [ ] deploy: on Thursday, before noon"},
        ],
    )
    agent.tool("memory_list", path_prefix="/memories/checkout-service")


async def afternoon(agent):
    t = agent.transcript
    t.say("## Afternoon: MCP\n\nA desktop client continues, with the session's token at `/mcp`.")

    async def work(server):
        tools = sorted(tool.name for tool in (await server.list_tools()).tools)
        t.say("`tools/list`:")
        t.show("text", "\n".join(tools))
        append = {
            "path": "/memories/checkout-service/progress.md",
            "content": "Waiting for review by Ines; she asked for a metric `girocard_wait_seconds` too.",
        }
        result = await server.call_tool("memory_append", append)
        t.say("`tools/call`:")
        t.show("json", {"name": "memory_append", "arguments": append})
        t.show("text", text_of(result))
        read = await server.read_resource("memory://checkout-service/progress.md")
        t.say("`resources/read` of `memory://checkout-service/progress.md`:")
        t.show("text", read.contents[0].text)

    await over_mcp(agent, work)


def evening(transcript, api, agent):
    transcript.say("## Evening\n\nThe session is archived, which ends its token.")
    made(api.post(f"/v1/sessions/{agent.id}/archive"))
    refused = agent.http.get(f"/v1/sessions/{agent.id}")
    assert refused.status_code == 401, refused.text
    transcript.show("json", {"status": refused.status_code, "error": refused.json()["error"]})


def next_day(transcript, api, stores):
    transcript.say(
        "## The next day\n\nThis is another session with an empty context window. The agent searches its memory."
    )
    agent, _ = begin(transcript, api, stores, "Tuesday")
    found = agent.tool("memory_search", query="which card network was timing out, and why?", limit=3)
    assert found.index("/memories/checkout-service/") >= 0
    read = agent.tool("memory_read", path="/memories/checkout-service/progress.md")
    for told in ["Girocard", "`proxy_read_timeout`", "before noon", "girocard_wait_seconds"]:
        assert told in read, told
    found = agent.tool("memory_search", query="decided timeouts", path_prefix="/memories/checkout-service/decisions")
    assert "0001-timeouts.md" in found
    events = made(agent.http.get(f"/v1/sessions/{agent.id}/events"))["data"]
    assert [event["name"] for event in events] == ["memory_search", "memory_read", "memory_search"]


def main():
    transcript = Transcript()
    api = client(KEY)
    stores = []
    for name, memories in [("Team handbook", HANDBOOK), ("Checkout service", {})]:
        store = made(api.post("/v1/memory_stores", json={"name": name}))["id"]
        for path, content in memories.items():
            made(api.post(f"/v1/memory_stores/{store}/memories", json={"path": path, "content": content}))
        stores.append(store)

    transcript.say(
        """
        # A day of an agent

        Requests of an agent and their results, from a run of `tests/agent/day.py` against a real server: one session with two
        memory stores, the team's handbook (read-only) and the store of the project, then a session on the next day. Ids and times
        are omitted.

        The harness creates a session and adds the `system_prompt` of the answer to the system prompt:
        """
    )
    agent, session = begin(transcript, api, stores, "Monday")
    transcript.show("text", session["system_prompt"])
    morning(agent)
    midday(agent)
    asyncio.run(afternoon(agent))
    evening(transcript, api, agent)
    next_day(transcript, api, stores)

    text = transcript.text.rstrip() + "\n"
    if sys.argv[1:2] == ["--write"]:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(text)


main()
