// The reference at /docs.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  LOOKS,
  SCHEMES,
  WIDTHS,
  assertAccessible,
  assertNoSidewaysScroll,
  isInView,
  startBrowser,
  withPage,
} from './support.mjs';

const browser = await startBrowser();

const POLICY =
  "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'";

/** The part of the page that belongs to an operation or object. */
const part = (page, id) => page.locator(`[id="${id}"]`);

const example = (page, operation, language) => part(page, operation).locator(`pre.${language}`);

async function openEverything(page) {
  await page.evaluate(() => {
    for (const details of document.querySelectorAll('details')) details.open = true;
  });
}

test('policy of the page allows only its own files', async () => {
  await withPage(browser, {}, async (page) => {
    const response = await page.goto('/docs');
    assert.equal(response.headers()['content-security-policy'], POLICY);
    const names = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name));
    // The browser asks for the icon before or after this.
    const icon = await page.getAttribute('link[rel=icon]', 'href');
    const paths = names.map((name) => new URL(name).pathname).filter((path) => path !== icon);
    assert.deepEqual(paths.sort(), ['/docs/reference.css', '/docs/reference.js']);
  });
});

for (const { colorScheme, width, isJudged } of LOOKS) {
  test(`page is accessible and fits, ${colorScheme}, ${width} px`, async () => {
    await withPage(browser, { colorScheme, width }, async (page) => {
      await page.goto('/docs');
      await assertNoSidewaysScroll(page);
      await openEverything(page);
      await assertNoSidewaysScroll(page);
      if (!isJudged) return;
      // The sections differ in nothing that axe looks at.
      await assertAccessible(page, 'header', 'nav', 'h1', '[aria-labelledby="section-memories"]', '#errors', '#schema-Memory');
    });
  });
}

test('whole page is accessible', async () => {
  await withPage(browser, {}, async (page) => {
    await page.goto('/docs');
    await assertAccessible(page);
  });
});

test('dark and light differ, and look as in the console', async () => {
  const looks = { '/docs': [], '/console': [] };
  for (const colorScheme of SCHEMES) {
    for (const [path, found] of Object.entries(looks)) {
      await withPage(browser, { colorScheme }, async (page) => {
        await page.goto(path);
        const parts = ['body', 'header', 'header .tile'].map((part) => page.locator(part));
        const styles = parts.map((part) => part.evaluate((element) => {
          const { backgroundColor, borderColor, height, fill } = getComputedStyle(element);
          return [backgroundColor, borderColor, element.matches('header') ? height : '', fill];
        }));
        found.push(await Promise.all(styles));
      });
    }
  }
  assert.deepEqual(looks['/docs'], looks['/console']);
  assert.notDeepEqual(...looks['/docs']);
});

test('list leads to an operation and follows the reader', async () => {
  await withPage(browser, {}, async (page) => {
    await page.goto('/docs');
    const list = page.getByRole('navigation', { name: 'Operations and objects' });
    await list.locator('a[href="#memories.update"]').click();
    await page.waitForURL('**/docs#memories.update');
    assert.ok(await isInView(part(page, 'memories.update').locator('h3')));
    await list.locator('a[aria-current]', { hasText: 'Update a memory' }).waitFor();
    await part(page, 'api_keys.create').locator('h3').scrollIntoViewIfNeeded();
    await page.evaluate(() => document.getElementById('api_keys.create').scrollIntoView());
    await list.locator('a[aria-current][href="#api_keys.create"]').waitFor();
  });
});

test('address of an operation or an object opens there', async () => {
  await withPage(browser, {}, async (page) => {
    for (const id of ['memories.update', 'sessions.tool_calls.create', 'schema-Memory']) {
      await page.goto('about:blank');
      await page.goto(`/docs#${id}`);
      const heading = part(page, id).locator('h3');
      assert.ok(await isInView(heading), id);
      const box = await heading.boundingBox();
      assert.ok(box.y >= 56, `${id} is behind the bar`);
    }
  });
});

