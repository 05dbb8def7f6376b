// Hostile texts on every screen: nothing executes, nothing breaks, and the policy of
// the pages reports nothing (`withPage` fails otherwise).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { edit, makeMemory, makeObjects, makeStore, open, screensOf, shown, signedIn } from './console.mjs';
import { api, assertNoSidewaysScroll, startBrowser } from './support.mjs';

const browser = await startBrowser();

const MARKUP = `"'><script>alert(1)</script><img src=x onerror=alert(2)><svg/onload=alert(3)>`;

const MARKDOWN = `${MARKUP}

# <iframe src="https://foreign.test/"></iframe> release

[a](javascript:alert(4)) [b](JaVaScRiPt:alert(5)) [c](data:text/html,<script>alert(6)</script>) [d](vbscript:x)
<javascript:alert(7)> <a href="javascript:alert(8)" onclick="alert(9)">e</a> [f]: javascript:alert(10)
![image](https://foreign.test/image.png) ![image](javascript:alert(11)) [g](//foreign.test/)
<style>* { display: none }</style><link rel="stylesheet" href="https://foreign.test/x.css"><base href="https://foreign.test/">
<form action="https://foreign.test/"><input name="token"><button>Send</button></form>
<meta http-equiv="refresh" content="0;url=https://foreign.test/">
<div style="position:fixed;inset:0;background:url(https://foreign.test/x)" id="main" class="skip">over everything</div>

\`\`\`"><script>alert(12)</script>
${MARKUP}
\`\`\`

| a | b |
|---|---|
| ${MARKUP.replaceAll('|', '')} | ${'long'.repeat(500)} |
`;

const BIDI = 'user\u202Efdp.exe\u2066 \u05D0\u05D1\u05D2 \u0627\u0644\u0639 \u2069 end';

const KINDS = {
  markup: {
    name: `${MARKUP} ${Date.now()}`,
    description: MARKUP,
    path: `/notes/${MARKUP}.md`,
    content: MARKDOWN,
    old: `${MARKDOWN}\n${MARKUP}`,
    title: MARKUP,
    metadata: { '<b>name</b>': MARKUP },
  },
  bidi: {
    name: `${BIDI} ${Date.now()}`,
    description: BIDI,
    path: '/notes/\u05D0\u05D1\u05D2/\u0627\u0644\u0639\u0631\u0628\u064A\u0629.md',
    content: `${BIDI}\n\n# ${BIDI} release\n\n\`${BIDI}\`\n`,
    old: `${BIDI}\n`,
    title: BIDI,
    metadata: { '\u05D0': BIDI },
  },
  'one line of 100 KB': {
    content: `release ${'x'.repeat(100_000)}`,
    old: `release ${'y'.repeat(100_000)}`,
    path: '/notes/long.md',
  },
  'lines of markup, 100 KB': {
    content: '*a* <b> [c](d) `e` > f\n'.repeat(4_300),
    old: '- *a*\n'.repeat(16_000),
    path: '/notes/many.md',
  },
  'names of 255 characters': {
    name: 'n'.repeat(255),
    description: 'd'.repeat(1_024),
    path: `/${'p'.repeat(255)}/${'q'.repeat(255)}/${'r'.repeat(252)}.md`,
    content: `release ${'w'.repeat(255)}\n`,
    old: 'x\n',
    title: 't'.repeat(1_024),
    metadata: { ['k'.repeat(64)]: 'v'.repeat(512) },
  },
};

/** What must be in no page, whatever it shows. */
async function assertHarmless(page, name) {
  const found = await page.evaluate(() => {
    const all = [...document.querySelectorAll('*')];
    const handlers = all.flatMap((element) => [...element.attributes].filter(({ name }) => /^on|^style$/i.test(name)));
    const places = all.flatMap((element) => ['href', 'src', 'action', 'formaction'].map((name) => element.getAttribute(name)));
    return {
      handlers: handlers.map((attribute) => `${attribute.name}=${attribute.value}`),
      places: places.filter((place) => place !== null && /^\s*(javascript|data|vbscript):(?!,$)/i.test(place)),
      foreign: [...document.querySelectorAll('iframe, object, embed, base, meta[http-equiv], img, main style, main link, main script')].map(
        (element) => element.outerHTML.slice(0, 200),
      ),
      // An attribute, because a field of the name `action` hides the property.
      forms: [...document.forms]
        .map((form) => new URL(form.getAttribute('action') ?? '', location.href).origin)
        .filter((origin) => origin !== location.origin),
      mains: document.querySelectorAll('#main').length,
    };
  });
  assert.deepEqual(found, { handlers: [], places: [], foreign: [], forms: [], mains: 1 }, name);
}

