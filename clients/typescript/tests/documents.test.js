// The README's programs and the examples, each run in a process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { API_KEY, BASE_URL, clientWith, everything } from "../../../tests/sdk/typescript/support.js";
import { DONE, MessagesStub, callsOf } from "./messages_stub.js";
import { MODEL, filesOf, newStore } from "./support.js";

const CREATE = { command: "create", path: "/memories/process.md", file_text: "Tag, then build.\n" };
const CREATED = `File created successfully at: ${CREATE.path}`;
const VIEW = { command: "view", path: CREATE.path };
const VIEWED = `Here's the content of ${CREATE.path} with line numbers:\n     1\tTag, then build.\n     2\t`;

/**
 * Runs a program with a scripted model; returns the results of its tools.
 * @param {import("node:test").TestContext} t
 * @param {string} program without its extension
 * @param {{replies: import("./messages_stub.js").Reply[], store?: string, path?: string, folder?: string}} setting
 */
async function run(t, program, { replies, store, path = "", folder }) {
  const stub = await MessagesStub.open(t, [...replies, DONE]);
  const env = {
    ...process.env,
    ANTHROPIC_BASE_URL: stub.url + path,
    ANTHROPIC_API_KEY: "stub",
    MODEL,
    ...(store && { KEEPSAKE_URL: BASE_URL, KEEPSAKE_API_KEY: API_KEY, KEEPSAKE_STORE: store }),
  };
  const file = fileURLToPath(new URL(`../${program}.mjs`, import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [file], { env, cwd: folder, timeout: 60_000 });
  assert.match(stdout, /Done\./);
  assert.equal(stub.requests[0].model, MODEL);
  return stub.results().map(({ content, is_error }) => {
    assert.ok(!is_error, content);
    return typeof content === "string" ? content : content.map((/** @type {any} */ part) => part.text).join("");
  });
}

const REPLIES = [callsOf([CREATE]), callsOf([VIEW])];
const PROCESS = { "/process.md": CREATE.file_text };

for (const [example, path] of [["tool_runner"], ["vercel_ai_sdk", "/v1"], ["loop"]]) {
  test(`the example ${example} keeps its memory in the store`, async (t) => {
    const store = await newStore();
    assert.deepEqual(await run(t, `examples/${example}`, { replies: REPLIES, store, path }), [CREATED, VIEWED]);
    assert.deepEqual(await filesOf(store), PROCESS);
  });
}

test("the example session uses a session's token", async (t) => {
  const store = await newStore();
  const path = "/memories/notes/process.md";
  const replies = [callsOf([{ ...CREATE, path }])];
  assert.deepEqual(await run(t, "examples/session", { replies, store }), [`File created successfully at: ${path}`]);
  assert.deepEqual(await filesOf(store), PROCESS);
  const { memoryVersions } = clientWith().beta.memoryStores;
  const [version] = await everything(memoryVersions.list(store));
  assert.equal(version?.created_by?.type, "session_actor");
});

test("the example mcp uses the server's own tools", async (t) => {
  const store = await newStore();
  const replies = [
    callsOf([{ path: CREATE.path, content: CREATE.file_text }], "memory_write"),
    callsOf([VIEW], "memory"),
  ];
  const [written, viewed] = await run(t, "examples/mcp", { replies, store });
  assert.ok(written?.includes(CREATE.path), written);
  assert.equal(viewed, VIEWED);
  assert.deepEqual(await filesOf(store), PROCESS);
});

test("the README's agent is switched by three lines", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "memory-"));
  t.after(() => rm(folder, { recursive: true }));
  assert.deepEqual(await run(t, "readme/before", { replies: REPLIES, folder }), [CREATED, VIEWED]);
  assert.equal(await readFile(join(folder, "memory/memories/process.md"), "utf8"), CREATE.file_text);

  const store = await newStore();
  assert.deepEqual(await run(t, "readme/after", { replies: REPLIES, store, folder }), [CREATED, VIEWED]);
  assert.deepEqual(await filesOf(store), PROCESS);

  const [before, after] = await Promise.all(
    ["before", "after"].map(async (name) =>
      (await readFile(new URL(`../readme/${name}.mjs`, import.meta.url), "utf8")).split("\n"),
    ),
  );
  assert.equal(before?.length, after?.length);
  assert.equal(before?.filter((line, at) => line !== after?.[at]).length, 3);
});

test("the README of the repository has a program that works", async (t) => {
  const store = await newStore();
  assert.deepEqual(await run(t, "readme/repository", { replies: REPLIES, store }), [CREATED, VIEWED]);
  assert.deepEqual(await filesOf(store), PROCESS);
});
