// Memories and their versions through the official TypeScript SDK.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  BYTES_PER_MEMORY,
  MEMORY,
  NO_MEMORY,
  NO_VERSION,
  PREVIEW,
  TIME,
  VERSION,
  WORKSPACE_ID,
  anotherKey,
  assertShape,
  badRequest,
  clientWith,
  conflict,
  everything,
  holds,
  id,
  notFound,
  paths,
  sha256,
} from './support.js';

const client = clientWith();
const { memories, memoryVersions: versions } = client.beta.memoryStores;

/** A store of the test's own, and calls on it. */
async function newStore() {
  const store_id = (await client.beta.memoryStores.create({ name: 'notes' })).id;
  const at = { memory_store_id: store_id };
  return {
    store_id,
    at,
    create: (path = '/notes.md', content = 'first\n') => memories.create(store_id, { path, content }),
    history: () => everything(versions.list(store_id, { limit: 100 })),
  };
}

/**
 * A field that the SDK's types do not know.
 * @param {object} fields
 */
const beyond = (fields) => /** @type {any} */ (fields);

test('create returns the memory, and retrieve its content', async () => {
  const { store_id, at } = await newStore();
  const memory = await memories.create(store_id, { path: '/a b/größe.md', content: 'größer\n' });
  assertShape(memory, MEMORY);
  assert.match(memory.id, id('mem'));
  assert.match(memory.memory_version_id, id('memver'));
  assert.equal(memory.type, 'memory');
  assert.equal(memory.memory_store_id, store_id);
  assert.equal(memory.path, '/a b/größe.md');
  assert.equal(memory.content, null);
  assert.equal(memory.content_size_bytes, 9);
  assert.equal(memory.content_sha256, sha256('größer\n'));
  assert.match(memory.created_at, TIME);
  const read = await memories.retrieve(memory.id, at);
  assertShape(read, MEMORY);
  assert.equal(read.content, 'größer\n');
  assert.equal((await memories.retrieve(memory.id, { ...at, view: 'basic' })).content, null);
  const whole = await memories.create(store_id, { path: '/b', content: '', view: 'full' });
  assert.equal(whole.content, '');
});

test('content is returned unchanged', async () => {
  const { at, create } = await newStore();
  for (const [n, content] of [
    '',
    '\n',
    '\ufeffwith a mark\r\nand\rall\nkinds of\u2028lines',
    'e\u0301 is not \u00e9',
    '\u{1f9e0}\u0001',
    'ü'.repeat(BYTES_PER_MEMORY / 2),
  ].entries()) {
    const memory = await create(`/${n}`, content);
    assert.equal(memory.content_sha256, sha256(content));
    assert.equal((await memories.retrieve(memory.id, at)).content, content);
  }
});

test('invalid fields are refused by name', async () => {
  const { store_id, create } = await newStore();
  await badRequest(() => create('/a', 'x'.repeat(BYTES_PER_MEMORY + 1)), 'content');
  await badRequest(() => create('/a', 'a\0b'), 'content');
  await badRequest(() => memories.create(store_id, { path: '/a', content: null }), '`content`');
  for (const path of ['', 'a', '/', '/a/', '/../a', '/a\u200b', '/.anthropic-memory-store']) {
    await badRequest(() => create(path), 'path');
  }
  const misspelt = beyond({ path: '/a', content: 'a', preconditon: {} });
  await badRequest(() => memories.create(store_id, misspelt), '`preconditon`');
});

test('a taken path is a conflict, and only a plain preview client replaces the memory', async () => {
  const { store_id, create, history } = await newStore();
  const memory = await create('/a/b', '1');
  const inTheWay = { conflicting_memory_id: memory.id, conflicting_path: '/a/b' };
  await conflict('memory_path_conflict_error', () => create('/a/b', '2'), inTheWay);
  await conflict('memory_path_conflict_error', () => create('/a/b/c', '2'), inTheWay);
  const notExists = beyond({ path: '/a/b', content: '2', precondition: { type: 'not_exists' } });
  await conflict('memory_precondition_failed_error', () => memories.create(store_id, notExists));
  await conflict('memory_precondition_failed_error', () => memories.create(store_id, notExists, PREVIEW));
  const new_content = { path: '/a/b', content: '2' };
  // The SDKs 0.97 to 0.112 send the preview's header too, and `?beta=true`.
  const oldSdk = { ...PREVIEW, query: { beta: 'true' } };
  await conflict('memory_path_conflict_error', () => memories.create(store_id, new_content, oldSdk), inTheWay);
  const both = { ...new_content, betas: ['managed-agents-2026-04-01'] };
  await conflict('memory_path_conflict_error', () => memories.create(store_id, both), inTheWay);
  const plain = { body: new_content, ...PREVIEW };
  const over = /** @type {any} */ (await client.post(`/v1/memory_stores/${store_id}/memories`, plain));
  assert.equal(over.id, memory.id);
  assert.deepEqual(
    (await history()).map((version) => version.operation),
    ['modified', 'created'],
  );
});

