// The behaviours of the SDK's tool for a local folder, on that tool and on Keepsake.
//
// An agent that is switched finds the same texts. The tool for a local folder states
// errors without `Error: ` in front, which the SDK's runner adds.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { BetaLocalFilesystemMemoryTool, betaMemoryTool } from "@anthropic-ai/sdk/tools/memory/node";

import { DONE, callsOf } from "./messages_stub.js";
import { newStore, runTool, toolOf } from "./support.js";

/**
 * A command with the text that both tools answer, or a part of it.
 * @typedef {[command: object, expected: string | RegExp, outcome?: "error"]} Step
 */

/** @param {string} path */
const view = (path) => ({ command: "view", path });
/**
 * @param {string} path
 * @param {string} file_text
 */
const create = (path, file_text) => ({ command: "create", path, file_text });
/** @param {string} path */
const remove = (path) => ({ command: "delete", path });
/**
 * @param {string} old_path
 * @param {string} new_path
 */
const rename = (old_path, new_path) => ({ command: "rename", old_path, new_path });
/**
 * @param {string} path
 * @param {string} old_str
 * @param {string} new_str
 */
const replace = (path, old_str, new_str) => ({ command: "str_replace", path, old_str, new_str });
/**
 * @param {string} path
 * @param {number} insert_line
 * @param {string} insert_text
 */
const insert = (path, insert_line, insert_text) => ({ command: "insert", path, insert_line, insert_text });

const NOTES = "/memories/notes.md";
const MISSING = "/memories/missing.md";
/** @param {string} path */
const created = (path) => `File created successfully at: ${path}`;
/**
 * @param {string} path
 * @param {string[]} lines
 */
const numbered = (path, ...lines) =>
  [`Here's the content of ${path} with line numbers:`, ...lines.map((line, at) => `     ${at + 1}\t${line}`)].join("\n");

