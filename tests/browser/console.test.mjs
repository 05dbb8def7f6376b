// What people do in the console, one test for each screen's main job.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import {
  callTool,
  edit,
  makeMemory,
  makeObjects,
  makeSession,
  makeStore,
  shown,
  signIn,
  signedIn,
  versionsOf,
} from './console.mjs';
import { URL_OF_SERVER, WIDTHS, api, assertAccessible, required, startBrowser, use, withPage } from './support.mjs';

const browser = await startBrowser();

const press = (page, name) => use(page.getByRole('button', { name, exact: true }));
const follow = (page, name) => use(page.getByRole('link', { name, exact: true }));
const expand = (page, name) => use(page.locator('summary', { hasText: name }));
const tick = async (box, isWanted = true) => {
  if ((await box.isChecked()) !== isWanted) await use(box, 'Space');
};
const bytesOf = async (download) => {
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return Buffer.concat(chunks);
};
const signOut = async (page) => {
  await use(page.locator('header summary'));
  await press(page, 'Sign out');
};
const says = (page, text) => page.getByRole('status').filter({ hasText: text }).waitFor();

test('sign-in with a key leads to the page that was asked for, and ends', async () => {
  const store = await makeStore();
  await withPage(browser, {}, async (page) => {
    await page.goto(store.href);
    assert.equal(new URL(page.url()).pathname, '/console/sign-in');
    await page.getByLabel('API key or token').fill('ks_live_wrong');
    await press(page, 'Sign in');
    await page.getByRole('alert').waitFor();
    await page.getByLabel('API key or token').fill(required('KEEPSAKE_API_KEY'));
    await press(page, 'Sign in');
    await page.getByRole('heading', { level: 1, name: store.name }).waitFor();
    assert.equal(new URL(page.url()).pathname, store.href);
    const [cookie] = (await page.context().cookies()).filter(({ name }) => name === 'keepsake_console');
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/console', JSON.stringify(cookie));
    assert.ok(!cookie.value.includes(required('KEEPSAKE_API_KEY')));

    await signOut(page);
    await page.getByText('You are signed out.').waitFor();
    await page.waitForURL((url) => url.pathname === '/console/sign-in' && url.search === '');
    await page.goto(store.href);
    assert.equal(new URL(page.url()).pathname, '/console/sign-in');
  });
});

test('sign-in leads to no other site', async () => {
  for (const next of ['//foreign.test/', 'https://foreign.test/', '/\\foreign.test', 'javascript:alert(1)']) {
    await withPage(browser, {}, async (page) => {
      await signIn(page, `/console/sign-in?next=${encodeURIComponent(next)}`);
      assert.equal(new URL(page.url()).origin, new URL(URL_OF_SERVER).origin, next);
    });
  }
});

test('a store is created and found by its name', async () => {
  const name = `Notes ${randomUUID()}`;
  await signedIn(browser, {}, async (page) => {
    await page.goto('/console/stores');
    await expand(page, 'New store');
    const form = page.locator('form[action="/console/stores"]');
    await form.getByLabel('Name').fill(name);
    await form.getByLabel('Description').fill('Made in a browser.');
    await press(page, 'Create the store');
    await says(page, 'The store was created.');
    await page.getByRole('heading', { level: 1, name }).waitFor();
    await page.getByRole('heading', { name: 'The store is empty' }).waitFor();

    await page.goto('/console/stores');
    await page.locator('#name').fill(name.toUpperCase());
    await press(page, 'Find');
    await page.getByRole('link', { name }).waitFor();
    assert.equal(await page.locator('table.list tbody tr').count(), 1);
  });
});

