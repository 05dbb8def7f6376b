// The tool in harnesses: the SDK's runner, the Vercel AI SDK, a loop written by hand, sessions.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import Anthropic from "@anthropic-ai/sdk";
import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { KeepsakeMemoryTool, memoryTool } from "@keepsake/memory";
import { generateText, stepCountIs } from "ai";

import { API_KEY, BASE_URL, anotherKey, clientWith } from "../../../tests/sdk/typescript/support.js";
import { DONE, MessagesStub, callsOf } from "./messages_stub.js";
import { MODEL, filesOf, newStore, rejection, runTool, stores, toolOf } from "./support.js";

const PATH = "/memories/process.md";
const COMMANDS = /** @type {const} */ ([
  { command: "create", path: PATH, file_text: "Build.\n" },
  { command: "view", path: PATH },
  { command: "str_replace", path: PATH, old_str: "Build.", new_str: "Tag." },
  { command: "insert", path: PATH, insert_line: 1, insert_text: "Build." },
  { command: "rename", old_path: PATH, new_path: "/memories/release.md" },
  { command: "delete", path: PATH },
]);
/** The text of each, and whether it is an error. */
const RESULTS = [
  [`File created successfully at: ${PATH}`, false],
  [`Here's the content of ${PATH} with line numbers:\n     1\tBuild.\n     2\t`, false],
  [
    "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\tTag.\n     2\t",
    false,
  ],
  [`The file ${PATH} has been edited.`, false],
  [`Successfully renamed ${PATH} to /memories/release.md`, false],
  [`Error: The path ${PATH} does not exist`, true],
];
const REPLIES = [...COMMANDS.map((command) => callsOf([command])), DONE];

/** @param {import("./messages_stub.js").Result[]} results */
const texts = (results) => results.map(({ content, is_error }) => [content, is_error ?? false]);

/** @param {string} store */
async function assertReleaseNotes(store) {
  assert.deepEqual(await filesOf(store), { "/release.md": "Tag.\nBuild.\n" });
}

test("every command is a method", async () => {
  const store = await newStore();
  const tool = toolOf(store);
  const [create, view, replace, insert, rename, remove] = COMMANDS;
  assert.equal(await tool.create(create), RESULTS[0]?.[0]);
  assert.equal(await tool.view(view), RESULTS[1]?.[0]);
  assert.equal(await tool.str_replace(replace), RESULTS[2]?.[0]);
  assert.equal(await tool.insert(insert), RESULTS[3]?.[0]);
  assert.equal(await tool.rename(rename), RESULTS[4]?.[0]);
  const error = await rejection(tool.delete(remove));
  assert.deepEqual([error.name, error.content, String(error)], ["ToolError", RESULTS[5]?.[0], RESULTS[5]?.[0]]);
  const unpaired = await rejection(tool.create({ ...create, file_text: "bad \ud83d end" }));
  assert.match(unpaired.content, /^Error: Field `file_text` has a character that is not valid Unicode/);
  await assertReleaseNotes(store);
  await tool.delete({ command: "delete", path: "/memories/release.md" });
  assert.deepEqual(await filesOf(store), {});
});

for (const [name, make] of Object.entries({ betaMemoryTool, memoryTool })) {
  test(`the SDK's runner runs ${name}`, async (t) => {
    const store = await newStore();
    assert.deepEqual(texts(await runTool(t, make(toolOf(store)), REPLIES)), RESULTS);
    await assertReleaseNotes(store);
  });
}

test("calls of one reply run at once, and each has its result", async (t) => {
  const store = await newStore();
  const inputs = Array.from({ length: 10 }, (_, at) => ({
    command: "create",
    path: `/memories/${at}.md`,
    file_text: String(at),
  }));
  const results = await runTool(t, memoryTool(toolOf(store)), [callsOf(inputs), DONE]);
  assert.deepEqual(
    results.map(({ content }) => content),
    inputs.map(({ path }) => `File created successfully at: ${path}`),
  );
  assert.equal(Object.keys(await filesOf(store)).length, 10);
});

test("other members of the tool are not commands", async (t) => {
  const store = await newStore();
  const inputs = ["handle", "execute", "constructor"].map((command) => ({ ...COMMANDS[0], command }));
  const results = await runTool(t, betaMemoryTool(toolOf(store)), [callsOf(inputs), DONE]);
  assert.deepEqual(results.map(({ is_error }) => is_error), [true, true, true]);
  assert.deepEqual(await filesOf(store), {});
});

test("the tool's definition takes additional properties", () => {
  const tool = memoryTool(toolOf("memstore_1"), { cache_control: { type: "ephemeral" } });
  const { run, parse, ...definition } = tool;
  assert.deepEqual(definition, { type: "memory_20250818", name: "memory", cache_control: { type: "ephemeral" } });
});

test("a failure of the server reaches the model as an error", async (t) => {
  const tool = toolOf(await newStore(), { apiKey: anotherKey("READER") });
  const [view, create] = await runTool(t, memoryTool(tool), [
    callsOf([{ command: "view", path: "/memories" }, COMMANDS[0]]),
    DONE,
  ]);
  assert.equal(view?.is_error, undefined);
  assert.equal(create?.is_error, true);
  assert.match(create?.content, /^Error: POST .*: 403 permission_error: .*memory:write/);
});

