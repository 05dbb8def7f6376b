// Errors of settings, of the server, and of servers that are none.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createServer as createPort } from "node:net";
import { test } from "node:test";
import { inspect } from "node:util";

import { KeepsakeAPIError, KeepsakeConnectionError, KeepsakeError, KeepsakeMemoryTool } from "@keepsake/memory";

import { API_KEY, BASE_URL, NO_STORE, Proxy, anotherKey, id } from "../../../tests/sdk/typescript/support.js";
import { newStore, rejection, toolOf } from "./support.js";

const VIEW = /** @type {const} */ ({ command: "view", path: "/memories" });
const CREATE = /** @type {const} */ ({ command: "create", path: "/memories/a.md", file_text: "a" });
const SETTINGS = { baseURL: BASE_URL, apiKey: API_KEY, memoryStoreId: NO_STORE };
const VARIABLES = ["KEEPSAKE_URL", "KEEPSAKE_API_KEY", "KEEPSAKE_STORE"];

/**
 * Sets the client's variables for a test.
 * @param {import("node:test").TestContext} t
 * @param {string[]} values
 */
function setVariables(t, values) {
  const before = VARIABLES.map((name) => process.env[name]);
  const set = (/** @type {(string | undefined)[]} */ all) =>
    VARIABLES.forEach((name, at) => {
      if (all[at] === undefined) delete process.env[name];
      else process.env[name] = all[at];
    });
  t.after(() => set(before));
  set(values);
}

test("variables are the defaults of options", async (t) => {
  const store = await newStore();
  setVariables(t, [BASE_URL, `${API_KEY}\n`, store]);
  await new KeepsakeMemoryTool().create(CREATE);
  assert.match(await toolOf(store).view(VIEW), /a\.md/);
  const other = await newStore();
  assert.doesNotMatch(await new KeepsakeMemoryTool({ memoryStoreId: other }).view(VIEW), /a\.md/);
});

test("a missing setting is named with its variable", (t) => {
  setVariables(t, []);
  for (const [position, name] of Object.keys(SETTINGS).entries()) {
    for (const value of [undefined, ""]) {
      assert.throws(() => new KeepsakeMemoryTool({ ...SETTINGS, [name]: value }), {
        name: "TypeError",
        message: `${name} is missing: pass it, or set the variable ${VARIABLES[position]}`,
      });
    }
  }
});

