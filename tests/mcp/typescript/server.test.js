// Keepsake's MCP server, met with the official TypeScript client. The
// environment says where it is, as for the Python suite beside this one.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { KEEPSAKE_MCP_URL, KEEPSAKE_MCP_COMMAND, KEEPSAKE_API_KEY, KEEPSAKE_MCP_ROOT, KEEPSAKE_MCP_SLUG } = process.env;
const folder = `${KEEPSAKE_MCP_ROOT}/typescript`;

function httpTransport(headers) {
  return new StreamableHTTPClientTransport(new URL(KEEPSAKE_MCP_URL), { requestInit: { headers } });
}

function transport() {
  if (KEEPSAKE_MCP_COMMAND) {
    const [command, ...args] = JSON.parse(KEEPSAKE_MCP_COMMAND);
    const env = { ...process.env };
    delete env.KEEPSAKE_MCP_URL;
    const kept = Object.entries(env).filter(([name]) => !name.startsWith("KEEPSAKE_") || name === "KEEPSAKE_API_KEY");
    return new StdioClientTransport({ command, args, env: Object.fromEntries(kept) });
  }
  return httpTransport({ authorization: `Bearer ${KEEPSAKE_API_KEY}` });
}

const client = new Client({ name: "keepsake-tests", version: "1" });
before(() => client.connect(transport()));
after(() => client.close());

async function done(name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result;
}

test("server info and capabilities are sent", () => {
  assert.equal(client.getServerVersion().name, "keepsake");
  assert.deepEqual(Object.keys(client.getServerCapabilities()).sort(), ["prompts", "resources", "tools"]);
});

test("every tool works, and its result matches its schema", async () => {
  // The client checks structured results against the schemas that it has listed.
  const { tools } = await client.listTools();
  assert.ok(tools.every((tool) => tool.annotations.openWorldHint === false));
  const path = `${folder}/day.md`;
  await done("memory_write", { path, content: "one\n" });
  await done("memory_append", { path, content: "two" });
  await done("memory_edit", { path, edits: [{ old_str: "one", new_str: "1" }] });
  await done("memory", { command: "str_replace", path, old_str: "two", new_str: "2" });
  const read = await done("memory_read", { path });
  assert.equal(read.structuredContent.content, "1\n2\n");
  const list = await done("memory_list", { path_prefix: folder });
  assert.equal(list.structuredContent.entries[0].path, path);
  const found = await done("memory_search", { query: "day", path_prefix: folder });
  assert.equal(found.structuredContent.hits[0].path, path);
  await done("memory_delete", { path: folder });
});

test("correctable errors are results", async () => {
  const result = await client.callTool({ name: "memory_read", arguments: { path: `${folder}/none` } });
  assert.ok(result.isError);
  assert.match(result.content[0].text, /does not exist/);
  const text = { path: `${folder}/a`, content: "bad \ud83d end" };
  const refused = await client.callTool({ name: "memory_write", arguments: text });
  assert.ok(refused.isError);
  assert.match(refused.content[0].text, /`content` has a character that is not valid Unicode/);
});

test("memories are listed as resources in pages", async () => {
  const paths = Array.from({ length: 110 }, (_, number) => `${folder}/${number} ä.md`);
  await Promise.all(paths.map((path) => done("memory_write", { path, content: path })));
  const uris = [];
  let cursor;
  do {
    const page = await client.listResources({ cursor });
    uris.push(...page.resources.map((resource) => resource.uri));
    cursor = page.nextCursor;
  } while (cursor);
  const mine = uris.filter((uri) => uri.includes("/typescript/"));
  assert.equal(new Set(mine).size, paths.length);
  assert.ok(mine[0].startsWith(`memory://${KEEPSAKE_MCP_SLUG}/`));
  const { contents } = await client.readResource({ uri: mine[0] });
  assert.ok(paths.includes(contents[0].text));
  await assert.rejects(client.readResource({ uri: `memory://${KEEPSAKE_MCP_SLUG}/none` }));
  await done("memory_delete", { path: folder });
});

test("the prompt describes the protocol", async () => {
  const { prompts } = await client.listPrompts();
  assert.deepEqual(prompts.map((prompt) => prompt.name), ["memory_protocol"]);
  const { messages } = await client.getPrompt({ name: "memory_protocol", arguments: { topic: "tea" } });
  assert.match(messages[0].content.text, /tea$/);
});

test("a missing credential is refused", { skip: Boolean(KEEPSAKE_MCP_COMMAND) }, async () => {
  const stranger = new Client({ name: "stranger", version: "1" });
  await assert.rejects(stranger.connect(httpTransport({})));
});