test('update writes content and path under its precondition', async () => {
  const { at, create, history } = await newStore();
  const memory = await create('/a', '1');
  const edited = await memories.update(memory.id, { ...at, content: '2', precondition: holds('1'), view: 'full' });
  assert.equal(edited.content, '2');
  const stale = { ...at, content: '3', precondition: holds('1') };
  await conflict('memory_precondition_failed_error', () => memories.update(memory.id, stale), {
    current_content_sha256: sha256('2'),
    memory_id: memory.id,
  });
  const again = await memories.update(memory.id, { ...at, content: '2', precondition: holds('1') });
  assert.equal(again.memory_version_id, edited.memory_version_id);
  const moved = await memories.update(memory.id, { ...at, path: '/b', content: '3' });
  assert.deepEqual([moved.id, moved.path, moved.content], [memory.id, '/b', null]);
  const other = await create('/c', 'c');
  await conflict('memory_path_conflict_error', () => memories.update(memory.id, { ...at, path: '/c' }), {
    conflicting_memory_id: other.id,
    conflicting_path: '/c',
  });
  const nothing = beyond({ ...at, path: '/c', content: '4', precondition: { type: 'not_exists' } });
  assert.equal((await memories.update(memory.id, nothing)).memory_version_id, moved.memory_version_id);
  assert.equal((await history()).length, 4);
});

test('delete checks the expected content', async () => {
  const { store_id, at, create } = await newStore();
  const memory = await create('/a', '1');
  const stale = { ...at, expected_content_sha256: sha256('2') };
  await conflict('memory_precondition_failed_error', () => memories.delete(memory.id, stale), {
    current_content_sha256: sha256('1'),
    memory_id: memory.id,
  });
  const misspelt = beyond({ ...at, expected_sha256: sha256('1') });
  await badRequest(() => memories.delete(memory.id, misspelt, { query: { expected_sha256: sha256('1') } }));
  const expected = { ...at, expected_content_sha256: sha256('1') };
  assert.deepEqual(await memories.delete(memory.id, expected), { id: memory.id, type: 'memory_deleted' });
  await notFound(() => memories.delete(memory.id, at));
  await notFound(() => memories.retrieve(memory.id, at));
  await notFound(() => memories.retrieve(NO_MEMORY, at));
  assert.deepEqual(await everything(memories.list(store_id)), []);
});

