// Writes a picture of every page to a folder, by default light and 1,440 px wide.
//
//     node screenshots.mjs FOLDER [light|dark] [WIDTH]

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { makeObjects, screensOf, signIn } from './console.mjs';
import { URL_OF_SERVER, launch, withPage } from './support.mjs';

const [folder, colorScheme = 'light', width = '1440'] = process.argv.slice(2);
if (folder === undefined) {
  console.error('Usage: node screenshots.mjs FOLDER [light|dark] [WIDTH]');
  process.exit(2);
}
mkdirSync(folder, { recursive: true });

const REFERENCE = [
  ['docs', '/docs'],
  ['docs-operation', '/docs#memories.update'],
  ['docs-objects', '/docs#schema-Memory'],
];

async function take(page, screens) {
  for (const [name, path] of screens) {
    // From one part of a page to another a browser would only scroll.
    await page.goto('about:blank');
    await page.goto(path);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    console.log(`${name}.png`);
  }
}

const browser = await launch();
try {
  const hasConsole = (await fetch(`${URL_OF_SERVER}/console/sign-in`)).ok;
  await withPage(browser, { colorScheme, width: Number(width) }, async (page) => {
    await take(page, REFERENCE);
    if (!hasConsole) return;
    await take(page, [['sign-in', '/console/sign-in']]);
    await signIn(page);
    await take(page, screensOf(await makeObjects({ name: 'Team notes' })));
  });
} finally {
  await browser.close();
}
