// Tests the package as users have it: packed, and installed into a clean folder.
//
//   node tests/run.js [check | suite]
//
// `check` compares the package's version with the server's and two packages made of the
// same files, and type-checks tests, examples and README against the package. `suite` runs the tests. Both is the default.
//
// The suite needs a server: KEEPSAKE_BASE_URL, KEEPSAKE_WORKSPACE_ID, KEEPSAKE_API_KEY with
// all scopes, KEEPSAKE_READER_API_KEY with `memory:read`, and KEEPSAKE_CONFORMANCE_TENANTS,
// which tests/conformance.test.js explains.
//
// KEEPSAKE_TEST_TYPESCRIPT_CLIENT_NODE_MODULES names the folder with the packages of
// package-lock.json; by default `node_modules` beside it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const REPOSITORY = fileURLToPath(new URL("../../..", import.meta.url));
/** Files of the repository that the suites read. */
const READ = ["README.md", "tests/conformance/memory_tool.json", "tests/sdk/typescript/support.js"];

const PARTS = ["check", "suite"];
const part = process.argv[2];
assert.ok(part === undefined || PARTS.includes(part), `the argument must be one of: ${PARTS.join(", ")}`);
const packages = process.env.KEEPSAKE_TEST_TYPESCRIPT_CLIENT_NODE_MODULES || join(PACKAGE, "node_modules");
assert.ok(existsSync(join(packages, "typescript")), `${packages} has no packages: run npm ci`);

const work = mkdtempSync(join(tmpdir(), "keepsake-client-"));
process.on("exit", () => rmSync(work, { recursive: true, force: true }));
const tarball = pack("first");
const clean = install(tarball);
if (part !== "suite") {
  checkVersion();
  assert.ok(readFileSync(tarball).equals(readFileSync(pack("second"))), "two packages of the same files differ");
  run(process.execPath, [join(packages, "typescript/bin/tsc"), "-p", "tests"], clean);
}
if (part !== "check") run(process.execPath, ["--test"], clean);

/**
 * Runs a program that must succeed; its output is shown.
 * @param {string} program
 * @param {string[]} args
 * @param {string} cwd
 */
function run(program, args, cwd) {
  try {
    execFileSync(program, args, { cwd, stdio: ["ignore", "inherit", "inherit"] });
  } catch (error) {
    const { status, message } = /** @type {Error & {status?: number}} */ (error);
    console.error(message);
    process.exit(status || 1);
  }
}

/** Checks that the package has the version of the server. */
function checkVersion() {
  const [, version] = readFileSync(join(REPOSITORY, "Cargo.toml"), "utf8").match(/^version = "(.*)"$/m) ?? [];
  const manifest = JSON.parse(readFileSync(join(clean, "../../node_modules/@keepsake/memory/package.json"), "utf8"));
  const lock = JSON.parse(readFileSync(join(PACKAGE, "package-lock.json"), "utf8"));
  assert.deepEqual([manifest.version, lock.version, lock.packages[""].version], [version, version, version]);
}

/**
 * Packs a copy of the package, which leaves the repository as it is; returns the tarball.
 * @param {string} name of a folder
 */
function pack(name) {
  const source = join(work, name);
  const isPart = (/** @type {string} */ path) => !["node_modules", "dist"].includes(basename(path));
  cpSync(PACKAGE, source, { recursive: true, filter: isPart });
  symlinkSync(packages, join(source, "node_modules"));
  run("npm", ["pack", "--silent"], source);
  const [made] = readdirSync(source).filter((file) => file.endsWith(".tgz"));
  assert.ok(made);
  return join(source, made);
}

/**
 * Installs the tarball beside copies of tests, examples and README; returns their folder.
 * @param {string} tarball
 */
function install(tarball) {
  const root = join(work, "clean");
  const folder = join(root, "clients/typescript");
  for (const path of READ) cpSync(join(REPOSITORY, path), join(root, path), { recursive: true });
  for (const path of ["tests", "examples", "README.md"]) {
    cpSync(join(PACKAGE, path), join(folder, path), { recursive: true });
  }
  writeFileSync(join(root, "package.json"), '{"private": true, "type": "module"}\n');
  // The peer and the tests' other packages are there already.
  const options = ["--offline", "--legacy-peer-deps", "--no-audit", "--no-fund", "--no-save", "--silent"];
  run("npm", ["install", ...options, tarball], root);
  link(packages, join(root, "node_modules"));

  mkdirSync(join(folder, "readme"));
  const [before, after] = programs(readFileSync(join(folder, "README.md"), "utf8"));
  const [repository] = programs(readFileSync(join(root, "README.md"), "utf8"));
  for (const [name, program] of Object.entries({ before, after, repository })) {
    assert.ok(program?.includes("\nimport "), `the README's program "${name}" is missing`);
    writeFileSync(join(folder, `readme/${name}.mjs`), program);
  }
  return folder;
}

/**
 * Links each package of a folder into another one.
 * @param {string} from
 * @param {string} into
 */
function link(from, into) {
  for (const name of readdirSync(from).filter((each) => !each.startsWith("."))) {
    const [source, target] = [join(from, name), join(into, name)];
    if (name.startsWith("@")) {
      mkdirSync(target, { recursive: true });
      link(source, target);
    } else if (!existsSync(target)) symlinkSync(source, target);
  }
}

/**
 * The programs in a document.
 * @param {string} text
 */
function programs(text) {
  return [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, program]) => program);
}
