// Results of the official TypeScript SDK's own retries.
//
// The SDK sends a request again after a 503, a 409 or a lost connection, and
// does not report it to its caller. A proxy provokes this and counts requests.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

import {
  LOST,
  PREVIEW,
  Proxy,
  UNAVAILABLE,
  clientWith,
  conflict,
  everything,
  holds,
  notFound,
  paths,
} from './support.js';

const direct = clientWith().beta.memoryStores;

/**
 * A store, and a client that reaches it through a proxy.
 * @param {import('node:test').TestContext} t
 */
async function spoilt(t) {
  const way = await Proxy.open(t);
  const stores = clientWith({ baseURL: way.url }).beta.memoryStores;
  const store = await direct.create({ name: 'notes' });
  const versionCount = async () => (await everything(direct.memoryVersions.list(store.id, { limit: 100 }))).length;
  return { way, stores, store, at: { memory_store_id: store.id }, versionCount };
}

test('an unavailable server is retried', async (t) => {
  const { way, stores, store, at } = await spoilt(t);
  way.spoil([UNAVAILABLE]);
  const memory = await stores.memories.create(store.id, { path: '/a', content: '1' });
  assert.deepEqual(way.seen(), [['POST', null], ['POST', 200]]);
  way.spoil([UNAVAILABLE, LOST]);
  assert.equal((await stores.memories.retrieve(memory.id, at)).content, '1');
  assert.deepEqual(way.seen(), [['GET', null], ['GET', 200], ['GET', 200]]);
  way.spoil([UNAVAILABLE, UNAVAILABLE, UNAVAILABLE]);
  await assert.rejects(async () => stores.memories.list(store.id), Anthropic.InternalServerError);
});

test('a lost page is retried', async (t) => {
  const { way, stores, store } = await spoilt(t);
  for (const name of 'abcdefg') await direct.memories.create(store.id, { path: `/${name}`, content: '' });
  way.spoil([null, UNAVAILABLE, null, LOST]);
  const listed = await everything(stores.memories.list(store.id, { limit: 3 }));
  assert.deepEqual(paths(listed), [...'abcdefg'].map((name) => `/${name}`));
  assert.equal(way.seen().length, 5);
});

test('a retried create conflicts with itself, and with an idempotency key is applied once', async (t) => {
  const { way, stores, store, versionCount } = await spoilt(t);
  way.spoil([LOST]);
  const error = await conflict('memory_path_conflict_error', () =>
    stores.memories.create(store.id, { path: '/a', content: '1' }),
  );
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 409]]);
  const [made] = await everything(direct.memories.list(store.id));
  assert.ok(made.type === 'memory');
  assert.equal(error.error.error.conflicting_memory_id, made.id);
  way.spoil([LOST]);
  const options = { headers: { 'idempotency-key': randomUUID() } };
  const memory = await stores.memories.create(store.id, { path: '/b', content: '1' }, options);
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 200]]);
  way.spoil([LOST]);
  const over = await stores.memories.create(store.id, { path: '/b', content: '2' }, PREVIEW);
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 200]]);
  assert.equal(over.id, memory.id);
  assert.equal(await versionCount(), 3);
});

test('a lost update is applied once, and a retried deletion finds nothing', async (t) => {
  const { way, stores, store, at, versionCount } = await spoilt(t);
  const memory = await direct.memories.create(store.id, { path: '/a', content: '1' });
  way.spoil([LOST]);
  const updated = await stores.memories.update(memory.id, { ...at, content: '2', precondition: holds('1') });
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 200]]);
  assert.notEqual(updated.memory_version_id, memory.memory_version_id);
  assert.equal(await versionCount(), 2);
  way.spoil([LOST]);
  const redacted = await stores.memoryVersions.redact(memory.memory_version_id, at);
  assert.ok(redacted.redacted_at);
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 200]]);
  way.spoil([LOST]);
  await notFound(() => stores.memories.delete(memory.id, at));
  assert.deepEqual(way.seen(), [['DELETE', 200], ['DELETE', 404]]);
  way.spoil([LOST]);
  assert.ok((await stores.archive(store.id)).archived_at);
  assert.deepEqual(way.seen(), [['POST', 200], ['POST', 200]]);
});

test('a permanent conflict is not retried', async (t) => {
  const { way, stores, store, at } = await spoilt(t);
  const memory = await direct.memories.create(store.id, { path: '/a', content: '1' });
  const stale = holds('0');
  for (const [type, call] of /** @type {[string, () => PromiseLike<unknown>][]} */ ([
    ['memory_path_conflict_error', () => stores.memories.create(store.id, { path: '/a', content: '2' })],
    [
      'memory_precondition_failed_error',
      () => stores.memories.update(memory.id, { ...at, content: '2', precondition: stale }),
    ],
    [
      'memory_precondition_failed_error',
      () => stores.memories.delete(memory.id, { ...at, expected_content_sha256: stale.content_sha256 }),
    ],
    ['conflict_error', () => stores.memoryVersions.redact(memory.memory_version_id, at)],
  ])) {
    way.spoil([]);
    await conflict(type, call);
    assert.equal(way.seen().length, 1, type);
  }
});
