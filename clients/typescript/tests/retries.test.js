// Requests whose outcome is unknown: the same request is sent again, and its change is made once.

import assert from "node:assert/strict";
import { test } from "node:test";

import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { KeepsakeAPIError, KeepsakeConnectionError, KeepsakeMemoryTool, ToolError, memoryTool } from "@keepsake/memory";

import { CUT, LOST, Proxy, SILENT, UNAVAILABLE } from "../../../tests/sdk/typescript/support.js";
import { DONE, callsOf } from "./messages_stub.js";
import { filesOf, newStore, rejection, runTool, toolOf, versionCount } from "./support.js";

const PATH = "/memories/notes.md";
const INSERT = /** @type {const} */ ({ command: "insert", path: PATH, insert_line: 0, insert_text: "new" });
const VIEW = /** @type {const} */ ({ command: "view", path: PATH });
const EDITED = `The file ${PATH} has been edited.`;

/**
 * @param {number} status
 * @param {Record<string, string>} headers
 */
const refusal = (status, headers = {}) => ({
  status,
  headers,
  body: JSON.stringify({ type: "error", error: { type: "some_error", message: "for a reason" }, request_id: "req_1" }),
});

/**
 * A store with one file, and a tool that reaches it through a proxy.
 * @param {import("node:test").TestContext} t
 * @param {import("@keepsake/memory").KeepsakeMemoryToolOptions} options
 */
async function spoilt(t, options = {}) {
  const proxy = await Proxy.open(t);
  const store = await newStore();
  await toolOf(store).create({ command: "create", path: PATH, file_text: "old\n" });
  return { proxy, store, tool: toolOf(store, { baseURL: proxy.url, ...options }) };
}

/**
 * Checks that all requests were equal, and that the change was made once.
 * @param {Proxy} proxy
 * @param {string} store
 * @param {number} requests
 */
async function assertMadeOnce(proxy, store, requests) {
  const sent = proxy.sent();
  assert.equal(sent.length, requests);
  for (const { body, headers } of sent) {
    assert.equal(body, sent[0]?.body);
    assert.equal(headers["idempotency-key"], sent[0]?.headers["idempotency-key"]);
    assert.ok(JSON.parse(body).id ?? headers["idempotency-key"], "neither an id nor a key");
  }
  assert.deepEqual(await filesOf(store), { "/notes.md": "new\nold\n" });
  assert.equal(await versionCount(store), 2);
}

/**
 * Each way to call the tool.
 * @type {Record<string, (t: import("node:test").TestContext, tool: KeepsakeMemoryTool) => Promise<void>>}
 */
const WAYS = {
  "a method": async (_, tool) => assert.equal(await tool.insert(INSERT), EDITED),
  "execute of the Vercel AI SDK": async (_, tool) =>
    assert.equal(await tool.execute(INSERT, { toolCallId: "toolu_1" }), EDITED),
  handle: async (_, tool) =>
    assert.deepEqual(await tool.handle({ id: "toolu_1", name: "memory", input: INSERT }), {
      type: "tool_result",
      tool_use_id: "toolu_1",
      content: EDITED,
      is_error: false,
    }),
  "betaMemoryTool in the tool runner": (t, tool) => runs(t, betaMemoryTool(tool)),
  "memoryTool in the tool runner": (t, tool) => runs(t, memoryTool(tool)),
};

/**
 * @param {import("node:test").TestContext} t
 * @param {import("@anthropic-ai/sdk/lib/tools/BetaRunnableTool").BetaRunnableTool} tool
 */
async function runs(t, tool) {
  const [result] = await runTool(t, tool, [callsOf([INSERT]), DONE]);
  assert.equal(result?.content, EDITED);
}

for (const [way, call] of Object.entries(WAYS)) {
  test(`a lost answer does not repeat the change of ${way}`, async (t) => {
    const { proxy, store, tool } = await spoilt(t);
    proxy.spoil([LOST, CUT, UNAVAILABLE]);
    await call(t, tool);
    assert.deepEqual(proxy.seen(), [["POST", 200], ["POST", 200], ["POST", null], ["POST", 200]]);
    await assertMadeOnce(proxy, store, 4);
  });
}

test("a request that takes too long is sent again", async (t) => {
  const { proxy, store, tool } = await spoilt(t, { attemptTimeoutMs: 1000 });
  proxy.spoil([SILENT]);
  assert.equal(await tool.insert(INSERT), EDITED);
  // On a slow machine, later attempts may take too long as well.
  const requests = proxy.sent().length;
  assert.ok(requests >= 2);
  await assertMadeOnce(proxy, store, requests);
});

test("each call has its own key, and so has each block", async (t) => {
  const { proxy, store, tool } = await spoilt(t);
  await tool.insert(INSERT);
  await tool.insert(INSERT);
  const handled = (/** @type {string} */ id) => tool.handle({ id, name: "memory", input: INSERT });
  await handled("toolu_1");
  await handled("toolu_2");
  await handled("toolu_1");
  const keys = proxy.sent().map(({ body, headers }) => JSON.parse(body).id ?? headers["idempotency-key"]);
  assert.equal(new Set(keys).size, 4);
  assert.equal((await filesOf(store))["/notes.md"], "new\nnew\nnew\nnew\nold\n");
});

