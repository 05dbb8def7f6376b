// Writes a picture of every page to a folder, by default light and 1,440 px wide.
//
//     node screenshots.mjs FOLDER [light|dark] [WIDTH]
//
// With KEEPSAKE_OPERATOR_URL and KEEPSAKE_OPERATOR_TOKEN also those of the operator.

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

/** The operator's screens, after the sign-in. */
async function operatorScreens(page, token) {
  await page.goto('/console/tenants');
  await page.getByLabel("The operator's token").fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  const tenant = await page.locator('table.list tbody a').first().getAttribute('href');
  const parts = ['', '/limits', '/keys', '/audit'].map((part) => [`operator-tenant${part.replace('/', '-')}`, tenant + part]);
  const others = ['health', 'tenants', 'tenants/new', 'jobs', 'jobs/sweep-blobs', 'audit'];
  return [...others.map((path) => [`operator-${path.replace('/', '-')}`, `/console/${path}`]), ...parts];
}

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
  const { KEEPSAKE_OPERATOR_URL: baseURL, KEEPSAKE_OPERATOR_TOKEN: token } = process.env;
  if (baseURL && token) {
    await withPage(browser, { colorScheme, width: Number(width), baseURL }, async (page) => {
      await take(page, await operatorScreens(page, token));
    });
  }
} finally {
  await browser.close();
}
