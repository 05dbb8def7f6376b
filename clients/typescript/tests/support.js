// Shared by the suites: stores and tools on the server under test.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import Anthropic from "@anthropic-ai/sdk";
import { KeepsakeMemoryTool } from "@keepsake/memory";

import { API_KEY, BASE_URL, clientWith, everything } from "../../../tests/sdk/typescript/support.js";
import { MessagesStub } from "./messages_stub.js";

export const MODEL = "stub-model";
export const stores = clientWith().beta.memoryStores;

/**
 * A file of the repository.
 * @param {string} path
 */
export const repositoryFile = (path) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");

/** The id of an empty store. */
export const newStore = async () => (await stores.create({ name: "notes" })).id;

/**
 * A tool on the server under test.
 * @param {string} memoryStoreId
 * @param {import("@keepsake/memory").KeepsakeMemoryToolOptions} options
 */
export const toolOf = (memoryStoreId, options = {}) =>
  new KeepsakeMemoryTool({ baseURL: BASE_URL, apiKey: API_KEY, memoryStoreId, ...options });

/**
 * Each path of a store with its content.
 * @param {string} storeId
 * @returns {Promise<Record<string, string>>}
 */
export async function filesOf(storeId) {
  const memories = await everything(stores.memories.list(storeId, { view: "full" }));
  const files = memories.filter((memory) => memory.type === "memory");
  return Object.fromEntries(files.map((memory) => [memory.path, memory.content ?? ""]));
}

/**
 * The number of versions of all memories of a store.
 * @param {string} storeId
 */
export const versionCount = async (storeId) =>
  (await everything(stores.memoryVersions.list(storeId, { limit: 100 }))).length;

/**
 * Runs scripted replies through the SDK's tool runner; returns the tool's results.
 * @param {import("node:test").TestContext} test
 * @param {import("@anthropic-ai/sdk/lib/tools/BetaRunnableTool").BetaRunnableTool} tool
 * @param {import("./messages_stub.js").Reply[]} replies
 */
export async function runTool(test, tool, replies) {
  const stub = await MessagesStub.open(test, replies);
  const client = new Anthropic({ baseURL: stub.url, apiKey: "stub", maxRetries: 0 });
  await client.beta.messages.toolRunner({
    model: MODEL,
    max_tokens: 1000,
    messages: [{ role: "user", content: "Go on." }],
    tools: [tool],
  });
  assert.deepEqual(stub.requests[0].tools, [{ type: "memory_20250818", name: "memory" }]);
  return stub.results();
}

/**
 * The rejection of a call.
 * @param {Promise<unknown>} call
 * @returns {Promise<any>}
 */
export async function rejection(call) {
  return call.then(
    (answer) => assert.fail(`not rejected: ${JSON.stringify(answer)}`),
    (error) => error,
  );
}
