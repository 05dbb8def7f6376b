"""An agent with Keepsake's MCP server: python mcp_tools.py MODEL QUESTION

Needs `pip install anthropic[mcp]`. It does not need this package: with MCP, the
URL and a credential are enough.
"""

import asyncio
import os
import sys

import httpx2
from anthropic import AsyncAnthropic
from anthropic.lib.tools.mcp import async_mcp_tool
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(model: str, question: str) -> None:
    url = f"{os.environ['KEEPSAKE_URL']}/mcp/{os.environ['KEEPSAKE_STORE']}"
    headers = {"x-api-key": os.environ["KEEPSAKE_API_KEY"]}
    http = httpx2.AsyncClient(headers=headers)
    async with http, Client(streamable_http_client(url, http_client=http)) as keepsake:
        tools = (await keepsake.list_tools()).tools
        runner = AsyncAnthropic().beta.messages.tool_runner(
            model=model,
            max_tokens=2048,
            tools=[async_mcp_tool(tool, keepsake.session) for tool in tools],
            messages=[{"role": "user", "content": question}],
        )
        reply = await runner.until_done()
        for block in reply.content:
            if block.type == "text":
                print(block.text)


asyncio.run(main(*sys.argv[1:]))