test("the Vercel AI SDK executes the tool", async (t) => {
  const store = await newStore();
  const stub = await MessagesStub.open(t, REPLIES);
  const anthropic = createAnthropic({ baseURL: `${stub.url}/v1`, apiKey: "stub" });
  const { text, steps } = await generateText({
    model: anthropic(MODEL),
    prompt: "Go on.",
    tools: { memory: anthropic.tools.memory_20250818({ execute: toolOf(store).execute }) },
    stopWhen: stepCountIs(REPLIES.length),
    maxRetries: 0,
  });
  assert.deepEqual([text, steps.length], ["Done.", REPLIES.length]);
  assert.deepEqual(stub.requests[0].tools, [{ type: "memory_20250818", name: "memory" }]);
  assert.deepEqual(texts(stub.results()), RESULTS);
  await assertReleaseNotes(store);
});

test("handle answers the blocks of a loop written by hand", async (t) => {
  const store = await newStore();
  const { handle } = toolOf(store);
  const stub = await MessagesStub.open(t, REPLIES);
  const client = new Anthropic({ baseURL: stub.url, apiKey: "stub", maxRetries: 0 });
  /** @type {Anthropic.Beta.BetaMessageParam[]} */
  const messages = [{ role: "user", content: "Go on." }];
  for (;;) {
    const reply = await client.beta.messages.create({
      model: MODEL,
      max_tokens: 1000,
      messages,
      tools: [{ type: "memory_20250818", name: "memory" }],
    });
    messages.push({ role: "assistant", content: reply.content });
    const calls = reply.content.filter((block) => block.type === "tool_use");
    if (calls.length === 0) break;
    messages.push({ role: "user", content: await Promise.all(calls.map((block) => handle(block))) });
  }
  assert.deepEqual(texts(stub.results()), RESULTS);
  await assertReleaseNotes(store);
});

test("handle carries out agent tools", async () => {
  const store = await newStore();
  const tool = toolOf(store);
  const input = { path: PATH, content: "Build.\n" };
  const written = await tool.handle({ id: "toolu_1", name: "memory_write", input });
  assert.deepEqual([written.tool_use_id, written.is_error], ["toolu_1", false]);
  const found = await tool.handle({ id: "toolu_2", name: "memory_search", input: { query: "build" } });
  assert.ok(found.content.includes(PATH), found.content);
  const unknown = await tool.handle({ id: "toolu_3", name: "weather", input: {} });
  assert.equal(unknown.is_error, true);
});

test("a session's token reaches the stores of the session", async (t) => {
  const client = clientWith();
  const [notes, rules] = [await newStore(), (await stores.create({ name: "Team rules" })).id];
  const session = await client.beta.sessions.create({
    agent: "agent_1",
    environment_id: "env_1",
    resources: [
      { type: "memory_store", memory_store_id: notes },
      { type: "memory_store", memory_store_id: rules, access: "read_only" },
    ],
  });
  const tool = KeepsakeMemoryTool.fromSession(session, { baseURL: BASE_URL });
  const results = await runTool(t, memoryTool(tool), [
    callsOf([{ command: "view", path: "/memories" }]),
    callsOf([{ command: "create", path: "/memories/notes/a.md", file_text: "a" }]),
    callsOf([{ command: "create", path: "/memories/team-rules/a.md", file_text: "a" }]),
    DONE,
  ]);
  assert.match(results[0]?.content, /\/memories\/notes\/\n.*\/memories\/team-rules\/$/);
  assert.equal(results[1]?.is_error, undefined);
  assert.equal(results[2]?.is_error, true);
  assert.deepEqual([await filesOf(notes), await filesOf(rules)], [{ "/a.md": "a" }, {}]);

  const withKey = new KeepsakeMemoryTool({ baseURL: BASE_URL, apiKey: API_KEY, sessionId: session.id });
  assert.match(await withKey.view({ command: "view", path: "/memories/notes" }), /a\.md/);
  const retrieved = await client.beta.sessions.retrieve(session.id);
  for (const without of [retrieved, { id: session.id, token: null }]) {
    assert.throws(() => KeepsakeMemoryTool.fromSession(without, { baseURL: BASE_URL }), {
      name: "TypeError",
      message: new RegExp(`^session.token is missing: .* POST /v1/sessions/${session.id}/token$`),
    });
  }
  await client.beta.sessions.archive(session.id);
  const ended = await rejection(tool.view({ command: "view", path: "/memories" }));
  assert.equal(ended.name, "KeepsakeAPIError");
});

test("CommonJS has the same exports, and its errors are those of the SDK's CommonJS", async (t) => {
  const require = createRequire(import.meta.url);
  /** @type {typeof import("@keepsake/memory")} */
  const common = require("@keepsake/memory");
  assert.deepEqual(Object.keys(common).sort(), Object.keys(await import("@keepsake/memory")).sort());
  assert.notEqual(common.KeepsakeMemoryTool, KeepsakeMemoryTool);
  const tool = new common.KeepsakeMemoryTool({ baseURL: BASE_URL, apiKey: API_KEY, memoryStoreId: await newStore() });
  const stub = await MessagesStub.open(t, REPLIES);
  /** @type {typeof Anthropic} */
  const CommonAnthropic = require("@anthropic-ai/sdk");
  await new CommonAnthropic({ baseURL: stub.url, apiKey: "stub" }).beta.messages.toolRunner({
    model: MODEL,
    max_tokens: 1000,
    messages: [{ role: "user", content: "Go on." }],
    tools: [common.memoryTool(tool)],
  });
  assert.deepEqual(texts(stub.results()), RESULTS);
});
