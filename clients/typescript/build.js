// Builds `dist`: ES modules, and CommonJS modules below `dist/cjs`.

import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
const compiler = createRequire(import.meta.url).resolve("typescript/bin/tsc");
rmSync("dist", { recursive: true, force: true });
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  execFileSync(process.execPath, [compiler, "-p", project], { stdio: "inherit" });
}
writeFileSync("dist/cjs/package.json", '{"type": "commonjs"}\n');
