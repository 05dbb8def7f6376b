// The TypeScript SDK's sync of a session's memory stores with folders on disk.

import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, readdir, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';

import { MARKER_PATH, SessionMemoryStores } from '@anthropic-ai/sdk/tools/agent-toolset/node';

import { BYTES_PER_MEMORY, clientWith, everything, holderOf } from './support.js';

const { memories, memoryVersions } = clientWith().beta.memoryStores;

/** One store of the session, and its folder. */
class Mount {
  /**
   * @param {string} storeId
   * @param {string} root
   * @param {'read_write' | 'read_only'} access
   */
  constructor(storeId, root, access) {
    this.storeId = storeId;
    this.root = root;
    this.access = access;
  }

  /** @param {string} folder @param {string} name @param {'read_write' | 'read_only'} access */
  static async make(folder, name, access) {
    const store = await clientWith().beta.memoryStores.create({ name });
    return new Mount(store.id, join(folder, 'mnt', 'memory', name), access);
  }

  resource() {
    return { type: /** @type {const} */ ('memory_store'), memory_store_id: this.storeId, access: this.access };
  }

  /** What lies in the folder, but for the SDK's marker. */
  async files() {
    /** @type {Record<string, string>} */
    const found = {};
    for (const name of /** @type {string[]} */ (await readdir(this.root, { recursive: true }))) {
      const path = join(this.root, name);
      if ((await stat(path)).isFile()) found[relative(this.root, path)] = await readFile(path, 'utf8');
    }
    delete found[MARKER_PATH];
    return found;
  }

  /** @param {string} name @param {string} content */
  async write(name, content) {
    const path = join(this.root, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
  }

  /** @param {string} name */
  remove(name) {
    return rm(join(this.root, name));
  }

  /** @param {string} name @param {string} content */
  create(name, content) {
    return memories.create(this.storeId, { path: `/${name}`, content });
  }

  /** @param {'basic' | 'full'} view */
  async listed(view) {
    const items = await everything(memories.list(this.storeId, { limit: 100, view }));
    return items.flatMap((item) => (item.type === 'memory' ? [item] : []));
  }

  /** @param {string} name */
  async memory(name) {
    const memory = (await this.listed('basic')).find((item) => item.path === `/${name}`);
    assert.ok(memory, name);
    return memory;
  }

  /** @param {string} name @param {string} content */
  async update(name, content) {
    await memories.update((await this.memory(name)).id, { memory_store_id: this.storeId, content });
  }

  /** @param {string} name */
  async delete(name) {
    await memories.delete((await this.memory(name)).id, { memory_store_id: this.storeId });
  }

  /** What the server holds, by the names of the files. */
  async held() {
    return Object.fromEntries((await this.listed('full')).map((item) => [item.path.slice(1), item.content]));
  }
}

/**
 * A session of two stores, one of them read-only.
 * @param {import('node:test').TestContext} t
 */
async function newSession(t) {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'keepsake-')));
  t.after(() => rm(folder, { recursive: true, force: true }));
  /** @type {string[]} */
  const warnings = [];
  const silent = () => {};
  const logger = {
    error: (/** @type {string} */ text) => warnings.push(text),
    warn: (/** @type {string} */ text) => warnings.push(text),
    info: silent,
    debug: silent,
  };
  const own = await Mount.make(folder, 'own', 'read_write');
  const shared = await Mount.make(folder, 'shared', 'read_only');
  const session = await clientWith().beta.sessions.create({
    agent: 'agent_1',
    environment_id: 'env_1',
    resources: [own.resource(), shared.resource()],
  });
  for (const resource of session.resources) {
    // Below a temporary folder of the test: a worker has its own file system.
    if (resource.type === 'memory_store') resource.mount_path = folder + resource.mount_path;
  }
  // With the session's token, and nothing else.
  const sync = new SessionMemoryStores(holderOf(session, { logger, logLevel: 'warn' }), { workdir: folder });
  // The sync's clock: a minute on, any sync is due, and any file missed before is long gone.
  let now = Date.now();
  t.mock.method(Date, 'now', () => now);
  return {
    own,
    shared,
    warnings,
    download: () => sync.download(session),
    finish: () => sync.finish(),
    flush: () => sync.flushWrites(),
    dispose: () => sync.dispose(),
    roots: () => sync.roots,
    readOnlyRoots: () => sync.readOnlyRoots,
    /** A sync, a minute later. */
    later: () => {
      now += 60_000;
      return sync.syncIfDue();
    },
    agreed: async () => {
      for (const mount of [own, shared]) assert.deepEqual(await mount.files(), await mount.held());
    },
  };
}