test('a memory is created, edited, renamed, pinned, deleted and restored', async () => {
  const store = await makeStore();
  await signedIn(browser, {}, async (page) => {
    await page.goto(store.href);
    await follow(page, 'New memory');
    await page.getByLabel('Path', { exact: true }).fill('/notes/first.md');
    await page.getByLabel('Content').fill('# First\n\nWe ship on **Tuesdays**.\n');
    await press(page, 'Save');
    await says(page, 'The memory was created.');
    assert.equal(await page.locator('article.markdown strong').textContent(), 'Tuesdays');
    const memory = new URL(page.url()).pathname;

    await follow(page, 'Edit');
    assert.equal(await page.getByLabel('Content').inputValue(), '# First\n\nWe ship on **Tuesdays**.\n');
    // A text over the limit is not sent, so it cannot be lost.
    const area = page.getByLabel('Content');
    await area.fill('x'.repeat(Number(await area.getAttribute('data-max-bytes')) + 1));
    await press(page, 'Save');
    assert.ok(await area.evaluate((element) => element.validity.customError));
    await area.fill('# First\n\nWe ship on **Wednesdays**.\n');
    await press(page, 'Save');
    await says(page, 'The memory was saved as a new version.');
    for (const day of ['Tuesdays', 'Wednesdays']) {
      await press(page, 'Undo');
      await says(page, 'The change was taken back.');
      await page.locator('article.markdown strong', { hasText: day }).waitFor();
    }

    await expand(page, 'Rename or move');
    await page.getByLabel('New path').fill('/archive/first.md');
    await press(page, 'Rename');
    await says(page, 'The memory was renamed.');
    for (const directory of ['notes', 'archive']) {
      await press(page, 'Undo');
      await says(page, 'The change was taken back.');
      await page.locator('h1').getByRole('link', { name: directory, exact: true }).waitFor();
    }

    await expand(page, 'Expiry and pin');
    await press(page, 'Pin');
    await says(page, 'The memory was pinned.');
    await page.getByText('never, it is pinned').waitFor();

    for (const isLast of [false, true]) {
      await follow(page, 'Delete');
      await press(page, 'Delete the memory');
      await says(page, 'The memory was deleted.');
      if (isLast) break;
      await press(page, 'Undo');
      await says(page, 'The change was taken back.');
    }
    await follow(page, 'Recently deleted');
    await follow(page, '/archive/first.md');
    await page.getByText('until then it can be restored').waitFor();
    await press(page, 'Restore the memory');
    await says(page, 'The version was restored');
    await page.goto(memory);
    assert.equal(await page.locator('article.markdown strong').textContent(), 'Wednesdays');
  });
});

test('a folder of the tree opens in place', async () => {
  const store = await makeStore();
  const memory = await makeMemory(store, '/a/fact.md', 'x\n');
  await makeMemory(store, '/b/c/other.md', 'x\n');
  for (const javaScriptEnabled of [true, false]) {
    await signedIn(browser, { javaScriptEnabled }, async (page) => {
      await page.goto(memory.href);
      const tree = page.getByRole('navigation', { name: 'Tree' });
      assert.equal(await tree.locator('[aria-current]').innerText(), 'fact.md');
      await follow(tree, 'Open or close b');
      const below = tree.getByRole('link', { name: 'c memories: 1', exact: true });
      await below.waitFor();
      const twist = (expanded) => tree.getByRole('link', { name: 'Open or close b', expanded });
      await twist(true).waitFor();
      // Without a script, the page of the folder opens.
      assert.equal(new URL(page.url()).pathname === memory.href, javaScriptEnabled);
      if (javaScriptEnabled) {
        await follow(tree, 'Open or close b');
        await below.waitFor({ state: 'hidden' });
        await twist(false).waitFor();
        // The current entry is in view, also in a small window.
        await page.setViewportSize({ width: 1440, height: 120 });
        await page.goto(memory.href);
        assert.ok(await tree.evaluate((nav) => nav.scrollTop) > 0);
      }
    });
  }
});

