// Memory stores through the official TypeScript SDK.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

import {
  API_KEY,
  NO_MEMORY,
  NO_STORE,
  NO_VERSION,
  Proxy,
  STORE,
  TIME,
  WORKSPACE_ID,
  anotherKey,
  assertShape,
  badRequest,
  clientWith,
  everything,
  id,
  notFound,
  refused,
} from './support.js';

const client = clientWith();
const stores = client.beta.memoryStores;

/** @param {number} count */
async function make(count) {
  const made = [];
  for (let n = 0; n < count; n++) made.push(await stores.create({ name: `store ${n}` }));
  return made;
}

/** @param {{id: string}[]} items */
const ids = (items) => items.map((item) => item.id);

test('create and retrieve return the whole store', async () => {
  const store = await stores.create({ name: 'Notes', description: 'Of a trip', metadata: { user: 'ü', n: '' } });
  assertShape(store, STORE);
  assert.match(store.id, id('memstore'));
  assert.equal(store.type, 'memory_store');
  assert.equal(store.name, 'Notes');
  assert.equal(store.description, 'Of a trip');
  assert.deepEqual(store.metadata, { user: 'ü', n: '' });
  assert.match(store.created_at, TIME);
  assert.equal(store.updated_at, store.created_at);
  assert.equal(store.archived_at, null);
  assert.deepEqual(await stores.retrieve(store.id), store);
  const bare = await stores.create({ name: 'Bare' });
  assert.equal(bare.description, '');
  assert.deepEqual(bare.metadata, {});
});

test('update merges metadata, and null removes a key', async () => {
  const store = await stores.create({ name: 'notes', metadata: { kept: '1', changed: '2', removed: '3' } });
  const updated = await stores.update(store.id, {
    name: 'New',
    description: 'words',
    metadata: { changed: 'two', removed: null, added: '4' },
  });
  assert.deepEqual(updated.metadata, { kept: '1', changed: 'two', added: '4' });
  assert.equal(updated.name, 'New');
  assert.ok(updated.updated_at > store.updated_at);
  const same = await stores.update(store.id, { name: null, description: null, metadata: null });
  assert.deepEqual([same.name, same.description, same.metadata], ['New', 'words', updated.metadata]);
  const cleared = await stores.update(store.id, { description: '' });
  assert.equal(cleared.description, '');
  assert.deepEqual(await stores.retrieve(store.id), cleared);
});

test('archived stores refuse writes and are listed on request', async () => {
  const store = await stores.create({ name: 'notes' });
  const archived = await stores.archive(store.id);
  assert.match(archived.archived_at ?? '', TIME);
  assert.equal((await stores.archive(store.id)).archived_at, archived.archived_at);
  await badRequest(() => stores.update(store.id, { name: 'b' }), 'archived');
  await badRequest(() => stores.memories.create(store.id, { path: '/a', content: 'a' }), 'archived');
  const window = { 'created_at[gte]': store.created_at, 'created_at[lte]': store.created_at };
  assert.deepEqual(ids(await everything(stores.list(window))), []);
  assert.deepEqual(ids(await everything(stores.list({ include_archived: true, ...window }))), [store.id]);
});

test('a deleted store and its memories are not found', async () => {
  const store = await stores.create({ name: 'notes' });
  const memory = await stores.memories.create(store.id, { path: '/a', content: 'a' });
  assert.deepEqual(await stores.delete(store.id), { id: store.id, type: 'memory_store_deleted' });
  await notFound(() => stores.retrieve(store.id));
  await notFound(() => stores.archive(store.id));
  await notFound(() => stores.delete(store.id));
  await notFound(() => stores.memories.retrieve(memory.id, { memory_store_id: store.id }));
  await notFound(() => stores.memoryVersions.list(store.id));
});

test('list pages through all, newest first', async () => {
  const made = await make(7);
  const window = { 'created_at[gte]': made[0].created_at, 'created_at[lte]': made[6].created_at };
  const mine = new Set(ids(made));
  const listed = await everything(stores.list({ limit: 3, ...window }));
  assert.deepEqual(
    listed.filter((store) => mine.has(store.id)),
    [...made].reverse(),
  );
  let page = await stores.list({ limit: 3, ...window });
  const found = ids(page.data);
  while (page.hasNextPage()) {
    assert.match(page.next_page ?? '', /^page_/);
    assert.equal(page.data.length, 3);
    page = await page.getNextPage();
    found.push(...ids(page.data));
  }
  assert.deepEqual(
    found.filter((store_id) => mine.has(store_id)),
    ids(made).reverse(),
  );
  const only = { 'created_at[gte]': made[3].created_at, 'created_at[lte]': made[3].created_at };
  assert.deepEqual(ids(await everything(stores.list(only))), [made[3].id]);
  await badRequest(() => stores.list({ 'created_at[gte]': 'yesterday' }), 'created_at');
  await badRequest(() => stores.list({ page: 'page_nonsense' }), 'page');
});

test('a page has 1 to 100 items, and 20 by default', async () => {
  const made = await make(21);
  const window = { 'created_at[gte]': made[0].created_at };
  assert.equal((await stores.list(window)).data.length, 20);
  assert.ok((await stores.list({ limit: 100, ...window })).data.length >= 21);
  for (const limit of [0, 101]) await badRequest(() => stores.list({ limit }), 'limit');
});

