// Sessions through the official TypeScript SDK.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

import { NO_STORE, TIME, assertShape, badRequest, clientWith, everything, holderOf, id, notFound, refused } from './support.js';

const client = clientWith();
const sessions = client.beta.sessions;

const SESSION = {
  id: 'string',
  type: 'string',
  agent: 'object',
  environment_id: 'string',
  title: 'string null',
  metadata: 'object',
  resources: 'object',
  status: 'string',
  vault_ids: 'object',
  created_at: 'string',
  updated_at: 'string',
  archived_at: 'string null',
  budget: 'null',
  deployment_id: 'null',
  outcome_evaluations: 'object',
  stats: 'object',
  usage: 'object',
  system_prompt: 'string',
};

/** @param {string} name */
const newStore = async (name) => (await client.beta.memoryStores.create({ name })).id;

/**
 * @param {string} storeId
 * @param {'read_write' | 'read_only'} access
 * @returns {import('@anthropic-ai/sdk').Anthropic.Beta.BetaManagedAgentsMemoryStoreResourceParam}
 */
const attached = (storeId, access = 'read_write') => ({ type: 'memory_store', memory_store_id: storeId, access });

/** @param {Partial<import('@anthropic-ai/sdk').Anthropic.Beta.SessionCreateParams>} fields */
const open = (fields = {}) => sessions.create({ agent: 'agent_1', environment_id: 'env_1', ...fields });

test('create returns the whole session, and retrieve the same without its token', async () => {
  const store = await newStore('Team Rules');
  const session = await open({
    title: 'Fix it',
    metadata: { user: 'ü' },
    vault_ids: ['vlt_1'],
    resources: [{ ...attached(store, 'read_only'), instructions: 'Read.' }],
  });
  assertShape(session, { ...SESSION, token: 'string' });
  assert.match(session.id, id('sesn'));
  assert.match(session.created_at, TIME);
  assert.deepEqual([session.status, session.title, session.metadata], ['idle', 'Fix it', { user: 'ü' }]);
  assert.deepEqual([session.agent.id, session.agent.type, session.agent.tools], ['agent_1', 'agent', []]);
  const [resource] = session.resources;
  assert.ok(resource.type === 'memory_store');
  assert.equal(resource.memory_store_id, store);
  assert.deepEqual([resource.access, resource.instructions], ['read_only', 'Read.']);
  assert.deepEqual([resource.name, resource.mount_path], ['Team Rules', '/mnt/memory/team-rules']);
  const found = await sessions.retrieve(session.id);
  assertShape(found, SESSION);
  assert.deepEqual({ ...found, token: /** @type {any} */ (session).token }, session);
});

test('update, archive and delete', async () => {
  const session = await open({ metadata: { a: '1', b: '2' } });
  const changed = await sessions.update(session.id, { title: 't', metadata: { a: null, c: '3' } });
  assert.deepEqual([changed.title, changed.metadata], ['t', { b: '2', c: '3' }]);
  const archived = await sessions.archive(session.id);
  assert.equal(archived.status, 'terminated');
  assert.match(archived.archived_at ?? '', TIME);
  await badRequest(() => sessions.update(session.id, { title: 'x' }), 'archived');
  assert.deepEqual(await sessions.delete(session.id), { id: session.id, type: 'session_deleted' });
  await notFound(() => sessions.retrieve(session.id));
});

test('list goes over all pages with every filter', async () => {
  const store = await newStore('listed');
  const made = [];
  for (let n = 0; n < 5; n++) made.push((await open({ resources: [attached(store)] })).id);
  await sessions.archive(made[4]);
  /** @param {import('@anthropic-ai/sdk').Anthropic.Beta.SessionListParams} filters */
  const listed = async (filters) =>
    (await everything(sessions.list({ memory_store_id: store, ...filters }))).map((session) => session.id);
  assert.deepEqual(await listed({ limit: 2 }), made.slice(0, 4).reverse());
  assert.deepEqual(await listed({ limit: 3, order: 'asc', include_archived: true }), made);
  assert.deepEqual(await listed({ statuses: ['terminated'] }), [made[4]]);
  assert.deepEqual(await listed({ statuses: ['idle', 'terminated'], order: 'asc' }), made);
  const third = await sessions.retrieve(made[2]);
  assert.deepEqual(await listed({ 'created_at[gt]': third.created_at }), [made[3]]);
  assert.deepEqual(await listed({ 'created_at[lte]': third.created_at, order: 'asc' }), made.slice(0, 3));
  assert.deepEqual(await listed({ agent_id: 'nobody' }), []);
});

test('resources are listed, retrieved and detached', async () => {
  const [first, second] = [await newStore('first'), await newStore('second')];
  const session = await open({ resources: [attached(first), attached(second, 'read_only')] });
  const { resources } = sessions;
  const listed = await everything(resources.list(session.id));
  assert.deepEqual(listed, session.resources);
  assert.deepEqual(await everything(resources.list(session.id, { limit: 1 })), listed);
  const found = await resources.retrieve(second, { session_id: session.id });
  assert.deepEqual(found, listed[1]);
  const gone = await resources.delete(second, { session_id: session.id });
  assert.equal(gone.type, 'session_resource_deleted');
  await notFound(() => resources.retrieve(second, { session_id: session.id }));
  await badRequest(() => resources.add(session.id, { type: 'file', file_id: 'file_1' }), '`type`');
});

test('resources other than memory stores are refused', async () => {
  await badRequest(() => open({ resources: [{ type: 'file', file_id: 'file_1' }] }), 'resources[0]');
  await notFound(() => open({ resources: [attached(NO_STORE)] }));
});

test('a session token works for its stores until the session ends', async () => {
  const [own, shared] = [await newStore('own'), await newStore('shared')];
  const session = await open({ resources: [attached(own), attached(shared, 'read_only')] });
  const holder = holderOf(session);
  const { memories } = holder.beta.memoryStores;
  const memory = await memories.create(own, { path: '/a.md', content: 'x' });
  const version = await client.beta.memoryStores.memoryVersions.retrieve(memory.memory_version_id, {
    memory_store_id: own,
  });
  assert.deepEqual(version.created_by, { type: 'session_actor', session_id: session.id });
  await refused(Anthropic.PermissionDeniedError, 'permission_error', () =>
    memories.create(shared, { path: '/a.md', content: 'x' }),
  );
  const call = { command: 'view', path: '/memories/shared' };
  await holder.post(`/v1/sessions/${session.id}/tool_calls`, { body: call });
  const events = await everything(sessions.events.list(session.id));
  assert.deepEqual(events.map((event) => event.type), ['agent.tool_use']);
  const stream = await sessions.events.stream(session.id);
  await holder.post(`/v1/sessions/${session.id}/tool_calls`, { body: call });
  for await (const event of stream) {
    assert.deepEqual([event], (await everything(sessions.events.list(session.id))).slice(1));
    break;
  }
  await sessions.archive(session.id);
  await refused(Anthropic.AuthenticationError, 'authentication_error', () =>
    holder.beta.sessions.retrieve(session.id),
  );
});