test('search finds operations by words, path and id', async () => {
  await withPage(browser, {}, async (page) => {
    await page.goto('/docs');
    const list = page.getByRole('navigation', { name: 'Operations and objects' });
    const shown = list.locator('li:visible');
    await page.keyboard.press('/');
    assert.ok(await page.getByRole('searchbox').evaluate((field) => field === document.activeElement));
    for (const [query, id] of [
      ['redact version', 'memory_versions.redact'],
      ['/v1/api_keys post', 'api_keys.create'],
      ['sessions.resources.add', 'sessions.resources.add'],
    ]) {
      await page.getByRole('searchbox').fill(query);
      await list.locator(`a[href="#${id}"]`).waitFor();
      assert.ok((await shown.count()) <= 5, `${query}: ${await shown.count()}`);
      assert.match(await page.locator('#search-state').textContent(), /^\d+ found$/);
    }
    await page.keyboard.press('Enter');
    await page.waitForURL('**/docs#sessions.resources.add');
    await page.getByRole('searchbox').fill('no such thing');
    await page.getByText('No operation or object matches.').waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.getByRole('searchbox').inputValue(), '');
    assert.ok((await shown.count()) > 50);
  });
});

test('chosen language holds for all examples and is remembered', async () => {
  await withPage(browser, {}, async (page) => {
    await page.goto('/docs');
    assert.ok(await example(page, 'memories.create', 'curl').isVisible());
    await part(page, 'memories.create').getByText('Python', { exact: true }).click();
    for (const operation of ['memories.create', 'sessions.list']) {
      assert.ok(await example(page, operation, 'python').isVisible());
      assert.ok(!(await example(page, operation, 'curl').isVisible()));
    }
    await page.reload();
    assert.ok(await example(page, 'sessions.list', 'python').isVisible());
    // The tabs are radio buttons, so arrow keys change them.
    await part(page, 'sessions.list').getByRole('radio', { name: 'Python' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.ok(await example(page, 'sessions.list', 'typescript').isVisible());
  });
});

test('example is copied as it is shown', async () => {
  const permissions = ['clipboard-read', 'clipboard-write'];
  await withPage(browser, { permissions }, async (page) => {
    await page.goto('/docs');
    await part(page, 'memories.list').getByRole('button', { name: 'Copy' }).click();
    await part(page, 'memories.list').getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, await example(page, 'memories.list', 'curl').textContent());
    assert.ok(copied.startsWith('curl "$KEEPSAKE_URL/v1/memory_stores/memstore_'), copied);
  });
});

test('keyboard reaches the content with the first key', async () => {
  await withPage(browser, {}, async (page) => {
    await page.goto('/docs');
    await page.keyboard.press('Tab');
    const skip = page.getByRole('link', { name: 'Skip to the content' });
    assert.ok(await isInView(skip));
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
  });
});

test('narrow window has the list behind one button', async () => {
  await withPage(browser, { width: 390 }, async (page) => {
    await page.goto('/docs');
    const link = page.locator('#menu a[href="#memories.create"]');
    assert.ok(!(await link.isVisible()));
    await page.locator('#menu > summary').click();
    await link.click();
    assert.equal(new URL(page.url()).hash, '#memories.create');
    assert.ok(!(await link.isVisible()));
    await page.getByRole('searchbox').fill('redact');
    assert.ok(await page.locator('#menu a[href="#memory_versions.redact"]').isVisible());
    await assertNoSidewaysScroll(page);
  });
});

for (const width of WIDTHS) {
  test(`everything can be read and reached without JavaScript, ${width} px`, async () => {
    await withPage(browser, { width, javaScriptEnabled: false }, async (page) => {
      await page.goto('/docs');
      assert.ok(!(await page.locator('#search').isVisible()));
      const operations = page.locator('article.operation');
      assert.ok((await operations.count()) > 50);
      assert.equal(await page.locator('#menu li a').count(), await page.locator('main article').count());
      if (width < 861) await page.locator('#menu > summary').click();
      await page.locator('#menu a[href="#memories.update"]').click();
      assert.equal(new URL(page.url()).hash, '#memories.update');
      await part(page, 'memories.update').getByText('TypeScript', { exact: true }).click();
      assert.ok(await example(page, 'memories.update', 'typescript').isVisible());
      await part(page, 'memories.update').locator('details.errors summary').click();
      assert.ok(await part(page, 'memories.update').getByText('The credential is missing or invalid.').isVisible());
      await assertNoSidewaysScroll(page);
    });
  });
}
