// A browser, pages in it, and what must hold for every page.

import assert from 'node:assert/strict';
import { after } from 'node:test';

import { AxeBuilder } from '@axe-core/playwright';
import { chromium } from 'playwright-core';

export const URL_OF_SERVER = required('KEEPSAKE_BASE_URL');

export const WIDTHS = [390, 768, 1440];
export const SCHEMES = ['light', 'dark'];

/** How every page is looked at; axe-core is slow, so it judges only two of the looks. */
export const LOOKS = [
  { colorScheme: 'light', width: 390, isJudged: true },
  { colorScheme: 'light', width: 768, isJudged: false },
  { colorScheme: 'light', width: 1440, isJudged: false },
  { colorScheme: 'dark', width: 1440, isJudged: true },
];

/** Whether Tab and keys do what a mouse does otherwise. */
export const HAS_KEYBOARD_ONLY = process.env.KEEPSAKE_TEST_KEYBOARD === '1';

const MAX_TABS = 1_000;

const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function required(variable) {
  const value = process.env[variable];
  assert.ok(value, `${variable} is not set: run ./tests/run`);
  return value;
}

export function launch() {
  return chromium.launch({ executablePath: required('KEEPSAKE_TEST_CHROMIUM'), args: ARGUMENTS });
}

/** The browser that the tests of one file share; it ends with them. */
export async function startBrowser() {
  const browser = await launch();
  after(() => browser.close());
  return browser;
}

/**
 * Runs `action` with a new page of its own context. Afterwards the page must have
 * caused no error, no CSP violation and no request to another host.
 *
 * `options` are those of a context, and `width`.
 */
export async function withPage(browser, options, action) {
  const { width = 1440, baseURL = URL_OF_SERVER, ...rest } = options;
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    baseURL,
    reducedMotion: 'reduce',
    ...rest,
  });
  try {
    const page = await context.newPage();
    const problems = watch(page, new URL(baseURL).host);
    const result = await action(page, problems);
    assert.deepEqual(problems, []);
    return result;
  } finally {
    await context.close();
  }
}

/** The problems of a page of the host `ours` and of the pages that it opens, as they occur. */
function watch(page, ours) {
  const problems = [];
  page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  page.on('console', (message) => {
    // The statuses are judged below.
    const isStatus = message.text().startsWith('Failed to load resource: the server responded');
    if (message.type() === 'error' && !isStatus) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(`not caught: ${error}`));
  page.on('dialog', async (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.host !== ours) problems.push(`foreign request: ${url}`);
  });
  page.on('response', (response) => {
    // A page may say that something cannot be done; what it loads must be there.
    const limit = response.request().resourceType() === 'document' ? 500 : 400;
    if (response.status() >= limit) problems.push(`${response.status()} for ${response.url()}`);
  });
  return problems;
}

/** No part of the page makes it scroll sideways, and nothing hides such a part. */
export async function assertNoSidewaysScroll(page) {
  // After a click the document may still be without a body.
  await page.waitForLoadState();
  const found = await page.evaluate(() => {
    const root = document.documentElement;
    const wide = [...document.body.querySelectorAll('*')]
      .filter((element) => element.getBoundingClientRect().right > root.clientWidth + 1)
      .map((element) => `${element.tagName} ${element.id} ${element.className}`);
    const overflows = [root, document.body].map((element) => getComputedStyle(element).overflowX);
    return { overflow: root.scrollWidth - root.clientWidth, overflows, wide: wide.slice(0, 5) };
  });
  const shown = `${page.url()} at ${page.viewportSize().width} px: ${JSON.stringify(found)}`;
  assert.ok(found.overflow <= 0, shown);
  assert.ok(found.overflows.every((overflow) => overflow === 'visible' || overflow === 'auto'), shown);
}

/** axe-core finds nothing wrong with the page, or with the parts that the selectors name. */
export async function assertAccessible(page, ...selectors) {
  // In one call, without a second page that sums up frames (no page has any), and without
  // a list of the elements that pass.
  const axe = new AxeBuilder({ page }).setLegacyMode().options({ resultTypes: ['violations'] });
  for (const selector of selectors) axe.include(selector);
  const { violations } = await axe.analyze();
  const shown = violations.map(({ id, help, nodes }) => ({
    id,
    help,
    nodes: nodes.slice(0, 3).map(({ html, failureSummary }) => ({ html: html.slice(0, 200), failureSummary })),
  }));
  assert.deepEqual(shown, [], `${page.url()}: ${JSON.stringify(shown, null, 1)}`);
}

/** Clicks a control, or goes to it with Tab and presses the key. */
export async function use(control, key = 'Enter') {
  if (!HAS_KEYBOARD_ONLY) return control.click();
  await control.waitFor();
  const next = () => control.evaluate((element) => {
    const { activeElement } = document;
    if (activeElement === element) return null;
    const isBefore = activeElement.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING;
    return isBefore ? 'Shift+Tab' : 'Tab';
  });
  let direction = await next();
  for (let tabs = 0; direction !== null && tabs < MAX_TABS; tabs += 1) {
    await control.page().keyboard.press(direction);
    direction = await next();
  }
  assert.equal(direction, null, `Tab does not lead to ${control}`);
  return control.press(key);
}

/** Whether the element is inside the window. */
export async function isInView(locator) {
  const box = await locator.boundingBox();
  const { height } = locator.page().viewportSize();
  return box !== null && box.y >= 0 && box.y < height;
}

/** Sends a request of the API with the tests' key; answers the body. */
export function api(method, path, body, key = required('KEEPSAKE_API_KEY')) {
  return send(method, path, body, { 'x-api-key': key });
}

/** Sends a request that must succeed; answers the body. */
export async function send(method, path, body, credential) {
  const headers = { ...credential };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const response = await fetch(URL_OF_SERVER + path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}