for (const [kind, texts] of Object.entries(KINDS)) {
  test(`${kind}: every screen shows it and nothing executes`, async (t) => {
    const objects = await makeObjects(texts);
    for (const width of [390, 1440]) {
      await signedIn(browser, { width }, async (page, problems) => {
        for (const [name, path] of screensOf(objects)) {
          await t.test(`${name}, ${width} px`, async () => {
            await open(page, path);
            await page.evaluate(() => {
              for (const details of document.querySelectorAll('details')) details.open = true;
            });
            await assertHarmless(page, name);
            await assertNoSidewaysScroll(page);
            assert.deepEqual(problems.splice(0), [], name);
          });
        }
      });
    }
  });
}

test('markup is shown as it was written', async () => {
  const store = await makeStore();
  const memory = await makeMemory(store, '/m.md', MARKUP);
  await signedIn(browser, {}, async (page) => {
    await page.goto(`${memory.href}?raw=1`);
    assert.ok((await shown(page)).includes(MARKUP));
    await page.goto(`${memory.href}/edit`);
    assert.equal(await page.getByLabel('Content').inputValue(), MARKUP);
    await page.goto(`/console/search?q=${encodeURIComponent(MARKUP)}`);
    assert.equal(await page.getByLabel('Words').inputValue(), MARKUP);
    await assertHarmless(page, 'search');
  });
});

test('text is saved as it was typed, whatever it contains', async () => {
  const memory = await makeMemory(await makeStore(), '/m.md', 'x');
  const texts = [MARKDOWN, BIDI, '\n\nbegins and ends with lines\n\n', '</textarea><script>alert(1)</script>', ''];
  await signedIn(browser, {}, async (page) => {
    for (const text of texts) {
      await page.goto(`${memory.href}/edit`);
      await page.getByLabel('Content').fill(text);
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('status').waitFor();
      const { content } = await api('GET', `/v1/memory_stores/${memory.memory_store_id}/memories/${memory.id}`);
      assert.equal(content, text);
      await page.goto(`${memory.href}/edit`);
      assert.equal(await page.getByLabel('Content').inputValue(), text);
    }
  });
});

test('line endings of a memory survive an edit', async () => {
  const memory = await makeMemory(await makeStore(), '/crlf.md', 'one\r\ntwo\r\n');
  await edit(memory, { content: 'one\r\ntwo\r\nthree\r\n' });
  await signedIn(browser, {}, async (page) => {
    await page.goto(`${memory.href}/edit`);
    await page.getByLabel('Content').press('Control+End');
    await page.keyboard.type('four');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('status').waitFor();
  });
  const { content } = await api('GET', `/v1/memory_stores/${memory.memory_store_id}/memories/${memory.id}`);
  assert.equal(content, 'one\r\ntwo\r\nthree\r\nfour');
});

test('2,000 files in one folder are listed page by page', async (t) => {
  const store = await makeStore();
  let memory;
  for (let first = 0; first < 2_000; first += 500) {
    const operations = Array.from({ length: 500 }, (_, n) => ({
      type: 'create',
      path: `/folder/${String(first + n).padStart(4, '0')}.md`,
      content: `file ${first + n}\n`,
    }));
    const { data } = await api('POST', `/v1/memory_stores/${store.id}/memories/batch`, { operations });
    memory ??= data[0].memory;
  }
  await signedIn(browser, { width: 390 }, async (page) => {
    await open(page, `${store.href}?path=%2Ffolder%2F`);
    const names = new Set();
    for (;;) {
      for (const name of await page.locator('table.files tbody a').allTextContents()) names.add(name);
      await assertNoSidewaysScroll(page);
      const next = page.getByRole('link', { name: 'Next page' });
      if ((await next.count()) === 0) break;
      await next.click();
      await page.waitForLoadState();
    }
    assert.equal(names.size, 2_000);
    for (const path of [store.href, `${store.href}/history`, `${store.href}/usage`, `/console/erasures/preview?store=${store.id}`]) {
      await t.test(path.replace(store.id, 'ID'), async () => {
        await open(page, path);
        await assertNoSidewaysScroll(page);
      });
    }
  });
});
