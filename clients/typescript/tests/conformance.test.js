// Every step of tests/conformance/memory_tool.json through the SDK's tool runner.

import assert from "node:assert/strict";
import { test } from "node:test";

import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { memoryTool } from "@keepsake/memory";

import { DONE, callsOf } from "./messages_stub.js";
import { newStore, repositoryFile, runTool, toolOf } from "./support.js";

/**
 * @typedef {{input?: any, block?: any, is_error: boolean, content?: any, contains?: string[]}} Step
 * @typedef {{name: string, steps: Step[], limits?: object}} Sequence
 */

/** @type {{format: number, tool: string, sequences: Sequence[]}} */
const FILE = JSON.parse(repositoryFile("tests/conformance/memory_tool.json"));
/**
 * For each sequence with limits two tenants that have them, one for each test.
 * @type {Record<string, {api_key: string, memory_store_id: string}[]>}
 */
const TENANTS = JSON.parse(process.env.KEEPSAKE_CONFORMANCE_TENANTS ?? "{}");
const COMMANDS = ["view", "create", "str_replace", "insert", "delete", "rename"];

/**
 * Joins the pieces of long strings.
 * @param {any} value
 * @returns {any}
 */
function expand(value) {
  if (Array.isArray(value)) return value.map(expand);
  if (typeof value !== "object" || value === null) return value;
  if ("$concat" in value) {
    const pieces = /** @type {(string | {repeat: string, times: number})[]} */ (value.$concat);
    return pieces.map((each) => (typeof each === "string" ? each : each.repeat.repeat(each.times))).join("");
  }
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, expand(each)]));
}

/**
 * The model's block of a step; the runner needs an id in each.
 * @param {Step} step
 */
function blockOf(step) {
  const [made] = callsOf([expand(step.input ?? step.block.input)]);
  const block = expand(step.block ?? {});
  return { ...made, ...block, id: block.id ?? made?.id };
}

/**
 * A tool on an empty store of a tenant with the sequence's limits.
 * @param {Sequence} sequence
 */
async function freshTool({ name, limits }) {
  if (limits === undefined) return toolOf(await newStore());
  const tenant = TENANTS[name]?.pop();
  assert.ok(tenant, `KEEPSAKE_CONFORMANCE_TENANTS names too few tenants for ${name}`);
  return toolOf(tenant.memory_store_id, { apiKey: tenant.api_key });
}

/**
 * Runs a sequence; returns the number of its steps.
 * @param {import("node:test").TestContext} t
 * @param {Sequence} sequence
 * @param {import("@anthropic-ai/sdk/lib/tools/BetaRunnableTool").BetaRunnableTool} tool
 */
async function run(t, sequence, tool) {
  const blocks = sequence.steps.map(blockOf);
  const results = await runTool(t, tool, [...blocks.map((block) => [block]), DONE]);
  assert.equal(results.length, blocks.length);
  for (const [position, step] of sequence.steps.entries()) {
    const { tool_use_id, content, is_error } = /** @type {any} */ (results[position]);
    const about = `${sequence.name}, step ${position}: ${JSON.stringify(step.input ?? step.block).slice(0, 500)}`;
    assert.equal(tool_use_id, blocks[position]?.id, about);
    if (step.contains === undefined) assert.equal(content, expand(step.content), about);
    for (const part of step.contains ?? []) assert.ok(content.includes(part), `${about}: ${content}`);
    assert.equal(is_error ?? false, step.is_error, about);
  }
  return blocks.length;
}

test("the file has the format that this suite reads", () => {
  assert.deepEqual([FILE.format, FILE.tool], [1, "memory_20250818"]);
});

test("each step has its result by memoryTool", async (t) => {
  let steps = 0;
  for (const sequence of FILE.sequences) {
    steps += await run(t, sequence, memoryTool(await freshTool(sequence)));
  }
  assert.ok(steps >= 1000, `${steps} steps`);
});

test("each step has its result by betaMemoryTool", async (t) => {
  // It answers unknown commands itself, and passes no ids, so that a repeated block is another call.
  const sequences = FILE.sequences.filter(({ steps }) => {
    const blocks = steps.map(blockOf);
    const changes = blocks.filter(({ input }) => input.command !== "view").map(({ id }) => id);
    return new Set(changes).size === changes.length && blocks.every(({ input }) => COMMANDS.includes(input.command));
  });
  const others = FILE.sequences.filter((sequence) => !sequences.includes(sequence)).map(({ name }) => name);
  assert.deepEqual(others, [
    "block_form",
    "same_block_twice",
    "same_block_in_other_words",
    "same_block_after_the_state_moved_on",
    "same_block_for_directories",
    "same_id_other_input",
  ]);
  for (const sequence of sequences) {
    await run(t, sequence, betaMemoryTool(await freshTool(sequence)));
  }
});