test("an invalid setting is named with its rule", () => {
  /** @type {[Record<string, unknown>, RegExp][]} */
  const cases = [
    [{ baseURL: "localhost:8080" }, /^baseURL \(or KEEPSAKE_URL\) must be an .*: write http:\/\/localhost:8080, or https/],
    [{ baseURL: "keepsake" }, /^baseURL /],
    [{ baseURL: "https://user:secret@host" }, /^baseURL (?!.*secret)/],
    [{ baseURL: "https://host/?a=b" }, /^baseURL .*: write https:\/\/host$/],
    [{ apiKey: "ks_live_\nsecret" }, /^apiKey \(or KEEPSAKE_API_KEY\) must be (?!.*secret)/s],
    [{ apiKey: "schlüssel" }, /^apiKey /],
    [{ memoryStoreId: "notes" }, /^memoryStoreId \(or KEEPSAKE_STORE\) must be .* memstore_…, not "notes"$/],
    [{ memoryStoreId: "memstore_1/../.." }, /^memoryStoreId /],
    [{ sessionId: "sesn_1" }, /^memoryStoreId and sessionId exclude each other$/],
    [{ memoryStoreId: undefined, sessionId: "notes" }, /^sessionId must be a session's id, sesn_…, not "notes"$/],
    [{ maxRetries: -1 }, /^maxRetries must be a whole number of at least 0, and less than 2\^31, not -1$/],
    [{ attemptTimeoutMs: 0 }, /^attemptTimeoutMs must be a whole number of at least 1/],
    [{ totalTimeoutMs: Infinity }, /^totalTimeoutMs must be .* not Infinity$/],
  ];
  for (const [options, message] of cases) {
    assert.throws(() => new KeepsakeMemoryTool({ ...SETTINGS, ...options }), { name: "TypeError", message });
  }
});

test("a URL may have a path", async (t) => {
  const proxy = await Proxy.open(t);
  proxy.spoil([{ status: 200, body: '{"type":"tool_result","content":"text","is_error":false}' }]);
  const tool = new KeepsakeMemoryTool({ ...SETTINGS, baseURL: `${proxy.url}/keepsake//` });
  assert.equal(await tool.view(VIEW), "text");
  proxy.spoil([{ status: 404 }]);
  const error = await rejection(tool.view(VIEW));
  assert.equal(error.url, `${proxy.url}/keepsake/v1/memory_stores/${NO_STORE}/tool_calls`);
});

test("an error of the server has its URL, status, type, message and request id", async () => {
  const store = await newStore();
  /** @type {[string, object, number, string, string][]} */
  const cases = [
    [NO_STORE, {}, 404, "not_found_error", "the memory store was not found"],
    [store, { apiKey: "ks_live_unknown" }, 401, "authentication_error", ""],
    [store, { apiKey: anotherKey("READER") }, 403, "permission_error", "memory:write"],
  ];
  for (const [memoryStoreId, options, status, type, message] of cases) {
    const error = await rejection(toolOf(memoryStoreId, options).create(CREATE));
    assert.ok(error instanceof KeepsakeAPIError && error instanceof KeepsakeError && error instanceof Error);
    assert.deepEqual([error.name, error.status, error.type, error.attempts], ["KeepsakeAPIError", status, type, 1]);
    assert.equal(error.url, `${BASE_URL}/v1/memory_stores/${memoryStoreId}/tool_calls`);
    assert.match(error.requestId ?? "", id("req"));
    assert.ok(error.message.startsWith(`POST ${error.url}: ${status} ${type}: `), error.message);
    assert.ok(error.message.endsWith(` (request ${error.requestId})`), error.message);
    assert.ok(error.message.includes(message), error.message);
  }
});

test("handle throws what the model cannot correct, and refuses what is no block", async () => {
  const block = { id: "toolu_1", name: "memory", input: CREATE };
  const error = await rejection(toolOf(NO_STORE).handle(block));
  assert.deepEqual([error.name, error.status], ["KeepsakeAPIError", 404]);
  const tool = toolOf(await newStore());
  for (const wrong of [/** @type {any} */ (CREATE), { ...block, id: "" }]) {
    const refused = await rejection(tool.handle(wrong));
    assert.deepEqual([refused.name, refused.message], ["TypeError", "block.id must be the id of a tool_use block"]);
  }
  const noInput = await rejection(tool.handle({ ...block, input: "text" }));
  assert.deepEqual([noInput.status, noInput.type], [400, "invalid_request_error"]);
  assert.match(noInput.message, /`input` must be an object/);
});

test("a server that cannot be reached is named with all causes", async () => {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  await new Promise((closed) => server.close(closed));
  const error = await rejection(toolOf(NO_STORE, { baseURL: `http://127.0.0.1:${port}`, maxRetries: 1 }).view(VIEW));
  assert.ok(error instanceof KeepsakeConnectionError);
  assert.deepEqual([error.name, error.status, error.attempts], ["KeepsakeConnectionError", undefined, 2]);
  assert.match(error.message, /cannot be reached: fetch failed: connect ECONNREFUSED 127\.0\.0\.1:\d+, after 2 attempts$/);
});

test("an error of a wrong URL says what was reached and what to write", async (t) => {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  t.after(() => server.close());
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const noRoute = JSON.stringify({ error: { type: "not_found_error", message: "no such route" } });
  const moved = (/** @type {string} */ location) => new Response(null, { status: 301, headers: { location } });
  const end = `/v1/memory_stores/${NO_STORE}/tool_calls`;
  /** @type {[string, Response | undefined, string, string][]} */
  const cases = [
    [`https://127.0.0.1:${port}`, undefined, "answered without TLS", `http://127.0.0.1:${port}`],
    ["http://h/k", new Response("to an HTTPS server", { status: 400 }), "one with TLS", "https://h/k"],
    ["http://h/k/v1/", new Response(noRoute, { status: 404 }), "no such route; ", "http://h/k"],
    ["http://h/console", new Response("<html>"), "not one of this API; ", "http://h"],
    ["http://mcp/mcp/m_1", new Response(noRoute, { status: 404 }), "no such route; ", "http://mcp"],
    ["http://h/k", moved(`https://h:1/m${end}?t=1`), `a redirect to https://h:1/m${end}, `, "https://h:1/m"],
    ["http://h", moved("/sign-in"), "a redirect to http://h/sign-in, ", "the URL of the server itself"],
  ];
  for (const [baseURL, response, reached, instead] of cases) {
    const fetch = response && (async () => response);
    const error = await rejection(toolOf(NO_STORE, { baseURL, fetch }).view(VIEW));
    assert.ok(error.message.includes(reached), error.message);
    assert.ok(error.message.endsWith(`: write ${instead} as baseURL`), error.message);
    assert.equal(error.attempts, 1);
  }
});

test("a port that closes the connection in the TLS handshake may be one without TLS", async (t) => {
  const closing = createPort((socket) => void socket.destroy());
  await new Promise((listening) => closing.listen(0, "127.0.0.1", () => listening(null)));
  t.after(() => closing.close());
  const { port } = /** @type {import("node:net").AddressInfo} */ (closing.address());
  const options = { baseURL: `https://127.0.0.1:${port}`, maxRetries: 0 };
  const error = await rejection(toolOf(NO_STORE, options).view(VIEW));
  const advice = `; if the port is one without TLS, write http://127.0.0.1:${port} as baseURL; `;
  assert.ok(error.message.includes(advice), error.message);
});

test("a server that is not Keepsake is recognised", async (t) => {
  const proxy = await Proxy.open(t);
  const tool = toolOf(NO_STORE, { baseURL: proxy.url });
  const answers = [
    { status: 200, body: "<html></html>" },
    { status: 200, body: "[]" },
    { status: 200, body: '{"type":"message","content":[]}' },
    { status: 404, body: "not found" },
    { status: 404, body: '{"error":"not found"}' },
  ];
  for (const answer of answers) {
    proxy.spoil([answer]);
    const error = await rejection(tool.view(VIEW));
    assert.ok(error instanceof KeepsakeAPIError);
    assert.deepEqual([error.status, error.type, error.requestId], [answer.status, undefined, undefined]);
    assert.match(error.message, /the answer is not one of this API: is baseURL a Keepsake server\?$/);
    assert.equal(proxy.sent().length, 1);
  }
});

test("an answer without an end is read up to a bound", async () => {
  const part = new Uint8Array(64 * 1024).fill(32);
  for (const status of [200, 400]) {
    let read = 0;
    let isClosed = false;
    const body = () =>
      new ReadableStream({
        pull: (controller) => {
          read += part.length;
          controller.enqueue(part);
        },
        cancel: () => {
          isClosed = true;
        },
      });
    const fetch = async () => new Response(body(), { status });
    const error = await rejection(toolOf(NO_STORE, { fetch }).view(VIEW));
    assert.ok(error instanceof KeepsakeAPIError);
    assert.deepEqual([error.status, error.attempts], [status, 1]);
    assert.match(error.message, /the answer has more than 67174400 bytes$/);
    assert.ok(read < 67174400 + 4 * part.length, `${read}`);
    assert.ok(isClosed);
  }
});

test("a redirect is not followed", async (t) => {
  const [proxy, elsewhere] = [await Proxy.open(t), await Proxy.open(t)];
  for (const status of [301, 307]) {
    proxy.spoil([{ status, headers: { location: `${elsewhere.url}/` } }]);
    const error = await rejection(toolOf(NO_STORE, { baseURL: proxy.url }).view(VIEW));
    assert.equal(error.status, status);
    assert.ok(error.message.includes(`a redirect to ${elsewhere.url}/, which is not followed`), error.message);
  }
  assert.deepEqual(elsewhere.sent(), []);
});

test("no text shows the credential", async () => {
  const tool = toolOf(NO_STORE);
  const error = await rejection(tool.view(VIEW));
  for (const text of [inspect(tool, { depth: 9, showHidden: true }), JSON.stringify(tool), inspect(error)]) {
    assert.ok(!text.includes(API_KEY), text);
  }
});