test("another process can run a block again", async (t) => {
  const { store } = await spoilt(t);
  const block = callsOf([INSERT]);
  for (const tool of [toolOf(store), toolOf(store)]) {
    const [result] = await runTool(t, memoryTool(tool), [block, DONE]);
    assert.equal(result?.content, EDITED);
  }
  assert.equal((await filesOf(store))["/notes.md"], "new\nold\n");
});

for (const status of [408, 429, 500, 502, 503, 504, 529]) {
  test(`status ${status} is retried, unless the server says that this is useless`, async (t) => {
    const { proxy, store, tool } = await spoilt(t);
    proxy.spoil([refusal(status)]);
    assert.equal(await tool.insert(INSERT), EDITED);
    await assertMadeOnce(proxy, store, 2);
    proxy.spoil([refusal(status, { "x-should-retry": "false" })]);
    const error = await rejection(tool.insert(INSERT));
    assert.ok(error instanceof KeepsakeAPIError);
    assert.deepEqual([error.status, error.attempts, proxy.sent().length], [status, 1, 1]);
  });
}

for (const status of [400, 401, 403, 404, 409, 413]) {
  test(`status ${status} is not retried`, async (t) => {
    const { proxy, tool } = await spoilt(t);
    proxy.spoil([refusal(status)]);
    const error = await rejection(tool.insert(INSERT));
    assert.ok(error instanceof KeepsakeAPIError);
    assert.deepEqual([error.status, error.type, error.requestId], [status, "some_error", "req_1"]);
    assert.equal(proxy.sent().length, 1);
  });
}

test("the server sets the least wait", async (t) => {
  const { proxy, store, tool } = await spoilt(t);
  proxy.spoil([refusal(429, { "retry-after": "0.5" })]);
  const start = performance.now();
  assert.equal(await tool.insert(INSERT), EDITED);
  assert.ok(performance.now() - start >= 490);
  await assertMadeOnce(proxy, store, 2);
  proxy.spoil([refusal(503, { "retry-after": new Date(Date.now() - 60_000).toUTCString() })]);
  assert.match(await tool.view(VIEW), /new/);
});

test("a wait beyond the total time ends the call at once", async (t) => {
  const { proxy, tool } = await spoilt(t, { totalTimeoutMs: 30_000 });
  for (const later of ["60", new Date(Date.now() + 60_000).toUTCString()]) {
    proxy.spoil([refusal(429, { "retry-after": later })]);
    const start = performance.now();
    const error = await rejection(tool.insert(INSERT));
    assert.deepEqual([error.status, error.attempts], [429, 1]);
    assert.ok(performance.now() - start < 15_000);
  }
});

test("attempts are bounded in number", async (t) => {
  const { proxy, tool } = await spoilt(t, { maxRetries: 2 });
  proxy.spoil(Array(9).fill(LOST));
  const error = await rejection(tool.insert(INSERT));
  assert.ok(error instanceof KeepsakeConnectionError);
  assert.deepEqual([error.attempts, error.status, proxy.sent().length], [3, undefined, 3]);
  assert.match(error.message, /^POST http:.*\/tool_calls: no answer: .*, after 3 attempts; the command may have been carried out$/);
  proxy.spoil([LOST]);
  const once = toolOf("memstore_1", { baseURL: proxy.url, maxRetries: 0 });
  assert.equal((await rejection(once.insert(INSERT))).attempts, 1);
});

test("attempts are bounded in time", async (t) => {
  const { proxy, tool } = await spoilt(t, { totalTimeoutMs: 2500, attemptTimeoutMs: 300, maxRetries: 1000 });
  proxy.spoil(Array(1000).fill(SILENT));
  const start = performance.now();
  const error = await rejection(tool.insert(INSERT));
  assert.ok(error instanceof KeepsakeConnectionError);
  assert.match(error.message, /no answer within \d+ ms/);
  assert.ok(error.attempts > 1 && error.attempts < 20, `${error.attempts} attempts`);
  assert.ok(performance.now() - start < 10_000);
});

test("an abort ends a call that waits for its answer or its next attempt", async (t) => {
  const { proxy, tool } = await spoilt(t);
  const reason = new Error("the user left");
  for (const fault of [SILENT, refusal(503, { "retry-after": "60" })]) {
    const controller = new AbortController();
    proxy.spoil([fault]);
    const call = tool.execute(INSERT, { toolCallId: "toolu_1", abortSignal: controller.signal });
    while (proxy.sent().length === 0) await new Promise(setImmediate);
    setImmediate(() => controller.abort(reason));
    assert.equal(await rejection(call), reason);
    assert.equal(proxy.sent().length, 1);
  }
  proxy.spoil([]);
  const signal = AbortSignal.abort(reason);
  assert.equal(await rejection(tool.handle({ id: "toolu_2", name: "memory", input: VIEW }, { signal })), reason);
  assert.deepEqual(proxy.sent(), []);
});

test("errors for the model are not retried", async (t) => {
  const { proxy, tool } = await spoilt(t);
  const error = await rejection(tool.view({ command: "view", path: "/memories/missing.md" }));
  assert.ok(error instanceof ToolError);
  assert.equal(error.content, "The path /memories/missing.md does not exist. Please provide a valid path.");
  assert.equal(proxy.sent().length, 1);
});