test('server and disk are equal at the end of a session', async (t) => {
  const session = await newSession(t);
  const { own, shared } = session;
  const names = [...Array(25).keys()].map((n) => `${n % 3}/${n}.md`);
  for (const name of names) await own.create(name, `first of ${name}\n`);
  await own.create('empty', '');
  await shared.create('rules.md', 'Be kind.\n');
  await session.download();
  assert.deepEqual(session.roots(), [own.root, shared.root]);
  assert.deepEqual(session.readOnlyRoots(), [shared.root]);
  await session.agreed();

  await own.write('0/0.md', 'edited here\n');
  await own.write('new/ü.md', 'new here\r\n');
  await own.update('1/1.md', 'edited there\n');
  await own.create('there', 'new there\n');
  await own.delete('2/2.md');
  await shared.update('rules.md', 'Be kinder.\n');
  await own.remove('0/3.md');
  await session.later();
  assert.deepEqual(session.warnings, []);
  assert.ok('0/3.md' in (await own.held()), 'a file that is missed is not deleted at once');
  await session.later();
  await session.agreed();
  const held = await own.held();
  assert.equal(held['0/0.md'], 'edited here\n');
  assert.equal(held['1/1.md'], 'edited there\n');
  assert.equal(held['new/ü.md'], 'new here\r\n');
  assert.ok(!('0/3.md' in held) && !('2/2.md' in held));

  await own.remove('1/4.md');
  await own.write('last', 'the last word\n');
  await session.finish();
  await session.agreed();
  assert.ok(!('1/4.md' in (await own.held())));
  assert.deepEqual(session.warnings, []);
  await session.dispose();
  await assert.rejects(stat(own.root));
});

test('the server wins edit conflicts, and an edit wins over a deletion', async (t) => {
  const session = await newSession(t);
  const { own } = session;
  for (const name of ['both', 'deleted here', 'deleted there', 'kept']) await own.create(name, 'first\n');
  await session.download();
  await own.write('both', 'here\n');
  await own.update('both', 'there\n');
  await own.remove('deleted here');
  await own.update('deleted here', 'there\n');
  await own.write('deleted there', 'here\n');
  await own.delete('deleted there');
  await session.later();
  assert.equal(session.warnings.length, 2);
  await session.agreed();
  assert.deepEqual(await own.files(), {
    both: 'there\n',
    'deleted here': 'there\n',
    'deleted there': 'here\n',
    kept: 'first\n',
  });
});

test('a refused file does not block other files', async (t) => {
  const session = await newSession(t);
  const { own } = session;
  await session.download();
  await own.write('large', 'x'.repeat(BYTES_PER_MEMORY + 1));
  await own.write('nul', 'a\0b');
  await own.write('small', 'fine\n');
  await session.later();
  assert.equal(session.warnings.length, 2);
  assert.deepEqual(await own.held(), { small: 'fine\n' });
  await session.later();
  assert.equal(session.warnings.length, 2);
  await own.write('large', 'x'.repeat(BYTES_PER_MEMORY));
  await own.write('nul', 'ab');
  await session.later();
  await session.agreed();
});

test('a flush uploads at once, and never to a read-only store', async (t) => {
  const session = await newSession(t);
  const { own, shared } = session;
  await own.create('deleted', 'first\n');
  await shared.create('rules.md', 'Be kind.\n');
  await session.download();
  await own.remove('deleted');
  for (let n = 0; n < 60; n++) await own.write(`new/${n}`, `${n}\n`);
  await shared.write('rules.md', 'Be rude.\n');
  await session.flush();
  assert.deepEqual(session.warnings, []);
  const held = await own.held();
  assert.equal(Object.keys(held).length, 61);
  assert.equal(held['new/59'], '59\n');
  await session.later();
  assert.deepEqual(await shared.held(), { 'rules.md': 'Be kind.\n' });
  assert.equal((await everything(memoryVersions.list(shared.storeId))).length, 1);
});
