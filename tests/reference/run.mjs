// Runs the compiled examples of the current folder, each with the
// environment that the JSON file of its name has.

import { readdirSync, readFileSync } from 'node:fs';

console.log = () => {};
let count = 0;
for (const name of readdirSync('.').sort()) {
  if (!name.endsWith('.json') || name.startsWith('tsconfig') || name.startsWith('package')) continue;
  Object.assign(process.env, JSON.parse(readFileSync(name, 'utf8')));
  const file = `./out/${name.replace(/\.json$/, '.js')}`;
  try {
    await import(file);
  } catch (error) {
    throw new Error(`${readFileSync(file, 'utf8')}\n${error}`);
  }
  count += 1;
}
process.stdout.write(`${count} examples ran\n`);