test('the palette finds a memory by its path, and keys move, edit and explain', async () => {
  const store = await makeStore();
  const memory = await makeMemory(store, '/plans/first.md', 'x\n');
  await signedIn(browser, {}, async (page) => {
    for (const place of [store.href, '/console/overview']) {
      await page.goto(place);
      await page.keyboard.press('Control+k');
      await page.keyboard.type('plans/fir');
      await page.getByRole('option', { name: '/plans/first.md' }).first().waitFor();
      await assertAccessible(page, '#palette');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'first.md' }).waitFor();
    }
    await page.keyboard.press('?');
    const keys = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
    await keys.getByText('Edit', { exact: true }).waitFor();
    await assertAccessible(page, '#keys');
    // Without single keys, the menu opens the list, also on the next page.
    const single = keys.getByRole('checkbox', { name: 'Single keys act on the page' });
    await tick(single, false);
    await page.goto(store.href);
    await page.keyboard.press('?');
    assert.equal(await keys.isVisible(), false);
    await use(page.getByLabel('Account'));
    await use(page.getByRole('button', { name: 'Keyboard shortcuts' }));
    await tick(single);
    await page.keyboard.press('Escape');
    await keys.waitFor({ state: 'hidden' });

    await page.goto(store.href);
    await page.keyboard.press('j');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'plans');
    await page.keyboard.press('Enter');
    await page.locator('table.files').getByRole('link', { name: 'first.md' }).waitFor();
    await page.goto(memory.href);
    // The text goes away by itself.
    const told = page.locator('p[aria-live]', { hasText: /Copied|Failed/ }).waitFor({ state: 'attached' });
    await Promise.all([told, use(page.locator('h1 button.copy'))]);
    await page.keyboard.press('h');
    await page.getByRole('heading', { level: 1, name: 'History of' }).waitFor();
    await page.goto(memory.href);
    await page.keyboard.press('e');
    // A letter that is typed into a field is a letter.
    const field = page.getByRole('textbox', { name: 'Content' });
    await field.pressSequentially('j?');
    assert.match(await field.inputValue(), /j\?/);
    await page.keyboard.press('Control+k');
    await page.keyboard.type('sign');
    await page.getByRole('option', { name: 'Sign out' }).waitFor();
  });
});

test('the second of two people sees a difference and loses nothing', async () => {
  const memory = await makeMemory(await makeStore(), '/plan.md', 'one\ntwo\nthree\n');
  await signedIn(browser, {}, async (ada) => {
    await signedIn(browser, {}, async (ben) => {
      for (const page of [ada, ben]) await page.goto(`${memory.href}/edit`);
      await ada.getByLabel('Content').fill('one\ntwo of Ada\nthree\n');
      await press(ada, 'Save');
      await says(ada, 'The memory was saved');

      await ben.getByLabel('Content').fill('one\ntwo\nthree of Ben\n');
      await press(ben, 'Save');
      await ben.getByRole('heading', { name: 'Somebody else changed this memory' }).waitFor();
      const widthOf = (selector) => ben.locator(selector).evaluate((element) => element.offsetWidth);
      assert.ok((await widthOf('table.diff')) > 0.8 * (await widthOf('main')), 'the difference is narrow');
      const lines = async (kind) => (await ben.locator(`table.diff tr.${kind} td.line`).allInnerTexts()).join('\n');
      assert.match(await lines('del'), /two of Ada/);
      assert.match(await lines('add'), /three of Ben/);
      assert.equal(await ben.getByLabel('Content').inputValue(), 'one\ntwo\nthree of Ben\n');

      await ben.getByLabel('Content').fill('one\ntwo of Ada\nthree of Ben\n');
      await press(ben, 'Save mine over theirs');
      await says(ben, 'The memory was saved');
      const text = await shown(ben);
      assert.match(text, /two of Ada/);
      assert.match(text, /three of Ben/);
    });
  });
  assert.equal((await versionsOf(memory)).length, 3);
});

test('a typed text outlives the end of its sign-in', async () => {
  const memory = await makeMemory(await makeStore(), '/draft.md', 'old\n');
  await signedIn(browser, {}, async (page) => {
    await page.goto(`${memory.href}/edit`);
    await page.getByLabel('Content').fill('what was typed\n');
    await page.context().clearCookies();
    await press(page, 'Save');
    await page.getByText('Nothing was saved.').waitFor();
    assert.equal(await page.locator('textarea').inputValue(), 'what was typed\n');
    await page.getByLabel('API key or token').fill(required('KEEPSAKE_API_KEY'));
    await press(page, 'Sign in');
    await says(page, 'You are signed in.');
    assert.equal(await page.locator('textarea').inputValue(), 'what was typed\n');
    await press(page, 'Send it again');
    await says(page, 'The memory was saved');
    assert.match(await shown(page), /what was typed/);
  });
});

