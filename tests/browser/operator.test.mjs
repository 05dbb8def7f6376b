// The operator's console: what the operator does, and how its screens look.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, test } from 'node:test';

import { open, shown } from './console.mjs';
import {
  HAS_KEYBOARD_ONLY,
  SCHEMES,
  WIDTHS,
  assertAccessible,
  assertNoSidewaysScroll,
  required,
  send,
  startBrowser,
  use,
  withPage,
} from './support.mjs';

const TOKEN = required('KEEPSAKE_OPERATOR_TOKEN');
const JOB = '/console/jobs/sweep-blobs';

const browser = await startBrowser();

const press = (page, name) => use(page.getByRole('button', { name, exact: true }));
const follow = (page, name) => use(page.getByRole('link', { name, exact: true }));
const says = (page, text) => page.getByRole('status').filter({ hasText: text }).waitFor();

async function signIn(page, token = TOKEN, path = '/console') {
  await page.goto(path);
  await page.getByLabel("The operator's token").fill(token);
  await press(page, 'Sign in');
  await page.getByRole('heading', { level: 1 }).waitFor();
}

async function suspend(page) {
  await use(page.locator('summary', { hasText: 'Suspend' }));
  await press(page, 'Suspend the tenant');
}

/** Runs `action` with a page of the operator. */
function signedIn(options, action) {
  return withPage(browser, options, async (page) => {
    await signIn(page);
    return action(page);
  });
}

async function makeTenant(more = {}) {
  const authorization = `Bearer ${TOKEN}`;
  const tenant = await send('POST', '/admin/v1/tenants', { name: `Tenant ${randomUUID()}`, ...more }, { authorization });
  return { ...tenant, href: `/console/tenants/${tenant.id}` };
}

/** Starts a run with a button of the job's page, and waits until the newest run has ended. */
async function runJob(page, button) {
  await page.goto(JOB);
  await press(page, button);
  await says(page, 'The run has started.');
  const newest = page.locator('table.list tbody tr').first();
  const end = Date.now() + 60_000;
  for (;;) {
    const text = await newest.innerText();
    if (/\bdone\b/.test(text)) return text;
    assert.ok(Date.now() < end && !/\bfailed\b/.test(text), text);
    await page.goto(JOB);
  }
}

let tenant;
let screens;
before(async () => {
  tenant = await makeTenant({ external_id: `external-${randomUUID()}`, limits: { stores_per_tenant: 7 } });
  await signedIn({}, (page) => runJob(page, 'Dry run'));
  const parts = ['', '/limits', '/keys', '/keys/new', '/audit'].map((part) => tenant.href + part);
  screens = ['/console/health', '/console/tenants', '/console/tenants/new', ...parts, '/console/jobs', JOB, '/console/audit'];
});

test('sign-in needs the operator\'s token, and leads to the page that was asked for', async () => {
  await withPage(browser, {}, async (page) => {
    await signIn(page, `${TOKEN}x`, '/console/jobs');
    await page.getByRole('alert').waitFor();
    await page.getByLabel("The operator's token").fill(TOKEN);
    await press(page, 'Sign in');
    await page.getByRole('heading', { level: 1, name: 'Jobs' }).waitFor();
    const [cookie] = (await page.context().cookies()).filter(({ name }) => name === 'keepsake_operator');
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/console', JSON.stringify(cookie));
    assert.ok(!cookie.value.includes(TOKEN));
    await use(page.locator('header summary'));
    await press(page, 'Sign out');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.goto('/console/jobs');
    assert.equal(new URL(page.url()).pathname, '/console/sign-in');
  });
});

test('health says what is ready', async () => {
  await signedIn({}, async (page) => {
    await page.getByRole('heading', { level: 1, name: 'Health ready' }).waitFor();
    const text = await shown(page);
    for (const part of ['Database', 'Live gateways', 'Requests under way', 'OK']) {
      assert.match(text, new RegExp(part, 'i'));
    }
    await follow(page, 'All metrics');
    await page.getByText('keepsake_http_requests_in_flight').first().waitFor();
  });
});

