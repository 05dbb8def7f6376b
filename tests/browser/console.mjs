// Objects to look at, and every screen of the console that shows them.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { api, required, send, withPage } from './support.mjs';

/** Signs in with a key as a person does, and opens a page. */
export async function signIn(page, path = '/console', key = required('KEEPSAKE_API_KEY')) {
  await page.goto(path);
  await page.getByLabel('API key or token').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { level: 1 }).waitFor();
}

/** Runs `action` with a page of somebody who is signed in; see `withPage`. */
export function signedIn(browser, options, action) {
  return withPage(browser, options, async (page, problems) => {
    await signIn(page);
    return action(page, problems);
  });
}

/** The text that a person sees. */
export const shown = (page) => page.locator('main').innerText();

export async function makeStore(name = `Store ${randomUUID()}`, more = {}) {
  const store = await api('POST', '/v1/memory_stores', { name, ...more });
  return { ...store, href: `/console/stores/${store.id}` };
}

export async function makeMemory(store, path, content, key) {
  const memory = await api('POST', `/v1/memory_stores/${store.id}/memories`, { path, content }, key);
  return { ...memory, href: `${store.href}/memories/${memory.id}` };
}

export function edit(memory, changes, key) {
  return api('POST', `/v1/memory_stores/${memory.memory_store_id}/memories/${memory.id}`, changes, key);
}

/** The ids of a memory's versions, newest first. */
export async function versionsOf(memory) {
  const query = `memory_id=${memory.id}&limit=100`;
  const { data } = await api('GET', `/v1/memory_stores/${memory.memory_store_id}/memory_versions?${query}`);
  return data.map(({ id }) => id);
}

export async function makeSession(store, more = {}) {
  const resources = [{ type: 'memory_store', memory_store_id: store.id }];
  const session = await api('POST', '/v1/sessions', { agent: 'release-agent', environment_id: 'production', resources, ...more });
  return { ...session, href: `/console/sessions/${session.id}` };
}

/** Calls a tool as the agent of a session. */
export function callTool(session, input) {
  const call = { type: 'tool_use', id: `toolu_${randomUUID()}`, name: 'memory', input };
  return send('POST', `/v1/sessions/${session.id}/tool_calls`, call, { authorization: `Bearer ${session.token}` });
}

/**
 * A store, a memory with two versions, one that was deleted, a session with calls, a key and an erasure.
 * `texts` are used wherever somebody may write a text.
 */
export async function makeObjects(texts = {}) {
  const {
    name = `Team notes ${randomUUID().slice(0, 8)}`,
    description = 'What the team decided, and why.',
    path = '/notes/release.md',
    content = '# Release day\n\n- We ship on *Wednesdays*.\n- Ask Ada before you change the day.\n\n```sh\njust release\n```\n',
    old = '# Release day\n\n- We ship on *Tuesdays*.\n',
    title = 'Plan the next release',
    metadata = { team: 'release' },
  } = texts;
  const store = await makeStore(name, { description, metadata });
  const memory = await makeMemory(store, path, old);
  await edit(memory, { content });
  await makeMemory(store, '/people/ada.md', 'Ada leads the release team.\n');
  const deleted = await makeMemory(store, path.replace(/[^/]*$/, 'old.md'), old);
  await api('DELETE', `/v1/memory_stores/${store.id}/memories/${deleted.id}`);
  const versions = await versionsOf(memory);
  // So many memories that the undo goes on after the answer.
  const undone = await makeStore();
  for (const part of [0, 1]) {
    const create = (n) => ({ type: 'create', path: `/${part}/${n}`, content: '' });
    const operations = Array.from({ length: 251 }, (_, n) => create(n));
    await api('POST', `/v1/memory_stores/${undone.id}/memories/batch?memories=false`, { operations });
  }
  const undo = await api('POST', `/v1/memory_stores/${undone.id}/undo`, { path_prefix: '/' });
  const session = await makeSession(store, { title, metadata });
  await callTool(session, { command: 'view', path: '/memories' });
  const file = `${session.resources[0].mount_path}/todo.md`;
  await callTool(session, { command: 'create', path: file, file_text: 'Ask Ada about the release.\n' });
  const key = await api('POST', '/v1/api_keys', { name: `Key of ${name}`.slice(0, 255), scopes: ['memory:read'] });
  const erased = await makeStore();
  const erasure = await api('POST', '/v1/erasures', { memory_store_id: erased.id });
  return { store, memory, deleted, undone: `${undone.href}/undo/${undo.id}`, versions, session, key, erasure };
}

/** Every screen that shows these objects: its name and its path. */
export function screensOf({ store, memory, deleted, undone, versions, session, key, erasure }) {
  const directory = encodeURIComponent(memory.path.replace(/[^/]*$/, ''));
  const [to, from] = versions;
  const version = `${store.href}/versions/${from}`;
  return Object.entries({
    overview: '/console/overview?days=90',
    stores: `/console/stores?name=${encodeURIComponent(store.name.slice(0, 100))}`,
    store: store.href,
    directory: `${store.href}?path=${directory}`,
    memory: memory.href,
    'memory-raw': `${memory.href}?raw=1`,
    edit: `${memory.href}/edit`,
    delete: `${memory.href}/delete`,
    secret: `${memory.href}/secret`,
    new: `${store.href}/new`,
    history: `${memory.href}/history`,
    readers: `${memory.href}/readers`,
    'version-readers': `${version}/readers`,
    'store-history': `${store.href}/history`,
    'recently-deleted': `${store.href}/deleted`,
    'deleted-memory': deleted.href,
    past: `${store.href}?at_seq=2`,
    'past-memory': `${memory.href}?at_seq=1`,
    'past-memory-raw': `${memory.href}?at_seq=1&raw=1`,
    differences: `${store.href}/diff?from_seq=1`,
    tests: `${store.href}/tests`,
    'undo-choose': `${store.href}/undo`,
    undo: `${store.href}/undo?after_seq=0&overwrite=1`,
    'undo-progress': undone,
    fork: `${store.href}/fork?at_seq=1`,
    restore: `${store.href}/restore?at_seq=1`,
    compare: `${store.href}/compare?from=${from}&to=${to}`,
    'compare-split': `${store.href}/compare?from=${from}&to=${to}&view=split`,
    version,
    redact: `${version}/redact`,
    settings: `${store.href}/settings`,
    'store-usage': `${store.href}/usage`,
    search: '/console/search?q=release',
    'search-empty': '/console/search',
    sessions: `/console/sessions?store=${store.id}`,
    session: session.href,
    'session-reads': `${session.href}/reads`,
    usage: '/console/usage',
    keys: '/console/keys',
    key: `/console/keys/${key.id}`,
    audit: '/console/audit',
    erasures: '/console/erasures',
    'erasure-preview': `/console/erasures/preview?store=${store.id}`,
    erasure: `/console/erasures/${erasure.id}`,
    transfer: `/console/transfer?store=${store.id}`,
  });
}

/** Opens a screen, which must be there. */
export async function open(page, path) {
  const response = await page.goto(path);
  assert.equal(response.status(), 200, `${path}: ${response.status()}`);
}