test('words of a table are whole at every width', async () => {
  const words = ['Severity', 'Tomáš', 'Responsibility', 'Availability', 'Documentation', 'Überprüfung'];
  const rows = [words, words.map(() => '---'), words].map((cells) => `| ${cells.join(' | ')} |\n`);
  const memory = await makeMemory(await makeStore(), '/table.md', rows.join(''));
  for (const width of WIDTHS) {
    await signedIn(browser, { width }, async (page) => {
      await page.goto(memory.href);
      const lines = await page.locator('article.markdown :is(th, td)').evaluateAll((cells) =>
        cells.map((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return range.getClientRects().length;
        }),
      );
      assert.deepEqual(lines, Array(2 * words.length).fill(1), `${width} px`);
    });
  }
});

test('two versions are compared, and the older one is restored', async () => {
  const memory = await makeMemory(await makeStore(), '/fact.md', 'same\nThe sky is blue.\n');
  await edit(memory, { content: 'same\nThe sky is green.\n' });
  await signedIn(browser, {}, async (page) => {
    await page.goto(`${memory.href}/history`);
    await press(page, 'Compare the chosen versions');
    await page.getByRole('heading', { name: 'Changes of' }).waitFor();
    assert.match(await page.locator('tr.del td.line').innerText(), /The sky is blue\./);
    assert.match(await page.locator('tr.add td.line').innerText(), /The sky is green\./);
    await follow(page, 'Side by side');
    assert.match(await page.locator('td.old').last().innerText(), /blue/);
    assert.match(await page.locator('td.new').last().innerText(), /green/);
    await use(page.locator('main').getByRole('link', { name: 'History', exact: true }).last());
    await use(page.getByRole('button', { name: 'Restore', exact: true }).last());
    await says(page, 'The version was restored');
    await page.goto(memory.href);
    assert.match(await shown(page), /The sky is blue\./);
  });
});

test('the store of a past day leads back to now', async () => {
  const store = await makeStore();
  await makeMemory(store, '/fact.md', 'The sky is blue.\n');
  await signedIn(browser, {}, async (page) => {
    await page.goto(store.href);
    await page.getByLabel('As it was at the end of the day').fill('2026-01-31');
    await press(page, 'Look at the past');
    await page.getByText('This is the past.').waitFor();
    await page.getByRole('heading', { name: 'Nothing was here' }).waitFor();
    await follow(page, 'What changed since');
    await page.getByRole('row', { name: /added .*fact\.md/ }).waitFor();
    await page.goBack();
    await follow(page, 'Back to now');
    await page.locator('table.files').getByRole('link', { name: 'fact.md' }).waitFor();
  });
});

test('what a session wrote is taken back after its plan was shown', async () => {
  const store = await makeStore();
  const session = await makeSession(store);
  const file = `${session.resources[0].mount_path}/wrong.md`;
  await callTool(session, { command: 'create', path: file, file_text: 'wrong\n' });
  await signedIn(browser, {}, async (page) => {
    await page.goto(session.href);
    await follow(page, 'Undo its changes…');
    await page.getByRole('row', { name: /deleted .*wrong\.md/ }).waitFor();
    await press(page, 'Undo in 1 memory');
    await says(page, '1 memory was changed.');
    await page.goto(store.href);
    await page.getByRole('heading', { name: 'The store is empty' }).waitFor();
  });
});