test('list is ordered by path and filtered by folder and depth, over pages', async () => {
  const { store_id, create } = await newStore();
  const names = ['/top', '/notes/todo.md', '/notes/old/a', '/notes-archive/b', '/é', '/notes/old/b/c'];
  for (const name of names) await create(name);
  const inOrder = [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  for (const limit of [1, 4, 100]) {
    assert.deepEqual(paths(await everything(memories.list(store_id, { limit }))), inOrder);
    const children = await everything(memories.list(store_id, { limit, depth: 1, path_prefix: '/notes/' }));
    assert.deepEqual(children[0], { type: 'memory_prefix', path: '/notes/old/' });
    assert.deepEqual(paths(children), ['/notes/old/', '/notes/todo.md']);
  }
  for (const [query, named] of /** @type {[object, string][]} */ ([
    [{ path_prefix: '/notes' }, 'path_prefix'],
    [{ depth: 2 }, 'depth'],
    [{ limit: 101 }, 'limit'],
    [{ view: 'all' }, 'view'],
    [{ page: 'page_x' }, 'page'],
  ])) {
    await badRequest(() => memories.list(store_id, query), named);
  }
});

test('pages with content have at most 20 items', async () => {
  const { store_id, create } = await newStore();
  for (let n = 10; n < 33; n++) await create(`/${n}`, `of ${n}`);
  assert.equal((await memories.list(store_id)).data.length, 20);
  assert.equal((await memories.list(store_id, { limit: 100 })).data.length, 23);
  const lengths = [];
  const contents = [];
  for await (const page of (await memories.list(store_id, { limit: 100, view: 'full' })).iterPages()) {
    lengths.push(page.data.length);
    for (const item of page.data) contents.push(item.type === 'memory' && item.content);
  }
  assert.deepEqual(lengths, [20, 3]);
  assert.deepEqual(
    contents,
    [...Array(23).keys()].map((n) => `of ${n + 10}`),
  );
});

test('every change is one version, newest first, and the list is filtered', async () => {
  const { store_id, at, create, history } = await newStore();
  const memory = await create('/a', '1');
  const edited = await memories.update(memory.id, { ...at, content: '2' });
  await memories.delete(memory.id, at);
  const all = await history();
  all.forEach((version) => assertShape(version, VERSION));
  assert.deepEqual(
    all.map((version) => [version.operation, version.path, version.content, version.content_size_bytes]),
    [
      ['deleted', '/a', null, null],
      ['modified', '/a', null, 1],
      ['created', '/a', null, 1],
    ],
  );
  const [deleted, modified, created] = all;
  assert.equal(modified.id, edited.memory_version_id);
  assert.match(created.created_at, TIME);
  const actor = created.created_by;
  assert.ok(actor?.type === 'api_actor');
  assert.match(actor.api_key_id, id('apikey'));
  assert.equal((await versions.retrieve(created.id, at)).content, '1');
  assert.deepEqual(await versions.retrieve(created.id, { ...at, view: 'basic' }), created);
  await notFound(() => versions.retrieve(NO_VERSION, at));
  for (const [query, expected] of /** @type {[object, object[]][]} */ ([
    [{ limit: 1 }, all],
    [{ memory_id: memory.id }, all],
    [{ memory_id: NO_MEMORY }, []],
    [{ operation: 'deleted' }, [deleted]],
    [{ api_key_id: actor.api_key_id }, all],
    [{ api_key_id: 'apikey_00000000000000000000000001' }, []],
    [{ session_id: 'sesn_00000000000000000000000001' }, []],
    [{ service_account_id: 'svac_00000000000000000000000001' }, []],
    [{ 'created_at[gte]': modified.created_at }, [deleted, modified]],
    [{ 'created_at[lte]': modified.created_at }, [modified, created]],
  ])) {
    assert.deepEqual(await everything(versions.list(store_id, query)), expected, JSON.stringify(query));
  }
  await badRequest(() => versions.list(store_id, beyond({ operation: 'renamed' })), 'operation');
});

test('the history is filtered by key', async () => {
  const { store_id, at, create } = await newStore();
  const memory = await create('/a', '1');
  const writer = clientWith({ apiKey: anotherKey('WRITER') }).beta.memoryStores.memories;
  await writer.update(memory.id, { ...at, content: '2' });
  const [theirs, mine] = await everything(versions.list(store_id));
  for (const version of [theirs, mine]) {
    assert.ok(version.created_by?.type === 'api_actor');
    const query = { api_key_id: version.created_by.api_key_id };
    assert.deepEqual(await everything(versions.list(store_id, query)), [version]);
  }
});

test('redaction removes the content and keeps the rest', async () => {
  const { at, create } = await newStore();
  const memory = await create('/a', 'secret');
  await conflict('conflict_error', () => versions.redact(memory.memory_version_id, at));
  await memories.update(memory.id, { ...at, content: 'harmless' });
  const redacted = await versions.redact(memory.memory_version_id, at);
  assertShape(redacted, { ...VERSION, content_also_in: 'object' });
  assert.deepEqual(
    [redacted.path, redacted.content, redacted.content_sha256, redacted.content_size_bytes],
    [null, null, null, null],
  );
  assert.match(redacted.redacted_at ?? '', TIME);
  assert.deepEqual(redacted.redacted_by, redacted.created_by);
  assert.equal((await versions.redact(memory.memory_version_id, at)).redacted_at, redacted.redacted_at);
  assert.equal((await versions.retrieve(memory.memory_version_id, at)).content, null);
});

test('restore recreates a deleted memory', async () => {
  const { store_id, at, create } = await newStore();
  const memory = await create('/a', '1');
  await memories.delete(memory.id, at);
  /** @param {string} version_id */
  const restore = (version_id) =>
    /** @type {Promise<import('@anthropic-ai/sdk/resources/beta/memory-stores').BetaManagedAgentsMemory>} */ (
      client.post(`/v1/memory_stores/${store_id}/memory_versions/${version_id}/restore`)
    );
  const restored = await restore(memory.memory_version_id);
  assertShape(restored, MEMORY);
  assert.deepEqual([restored.id, restored.path], [memory.id, '/a']);
  assert.equal((await memories.retrieve(memory.id, at)).content, '1');
  const [, deleted] = await everything(versions.list(store_id));
  await conflict('conflict_error', () => restore(deleted.id));
});

test('responses have request and workspace ids', async () => {
  const { store_id, at, create } = await newStore();
  const memory = await create();
  const { data, response, request_id } = await memories.retrieve(memory.id, at).withResponse();
  assert.equal(data.content, 'first\n');
  assert.equal(response.headers.get('anthropic-workspace-id'), WORKSPACE_ID);
  assert.match(request_id ?? '', id('req'));
  const listed = await memories.list(store_id).withResponse();
  assert.deepEqual(paths(listed.data.data), ['/notes.md']);
  assert.match(listed.request_id ?? '', id('req'));
  for (const call of [
    () => memories.update(memory.id, { ...at, content: '2' }),
    () => versions.list(store_id),
    () => versions.retrieve(memory.memory_version_id, at),
    () => versions.redact(memory.memory_version_id, at),
    () => memories.delete(memory.id, at),
  ]) {
    const raw = await call().asResponse();
    assert.equal(raw.status, 200);
    assert.equal(raw.headers.get('anthropic-workspace-id'), WORKSPACE_ID);
    assert.match(raw.headers.get('request-id') ?? '', id('req'));
    await raw.text();
  }
});
