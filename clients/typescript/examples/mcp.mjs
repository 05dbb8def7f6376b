// An agent that reaches its memory over MCP, with the MCP SDK's client and the official SDK's tool runner.
// It needs no part of this package.

import Anthropic from "@anthropic-ai/sdk";
import { mcpTools } from "@anthropic-ai/sdk/helpers/beta/mcp";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";

const { KEEPSAKE_URL, KEEPSAKE_API_KEY, KEEPSAKE_STORE } = process.env;
const mcp = new Client({ name: "agent", version: "1" });
await mcp.connect(
  new StreamableHTTPClientTransport(new URL(`${KEEPSAKE_URL}/mcp/${KEEPSAKE_STORE}`), {
    requestInit: { headers: { "x-api-key": KEEPSAKE_API_KEY ?? "" } },
  }),
);
const { tools } = await mcp.listTools();
const answer = await new Anthropic().beta.messages.toolRunner({
  model: process.env.MODEL ?? "",
  max_tokens: 2048,
  messages: [{ role: "user", content: "What do you remember about our release process?" }],
  tools: mcpTools(tools, { callTool: async (call) => CallToolResultSchema.parse(await mcp.callTool(call)) }),
});
for (const block of answer.content) if (block.type === "text") console.log(block.text);
await mcp.close();