/** @type {Record<string, Step[]>} */
const BEHAVIOURS = {
  "a created file is shown with line numbers": [
    [create(NOTES, "tea\n\ncoffee"), created(NOTES)],
    [view(NOTES), numbered(NOTES, "tea", "", "coffee")],
  ],
  "directories above a new file are created": [
    [create("/memories/a/b/c.md", "deep"), created("/memories/a/b/c.md")],
    [view("/memories/a/b/c.md"), numbered("/memories/a/b/c.md", "deep")],
    [view("/memories"), /^\S+\t\/memories\n\S+\t\/memories\/a\/\n\S+\t\/memories\/a\/b\/$/m],
  ],
  "a file is never overwritten": [
    [create(NOTES, "first"), created(NOTES)],
    [create(NOTES, "second"), `File ${NOTES} already exists`, "error"],
    [view(NOTES), numbered(NOTES, "first")],
  ],
  "a range of lines is shown": [
    [create(NOTES, "1\n2\n3\n4\n5"), created(NOTES)],
    [
      { ...view(NOTES), view_range: [2, 3] },
      `Here's the content of ${NOTES} with line numbers:\n     2\t2\n     3\t3`,
    ],
    [
      { ...view(NOTES), view_range: [4, -1] },
      `Here's the content of ${NOTES} with line numbers:\n     4\t4\n     5\t5`,
    ],
  ],
  "a directory is listed two levels deep in order, without hidden items and node_modules": [
    [create("/memories/b.md", "b"), created("/memories/b.md")],
    [create("/memories/a/1.md", "1"), created("/memories/a/1.md")],
    [create("/memories/a/x/2.md", "2"), created("/memories/a/x/2.md")],
    [create("/memories/.hidden", "h"), created("/memories/.hidden")],
    [create("/memories/node_modules/m.js", "m"), created("/memories/node_modules/m.js")],
    [
      view("/memories"),
      new RegExp(
        "^Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n" +
          "\\S+\t/memories\n\\S+\t/memories/a/\n1B\t/memories/a/1.md\n\\S+\t/memories/a/x/\n1B\t/memories/b.md$",
      ),
    ],
  ],
  "sizes of files are in powers of 1024": [
    [create("/memories/small", "x".repeat(1023)), created("/memories/small")],
    [create("/memories/large", "x".repeat(1536)), created("/memories/large")],
    [view("/memories"), /^1\.5K\t\/memories\/large\n1023B\t\/memories\/small$/m],
  ],
  "a missing path cannot be viewed": [
    [view(MISSING), `The path ${MISSING} does not exist. Please provide a valid path.`, "error"],
  ],
  "the only match is replaced, and the lines around it are shown": [
    [create(NOTES, "1\n2\n3\n4\n5\n6"), created(NOTES)],
    [
      replace(NOTES, "4", "four"),
      "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n" +
        "     2\t2\n     3\t3\n     4\tfour\n     5\t5\n     6\t6",
    ],
    [view(NOTES), numbered(NOTES, "1", "2", "3", "four", "5", "6")],
  ],
  "patterns of replacements are ordinary text": [
    [create(NOTES, "price: X"), created(NOTES)],
    [replace(NOTES, "X", "$& $1 $$ $`"), /price: \$& \$1 \$\$ \$`$/],
    [view(NOTES), numbered(NOTES, "price: $& $1 $$ $`")],
  ],
  "text that is not in the file cannot be replaced": [
    [create(NOTES, "tea"), created(NOTES)],
    [
      replace(NOTES, "coffee", "x"),
      `No replacement was performed, old_str \`coffee\` did not appear verbatim in ${NOTES}.`,
      "error",
    ],
  ],
  "text that is in the file twice cannot be replaced": [
    [create(NOTES, "tea\nmilk\ntea"), created(NOTES)],
    [
      replace(NOTES, "tea", "x"),
      "No replacement was performed. Multiple occurrences of old_str `tea` in lines: 1, 3. Please ensure it is unique",
      "error",
    ],
    [view(NOTES), numbered(NOTES, "tea", "milk", "tea")],
  ],
  "nothing can be replaced in a missing file": [
    [replace(MISSING, "a", "b"), `The path ${MISSING} does not exist. Please provide a valid path.`, "error"],
  ],
  "text is inserted at the top and after a line": [
    [create(NOTES, "1\n2\n"), created(NOTES)],
    [insert(NOTES, 0, "0"), `The file ${NOTES} has been edited.`],
    [insert(NOTES, 2, "1.5\n"), `The file ${NOTES} has been edited.`],
    [view(NOTES), numbered(NOTES, "0", "1", "1.5", "2", "")],
  ],
  "text is inserted at the end": [
    [create(NOTES, "1\n2\n"), created(NOTES)],
    [insert(NOTES, 2, "3"), `The file ${NOTES} has been edited.`],
    [view(NOTES), numbered(NOTES, "1", "2", "3", "")],
  ],
  "nothing is inserted outside the file": [
    [create(NOTES, "1\n2"), created(NOTES)],
    [
      insert(NOTES, 10, "x"),
      "Invalid `insert_line` parameter: 10. It should be within the range of lines of the file: [0, 2]",
      "error",
    ],
    [insert(NOTES, -1, "x"), /^Invalid `insert_line` parameter: -1\./, "error"],
    [view(NOTES), numbered(NOTES, "1", "2")],
  ],
  "nothing is inserted into a missing file": [
    [insert(MISSING, 0, "x"), new RegExp(`^The path ${MISSING} does not exist`), "error"],
  ],
  "a file is deleted": [
    [create(NOTES, "tea"), created(NOTES)],
    [remove(NOTES), `Successfully deleted ${NOTES}`],
    [view(NOTES), `The path ${NOTES} does not exist. Please provide a valid path.`, "error"],
  ],
  "a directory is deleted with its files": [
    [create("/memories/a/b/1.md", "1"), created("/memories/a/b/1.md")],
    [create("/memories/a/2.md", "2"), created("/memories/a/2.md")],
    [remove("/memories/a"), "Successfully deleted /memories/a"],
    [view("/memories/a"), "The path /memories/a does not exist. Please provide a valid path.", "error"],
  ],
  "a missing path cannot be deleted": [[remove(MISSING), `The path ${MISSING} does not exist`, "error"]],
  "the root cannot be deleted or renamed": [
    [remove("/memories"), "Cannot delete the /memories directory itself", "error"],
    [rename("/memories", "/memories/x"), "Cannot rename the /memories directory itself", "error"],
  ],
  "a file is renamed into a new directory": [
    [create(NOTES, "tea"), created(NOTES)],
    [rename(NOTES, "/memories/a/b/notes.md"), `Successfully renamed ${NOTES} to /memories/a/b/notes.md`],
    [view("/memories/a/b/notes.md"), numbered("/memories/a/b/notes.md", "tea")],
    [view(NOTES), `The path ${NOTES} does not exist. Please provide a valid path.`, "error"],
  ],
  "a directory is renamed with its files": [
    [create("/memories/a/1.md", "1"), created("/memories/a/1.md")],
    [rename("/memories/a", "/memories/b"), "Successfully renamed /memories/a to /memories/b"],
    [view("/memories/b/1.md"), numbered("/memories/b/1.md", "1")],
  ],
  "a missing path cannot be renamed": [
    [rename(MISSING, "/memories/x.md"), `The path ${MISSING} does not exist`, "error"],
  ],
  "a rename never overwrites": [
    [create("/memories/a.md", "a"), created("/memories/a.md")],
    [create("/memories/b.md", "b"), created("/memories/b.md")],
    [rename("/memories/a.md", "/memories/b.md"), "The destination /memories/b.md already exists", "error"],
    [view("/memories/b.md"), numbered("/memories/b.md", "b")],
  ],
  "paths outside the root are refused": [
    [create("/etc/passwd", "x"), "Path must start with /memories, got: /etc/passwd", "error"],
    [
      create("/memories/../../etc/passwd", "x"),
      "Path /memories/../../etc/passwd would escape /memories directory",
      "error",
    ],
    [
      view("/memories/a/../../../etc/passwd"),
      "Path /memories/a/../../../etc/passwd would escape /memories directory",
      "error",
    ],
    [rename(NOTES, "/memories/../x"), "Path /memories/../x would escape /memories directory", "error"],
    [remove("/memories/../memories_backup"), /^Path .* would escape \/memories directory$/, "error"],
  ],
  "content keeps every character": [
    [create(NOTES, "ä 日本語 🎉\ttab\r"), created(NOTES)],
    [view(NOTES), numbered(NOTES, "ä 日本語 🎉\ttab\r")],
  ],
};

/**
 * @param {import("node:test").TestContext} t
 * @param {import("@anthropic-ai/sdk/helpers/beta/memory").MemoryToolHandlers} tool
 * @param {Step[]} steps
 */
async function check(t, tool, steps) {
  const replies = steps.map(([command]) => callsOf([command]));
  const results = await runTool(t, betaMemoryTool(tool), [...replies, DONE]);
  for (const [position, [command, expected, outcome]] of steps.entries()) {
    const { content, is_error } = /** @type {import("./messages_stub.js").Result} */ (results[position]);
    const about = `${JSON.stringify(command)}: ${content}`;
    assert.equal(is_error ?? false, outcome === "error", about);
    const text = outcome === "error" ? content.replace(/^Error: /, "") : content;
    if (typeof expected === "string") assert.equal(text, expected, about);
    else assert.match(text, expected, about);
  }
}

for (const [behaviour, steps] of Object.entries(BEHAVIOURS)) {
  test(behaviour, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "memory-"));
    t.after(() => rm(folder, { recursive: true }));
    await check(t, await BetaLocalFilesystemMemoryTool.init(folder), steps);
    await check(t, toolOf(await newStore()), steps);
  });
}