test('no trace of a redacted text is left, also after going back', async () => {
  const secret = `secret-${randomUUID()}`;
  const store = await makeStore();
  const memory = await makeMemory(store, '/keys.md', `The password is ${secret}.\n`);
  await edit(memory, { content: 'The password is in the vault.\n' });
  const old = (await versionsOf(memory)).at(-1);
  const pages = [
    memory.href,
    `${memory.href}?raw=1`,
    `${memory.href}/history`,
    `${memory.href}/edit`,
    `${store.href}/history`,
    `${store.href}/versions/${old}`,
    `${store.href}/versions/${old}/redact`,
    `${store.href}/compare?to=${(await versionsOf(memory))[0]}`,
    `/console/search?q=${secret}`,
  ];
  await signedIn(browser, {}, async (page) => {
    await page.goto(`${store.href}/versions/${old}`);
    assert.match(await shown(page), new RegExp(secret));
    await follow(page, 'Redact');
    assert.match(await shown(page), new RegExp(secret));
    await page.getByLabel('Type redact to confirm').fill('redact');
    await press(page, 'Redact the version');
    await says(page, 'were removed for good');
    assert.ok(!(await page.content()).includes(secret));
    for (let steps = 0; steps < 3; steps += 1) {
      await page.goBack();
      assert.ok(!(await page.content()).includes(secret), `${page.url()} after going back`);
    }
    for (const path of pages) {
      await page.goto(path);
      const source = (await page.content()).replaceAll(`q=${secret}`, '').replaceAll(`value="${secret}"`, '');
      assert.ok(!source.includes(secret), path);
    }
  });
});

test('search marks the words, and filters', async () => {
  // Without digits: search also finds the parts of a word with digits, and other words have the same parts.
  const word = randomUUID().replaceAll('-', '').replace(/[0-9]/g, (digit) => 'ghijklmnop'[digit]);
  const store = await makeStore();
  await makeMemory(store, '/a/first.md', `before ${word} behind\n`);
  await makeMemory(await makeStore(), '/b/second.md', `also ${word}\n`);
  await signedIn(browser, {}, async (page) => {
    await page.goto('/console/stores');
    await page.keyboard.press('/');
    await page.keyboard.type(word);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Search', exact: true }).waitFor();
    assert.equal(await page.locator('ol.hits > li').count(), 2);
    assert.deepEqual(await page.locator('ol.hits mark').allTextContents(), [word, word]);
    await page.getByLabel('Store', { exact: true }).selectOption(store.id);
    await press(page, 'Search');
    assert.equal(await page.locator('ol.hits > li').count(), 1);
    await page.getByLabel('Directory').fill('/none/');
    await press(page, 'Search');
    await page.getByRole('heading', { name: 'Nothing was found' }).waitFor();
    await page.getByLabel('Directory').fill('/a/');
    await press(page, 'Search');
    await use(page.locator('ol.hits a').first());
    await page.getByRole('heading', { level: 1, name: 'first.md' }).waitFor();
  });
});

test('a session shows what its agent did, and is ended', async () => {
  const store = await makeStore();
  const session = await makeSession(store, { title: `Session ${randomUUID()}` });
  const directory = session.resources[0].mount_path;
  await callTool(session, { command: 'create', path: `${directory}/by-agent.md`, file_text: 'written\n' });
  await callTool(session, { command: 'view', path: `${directory}/by-agent.md` });
  await signedIn(browser, {}, async (page) => {
    await page.goto(`/console/sessions?store=${store.id}`);
    await follow(page, session.title);
    // A reload before this would stay on the list.
    await page.getByRole('heading', { level: 1, name: session.title }).waitFor();
    // Events are recorded within half a minute.
    await assert.doesNotReject(async () => {
      for (let tries = 0; tries < 40; tries += 1) {
        await page.reload();
        if ((await page.getByText('by-agent.md').count()) >= 2) return;
        await page.waitForTimeout(1_000);
      }
      throw new Error('the calls are not shown');
    });
    await page.getByRole('row', { name: /write.*create/ }).waitFor();
    await page.getByRole('row', { name: /read.*view/ }).waitFor();
    await expand(page, 'End the session');
    await press(page, 'End it now');
    await says(page, 'The session was ended.');
  });
  await assert.rejects(callTool(session, { command: 'view', path: '/memories' }));
});