test('responses have request and workspace ids', async () => {
  const { data, response, request_id } = await stores.create({ name: 'raw' }).withResponse();
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'application/json');
  assert.equal(response.headers.get('anthropic-workspace-id'), WORKSPACE_ID);
  assert.match(request_id ?? '', id('req'));
  assert.equal(response.headers.get('request-id'), request_id);
  assert.equal(/** @type {any} */ (data)._request_id, request_id);
  const raw = await stores.retrieve(data.id).asResponse();
  assert.deepEqual(await raw.json(), { ...data });
  for (const call of [
    () => stores.list({ limit: 1 }),
    () => stores.update(data.id, {}),
    () => stores.archive(data.id),
    () => stores.delete(data.id),
  ]) {
    const answer = await call().asResponse();
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('anthropic-workspace-id'), WORKSPACE_ID);
    await answer.text();
  }
});

test('bad and unknown fields are named', async () => {
  const store = await stores.create({ name: 'notes' });
  /** @type {[string, any][]} */
  const bad = [
    ['name', ''],
    ['name', 'x'.repeat(256)],
    ['name', 'a\nb'],
    ['description', 'x'.repeat(1025)],
    ['metadata', { '': 'v' }],
    ['metadata', { k: 1 }],
    ['metadata', Object.fromEntries([...Array(17).keys()].map((n) => [n, 'v']))],
    ['descripton', 'misspelt'],
  ];
  for (const [field, value] of bad) {
    await badRequest(() => stores.create({ name: 'notes', [field]: value }), `\`${field}\``);
    await badRequest(() => stores.update(store.id, { [field]: value }), `\`${field}\``);
  }
});

test('a repeated idempotency key creates one store', async () => {
  const options = { headers: { 'idempotency-key': randomUUID() } };
  const store = await stores.create({ name: 'once' }, options);
  assert.deepEqual(await stores.create({ name: 'once' }, options), store);
  await badRequest(() => stores.create({ name: 'twice' }, options));
});

test('credentials limit the allowed operations', async () => {
  const store = await stores.create({ name: 'notes', workspace_id: WORKSPACE_ID });
  const memory = await stores.memories.create(store.id, { path: '/a', content: 'a' });
  const unknown = clientWith({ apiKey: 'ks_live_nonsense' }).beta.memoryStores;
  await refused(Anthropic.AuthenticationError, 'authentication_error', () => unknown.list());
  const bearer = clientWith({ apiKey: null, authToken: API_KEY }).beta.memoryStores;
  assert.equal((await bearer.retrieve(store.id)).id, store.id);

  const foreign = { workspace_id: 'wrkspc_00000000000000000000000001' };
  await refused(Anthropic.PermissionDeniedError, 'permission_error', () => stores.retrieve(store.id, foreign));
  await refused(Anthropic.PermissionDeniedError, 'permission_error', () => stores.list(foreign));

  const reader = clientWith({ apiKey: anotherKey('READER') }).beta.memoryStores;
  assert.equal((await reader.memories.retrieve(memory.id, { memory_store_id: store.id })).content, 'a');
  for (const call of [
    () => reader.create({ name: 'b' }),
    () => reader.memories.create(store.id, { path: '/b', content: 'b' }),
    () => reader.memories.delete(memory.id, { memory_store_id: store.id }),
    () => reader.delete(store.id),
  ]) {
    const error = await refused(Anthropic.PermissionDeniedError, 'permission_error', call);
    assert.equal(error.workspaceID, WORKSPACE_ID);
  }

  const other = clientWith({ apiKey: anotherKey('OTHER') }).beta.memoryStores;
  for (const [there, nowhere] of [
    [() => other.retrieve(store.id), () => other.retrieve(NO_STORE)],
    [() => other.delete(store.id), () => other.delete(NO_STORE)],
    [() => other.memories.list(store.id), () => other.memories.list(NO_STORE)],
    [
      () => other.memories.retrieve(memory.id, { memory_store_id: store.id }),
      () => other.memories.retrieve(NO_MEMORY, { memory_store_id: NO_STORE }),
    ],
    [
      () => other.memoryVersions.retrieve(memory.memory_version_id, { memory_store_id: store.id }),
      () => other.memoryVersions.retrieve(NO_VERSION, { memory_store_id: NO_STORE }),
    ],
  ]) {
    assert.equal((await notFound(there)).apiMessage, (await notFound(nowhere)).apiMessage);
  }
  assert.equal((await stores.retrieve(store.id)).id, store.id);
});

test('a quota error is 429 and is not retried', async (t) => {
  const way = await Proxy.open(t);
  const limited = clientWith({ apiKey: anotherKey('LIMITED'), baseURL: way.url }).beta.memoryStores;
  const store = await limited.create({ name: 'small' });
  for (const path of ['/1', '/2', '/3']) await limited.memories.create(store.id, { path, content: 'x' });
  way.spoil([]);
  const call = () => limited.memories.create(store.id, { path: '/4', content: 'x' });
  const error = await refused(Anthropic.RateLimitError, 'rate_limit_error', call);
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  assert.deepEqual(way.seen(), [['POST', 429]]);
  await limited.delete(store.id);
});