test('a tenant is found, its limits are changed and taken back, and it is suspended and resumed', async () => {
  await signedIn({}, async (page) => {
    await follow(page, 'Tenants');
    await page.getByLabel('Name or external id').fill(tenant.external_id);
    await press(page, 'Find');
    assert.equal(await page.locator('table.list tbody tr').count(), 1);
    await follow(page, tenant.name);
    await page.getByRole('heading', { level: 1, name: `${tenant.name} active` }).waitFor();
    await page.getByText('None in these 30 days.').first().waitFor();
    assert.match(await page.getByRole('row', { name: /^Stores/ }).innerText(), /\b0\b.*\b7\b/s);

    await follow(page, 'Limits');
    const limit = page.getByLabel('Stores per tenant');
    assert.equal(await limit.inputValue(), '7');
    await limit.fill('many');
    await press(page, 'Save the limits');
    await page.getByRole('alert').filter({ hasText: 'Stores per tenant must be a whole number.' }).waitFor();
    assert.equal(await limit.inputValue(), 'many');
    await limit.fill('9');
    await press(page, 'Save the limits');
    await says(page, 'The limits were saved.');
    assert.equal(await limit.inputValue(), '9');
    await press(page, 'Undo');
    await page.locator('input[name=stores_per_tenant][value="7"]:not([type=hidden])').waitFor();

    await suspend(page);
    await says(page, 'The tenant was suspended.');
    await page.getByRole('heading', { level: 1, name: `${tenant.name} suspended` }).waitFor();
    await press(page, 'Resume');
    await says(page, 'The tenant is served again.');
    await page.getByRole('heading', { level: 1, name: `${tenant.name} active` }).waitFor();
  });
});

test('a job is run now, and dry, and says what it did', async () => {
  await signedIn({}, async (page) => {
    const dry = await runJob(page, 'Dry run');
    assert.match(dry, /\bdry\b/);
    assert.match(dry, /\bby hand\b/);
    assert.match(dry, /nothing to do|\d/);
    const wet = await runJob(page, 'Run now');
    assert.doesNotMatch(wet, /\bdry\b/);
    await page.goto('/console/jobs');
    const job = page.getByRole('listitem').filter({ has: page.getByRole('link', { name: 'sweep-blobs', exact: true }) });
    assert.match(await job.innerText(), /\bdone\b/);
  });
});

test('hostile names are text', async () => {
  const markup = `"'><script>alert(1)</script><img src=x onerror=alert(2)>`;
  for (const name of [markup, 'x'.repeat(200), '\u202Eexe.txt \u05D0\u05D1\u05D2', '{{7*7}} %00 &lt;b&gt;']) {
    const hostile = await makeTenant({ name, external_id: `${randomUUID()} ${markup}` });
    for (const width of [390, 1440]) {
      await signedIn({ width }, async (page) => {
        for (const path of [hostile.href, '/console/tenants']) {
          await open(page, path);
          await page.getByText(name).first().waitFor();
          assert.equal(await page.locator('main img, main script').count(), 0);
          await assertNoSidewaysScroll(page);
        }
        await page.goto(`/console/tenants?name=${encodeURIComponent(hostile.external_id)}`);
        assert.equal(await page.locator('table.list tbody tr').count(), 1);
      });
    }
  }
});

// The pages look the same, whatever a person uses.
for (const colorScheme of HAS_KEYBOARD_ONLY ? [] : SCHEMES) {
  for (const width of WIDTHS) {
    test(`every screen fits and is accessible, ${colorScheme}, ${width} px`, async () => {
      await withPage(browser, { colorScheme, width }, async (page) => {
        await page.goto('/console');
        await assertNoSidewaysScroll(page);
        await assertAccessible(page);
        await signIn(page);
        for (const path of screens) {
          await open(page, path);
          await assertNoSidewaysScroll(page);
          await assertAccessible(page);
        }
      });
    });
  }
}

test('every screen can be read and used without JavaScript', async () => {
  await signedIn({ javaScriptEnabled: false }, async (page) => {
    for (const path of screens) {
      await open(page, path);
      assert.ok((await shown(page)).length > 50, path);
    }
    await page.goto(tenant.href);
    await suspend(page);
    await says(page, 'The tenant was suspended.');
    await press(page, 'Resume');
    await says(page, 'The tenant is served again.');
    assert.match(await runJob(page, 'Dry run'), /\bdry\b/);
  });
});