for (const order of ['oldest', 'newest']) {
  test(`calls of a session appear while its page is open, ${order} first`, async () => {
    const store = await makeStore();
    const session = await makeSession(store);
    const directory = session.resources[0].mount_path;
    await signedIn(browser, {}, async (page) => {
      await page.goto(`${session.href}?order=${order}`);
      await page.getByRole('heading', { name: 'No tool was called yet' }).waitFor();
      await page.getByRole('status').filter({ hasText: /^Live$/ }).waitFor();
      const names = ['first.md', 'second.md', 'third.md'];
      const rows = page.locator('#calls tbody tr');
      for (const [number, name] of names.entries()) {
        await callTool(session, { command: 'create', path: `${directory}/${name}`, file_text: 'text\n' });
        await rows.nth(number).waitFor();
      }
      await callTool(session, { command: 'view', path: `${directory}/third.md` });
      await rows.nth(3).waitFor();
      assert.ok(await page.getByText('Reads: 1, writes: 3').isVisible());
      assert.ok(!(await page.getByRole('heading', { name: 'No tool was called yet' }).isVisible()));
      await assertAccessible(page);

      // The page has the same lines when it is loaded again.
      const live = await rows.evaluateAll((found) => found.map(({ id }) => id));
      assert.equal(new Set(live).size, 4);
      await page.reload();
      await page.getByRole('status').filter({ hasText: /^Live$/ }).waitFor();
      assert.deepEqual(await rows.evaluateAll((found) => found.map(({ id }) => id)), live);

      await api('POST', `/v1/sessions/${session.id}/archive`);
      await page.getByRole('status').filter({ hasText: 'No longer live: the session is archived' }).waitFor();
    });
  });
}

test('usage says what expires and what was never read', async () => {
  const store = await makeStore(undefined, { expires_unused_after: 86_400 });
  await makeMemory(store, '/unread.md', 'x\n');
  await signedIn(browser, {}, async (page) => {
    await page.goto('/console/usage');
    await page.getByRole('heading', { name: 'Usage', exact: true }).waitFor();
    assert.match(await shown(page), /Quotas/);
    await page.goto(`${store.href}/usage`);
    await page.getByRole('heading', { name: 'Never read' }).waitFor();
    assert.match(await shown(page), /1 memory was never read/);
    assert.ok((await page.getByRole('link', { name: /unread\.md/ }).count()) >= 1);
  });
});

test('a key is created with its scopes, works, and is revoked', async () => {
  const store = await makeStore();
  const name = `Key ${randomUUID()}`;
  await signedIn(browser, {}, async (page) => {
    await page.goto('/console/keys');
    await expand(page, 'New key');
    await page.getByLabel('Name').fill(name);
    for (const box of await page.getByRole('checkbox').all()) await tick(box, false);
    await tick(page.getByRole('checkbox', { name: /memory:read/ }));
    await page.locator('select#stores').selectOption(store.id);
    await press(page, 'Create the key');
    const secret = await page.locator('#secret').textContent();
    assert.match(secret, /^ks_live_/);
    assert.ok((await page.locator('pre').first().textContent()).includes(`KEEPSAKE_API_KEY=${secret}`));
    const { data } = await api('GET', '/v1/memory_stores', undefined, secret);
    assert.deepEqual(data.map(({ id }) => id), [store.id]);

    // The secret is shown only once.
    await page.reload().catch(() => {});
    await page.goto('/console/keys');
    assert.ok(!(await page.content()).includes(secret));
    await page.goBack();
    assert.ok(!(await page.content()).includes(secret));
    await page.goto('/console/keys');
    await follow(page, name);
    assert.ok(!(await page.content()).includes(secret));
    await expand(page, 'Revoke the key');
    await press(page, 'Revoke the key');
    await says(page, 'The key was revoked.');
    await assert.rejects(async () => {
      for (let tries = 0; tries < 60; tries += 1) {
        await api('GET', '/v1/memory_stores', undefined, secret);
        await page.waitForTimeout(100);
      }
    }, /401/);
  });
});

