// Sign-in at the page of an issuer, which is on another site: `127.0.0.1`, not `localhost`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { URL_OF_SERVER, assertAccessible, required, startBrowser, withPage } from './support.mjs';

const browser = await startBrowser();

test('sign-in at the page of an issuer leads back to the page that was asked for', async () => {
  const issuer = required('KEEPSAKE_TEST_ISSUER');
  assert.notEqual(new URL(issuer).hostname, new URL(URL_OF_SERVER).hostname);
  await withPage(browser, {}, async (page, problems) => {
    await page.goto('/console/usage');
    await assertAccessible(page);
    await page.getByRole('button', { name: 'Sign in with Example', exact: true }).click();
    await page.waitForURL(`${URL_OF_SERVER}/console/usage`);
    await page.locator('header summary').click();
    await page.getByText('ada@example.com').waitFor();
    const cookies = await page.context().cookies();
    assert.deepEqual(
      cookies.map(({ name, sameSite }) => [name, sameSite]),
      [['keepsake_console', 'Strict']],
    );
    // The issuer's page is the only request to another host.
    const [first, ...others] = problems.splice(0);
    assert.ok(first?.startsWith(`foreign request: ${issuer}/authorize?`), first);
    assert.deepEqual(others, []);
  });
});
