// Every screen of the console: it fits, it is accessible, it needs no script.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { makeObjects, open, screensOf, shown, signIn, signedIn } from './console.mjs';
import {
  LOOKS,
  SCHEMES,
  assertAccessible,
  assertNoSidewaysScroll,
  required,
  startBrowser,
  withPage,
} from './support.mjs';

const browser = await startBrowser();
let screens;
before(async () => {
  screens = screensOf(await makeObjects());
});

for (const { colorScheme, width, isJudged } of LOOKS) {
  test(`every screen fits and is accessible, ${colorScheme}, ${width} px`, async (t) => {
    await signedIn(browser, { colorScheme, width }, async (page) => {
      for (const [name, path] of screens) {
        await t.test(name, async () => {
          await open(page, path);
          await assertNoSidewaysScroll(page);
          await page.evaluate(() => {
            for (const details of document.querySelectorAll('details')) details.open = true;
          });
          await assertNoSidewaysScroll(page);
          if (isJudged) await assertAccessible(page);
        });
      }
    });
  });
}

for (const colorScheme of SCHEMES) {
  test(`sign-in and an error fit and are accessible, ${colorScheme}`, async () => {
    await withPage(browser, { colorScheme, width: 390 }, async (page) => {
      await page.goto('/console');
      await assertNoSidewaysScroll(page);
      await assertAccessible(page);
      await signIn(page);
      assert.ok(await page.locator('header .scope[title]').isVisible(), 'the header has no tenant');
      assert.ok((await page.locator('header').boundingBox()).height <= 56);
      const icon = await page.request.get(await page.locator('link[rel=icon]').getAttribute('href'));
      assert.match(await icon.text(), /<svg.*<path/);
      await page.goto('/console/stores/memstore_00000000000000000000000001');
      await page.getByRole('alert').waitFor();
      await assertNoSidewaysScroll(page);
      await assertAccessible(page);
    });
  });
}

test('a phone shows the whole row of a button', async () => {
  const paths = Object.fromEntries(screens);
  await signedIn(browser, { width: 390 }, async (page) => {
    for (const path of [paths.history, `${paths['store-history']}?operation=deleted`, paths['recently-deleted']]) {
      await open(page, path);
      const buttons = page.getByRole('button', { name: 'Restore', exact: true });
      const ends = await buttons.evaluateAll((found) => found.map((button) => button.getBoundingClientRect().right));
      assert.ok(ends.length > 0 && Math.max(...ends) <= 390, `${path}: ${ends}`);
    }
    await open(page, paths.search);
    const parts = page.locator('.searchbar :is(input, button)');
    const tops = await parts.evaluateAll((found) => found.map((part) => part.getBoundingClientRect().top));
    assert.equal(new Set(tops).size, 1, `the field and its button: ${tops}`);
  });
});

test('a person of another tenant sees nothing of a screen', async () => {
  await withPage(browser, {}, async (page) => {
    await signIn(page, '/console', required('KEEPSAKE_OTHER_API_KEY'));
    for (const [name, path] of screens) {
      await page.goto(path);
      assert.doesNotMatch(await page.content(), /Ask Ada|Plan the next release/, name);
    }
  });
});

test('every screen says without JavaScript what it says with it', async () => {
  const read = async (javaScriptEnabled) => {
    const texts = {};
    await signedIn(browser, { javaScriptEnabled }, async (page) => {
      for (const [name, path] of screens) {
        await open(page, path);
        // A script may add buttons and count time.
        const text = (await shown(page)).replace(/\b(copy|just now|now|\d+ (min|h) ago)\b/gi, '');
        texts[name] = new Set(text.match(/[\p{L}\p{N}_]+/gu));
      }
    });
    return texts;
  };
  const [without, withScript] = [await read(false), await read(true)];
  for (const [name, words] of Object.entries(withScript)) {
    const missing = [...words].filter((word) => !without[name].has(word) && !/^\d+$/.test(word));
    assert.deepEqual(missing, [], name);
  }
});

test('a page weighs at most 150 KB', async () => {
  await signedIn(browser, {}, async (page) => {
    for (const [name, path] of screens) {
      const response = await page.goto(path);
      const { length } = await response.body();
      assert.ok(length <= 150_000, `${name}: ${length} bytes`);
    }
  });
});