test('what is done in the console is in the audit, and is exported', async () => {
  const name = `Audited ${randomUUID()}`;
  await signedIn(browser, {}, async (page) => {
    await page.goto('/console/stores');
    await expand(page, 'New store');
    await page.locator('form[action="/console/stores"]').getByLabel('Name').fill(name);
    await press(page, 'Create the store');
    await says(page, 'The store was created.');
    const id = new URL(page.url()).pathname.split('/').pop();
    await page.goto('/console/audit');
    await page.getByLabel('Object').fill(id);
    await press(page, 'Filter');
    assert.equal(await page.locator('table.list tbody tr').count(), 1);
    assert.match(await page.locator('table.list tbody tr').innerText(), /created a store/);
    for (const [link, start] of [['Save as CSV', /,/], ['Save as JSON lines', /^\{/]]) {
      const [download] = await Promise.all([page.waitForEvent('download'), follow(page, link)]);
      const text = (await bytesOf(download)).toString();
      assert.match(text, start);
      for (const part of [id, name]) assert.ok(text.includes(part), text);
    }
  });
});

test('an erasure is chosen, previewed, confirmed and has a receipt', async () => {
  const { store, memory } = await makeObjects();
  await signedIn(browser, {}, async (page) => {
    await page.goto(`/console/erasures?store=${store.id}`);
    const form = page.locator('form', { hasText: 'Erase a store or a directory' });
    await form.getByLabel('Only below this directory').fill('/notes/');
    await use(form.getByRole('button'));
    await page.getByText('The store itself is kept.').waitFor();
    const word = await page.locator('label[for="confirm"] strong').innerText();
    await page.getByLabel(/to confirm/).fill('something else');
    await press(page, 'Erase for good');
    await page.getByRole('alert').waitFor();
    await page.goBack();
    await page.getByLabel(/to confirm/).fill(word);
    await press(page, 'Erase for good');
    await page.getByRole('heading', { name: 'Receipt of an erasure' }).waitFor();
    // A job erases; until it ends, the page says so.
    const isUnderWay = () => page.getByRole('link', { name: 'Look again' }).count();
    for (let looks = 0; looks < 600 && (await isUnderWay()); looks += 1) {
      await page.waitForTimeout(100);
      await page.reload();
    }
    await page.getByRole('heading', { name: /^Receipt of an erasure done$/ }).waitFor();
    await page.goto(store.href);
    assert.equal(await page.locator('table.files a', { hasText: 'notes' }).count(), 0);
    const response = await page.goto(memory.href);
    assert.equal(response.status(), 404);
  });
});

test('the forms work without JavaScript', async () => {
  const store = await makeStore();
  await signedIn(browser, { javaScriptEnabled: false }, async (page) => {
    await page.goto(`${store.href}/new?path=/plain.md`);
    await page.getByLabel('Content').fill('without a script\n');
    await press(page, 'Save');
    await says(page, 'The memory was created.');
    await follow(page, 'Edit');
    await page.getByLabel('Content').fill('changed without a script\n');
    await press(page, 'Save');
    await says(page, 'The memory was saved');
    assert.match(await shown(page), /changed without a script/);
  });
});

test('a store is saved as an archive and imported into a new store', async () => {
  const store = await makeStore();
  await makeMemory(store, '/notes/日 a.md', 'what was learnt\n');
  await signedIn(browser, {}, async (page) => {
    await page.goto(`/console/transfer?store=${store.id}`);
    await tick(page.getByLabel('with the whole history'));
    const save = use(page.getByRole('button', { name: /^Save / }));
    const [download] = await Promise.all([page.waitForEvent('download'), save]);
    assert.match(download.suggestedFilename(), /\.tar\.zst$/);
    const archive = await bytesOf(download);

    const name = `Copy ${randomUUID()}`;
    const upload = async (buffer) => {
      await page.goto('/console/transfer');
      await page.getByLabel('Into the store').selectOption({ label: 'a new store' });
      await page.getByLabel('Name of the new store').fill(name);
      await page.locator('#file').setInputFiles({ name: 'notes.tar.zst', mimeType: 'application/zstd', buffer });
      await press(page, 'Import');
    };
    await upload(archive);
    await says(page, 'All of notes.tar.zst was read.');
    assert.equal(await page.locator('#created').innerText(), '1');
    await follow(page, 'Open the store');
    await page.getByRole('heading', { level: 1, name }).waitFor();
    await page.getByText('notes').first().waitFor();
  });
});
