// Shared by the suites: clients as users make them, and a proxy that injects faults.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer, request } from 'node:http';

import Anthropic from '@anthropic-ai/sdk';

/** @param {string} name */
function variable(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export const BASE_URL = variable('KEEPSAKE_BASE_URL');
export const API_KEY = variable('KEEPSAKE_API_KEY');
export const WORKSPACE_ID = variable('KEEPSAKE_WORKSPACE_ID');

export const BYTES_PER_MEMORY = 102_400;
export const PREVIEW = { headers: { 'anthropic-beta': 'managed-agents-2026-04-01' } };
/** Ids of objects that nobody ever made. */
export const NO_STORE = 'memstore_00000000000000000000000001';
export const NO_MEMORY = 'mem_00000000000000000000000001';
export const NO_VERSION = 'memver_00000000000000000000000001';

/** RFC 3339 in UTC with microseconds. */
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/**
 * The secret of an additional key.
 * @param {string} name says what is special about it
 */
export const anotherKey = (name) => variable(`KEEPSAKE_${name}_API_KEY`);

/** @param {import('@anthropic-ai/sdk').ClientOptions} options */
export const clientWith = (options = {}) => new Anthropic({ baseURL: BASE_URL, apiKey: API_KEY, ...options });

/**
 * A client as the SDK's worker makes it: with only a session's token.
 * @param {object} session as it was answered when it was made
 * @param {import('@anthropic-ai/sdk').ClientOptions} options
 */
export const holderOf = (session, options = {}) =>
  new Anthropic({ baseURL: BASE_URL, apiKey: null, authToken: /** @type {any} */ (session).token, ...options });

/** @param {string} prefix */
export const id = (prefix) => new RegExp(`^${prefix}_[0-9A-HJKMNP-TV-Z]{26}$`);

/** @param {string} content */
export const sha256 = (content) => createHash('sha256').update(content).digest('hex');

/**
 * The precondition that a memory's content is this.
 * @param {string} content
 * @returns {{type: 'content_sha256', content_sha256: string}}
 */
export const holds = (content) => ({ type: 'content_sha256', content_sha256: sha256(content) });

/** @param {{path?: string | null}[]} items */
export const paths = (items) => items.map((item) => item.path);

/**
 * Each item of a listing, over all its pages.
 * @template T
 * @param {AsyncIterable<T>} listing
 */
export async function everything(listing) {
  const found = [];
  for await (const item of listing) found.push(item);
  return found;
}

/**
 * Checks the names and types of an answer's fields; types are as `typeof` has
 * them, or `null`, or several of these.
 * @param {object} answer
 * @param {Record<string, string>} fields
 */
export function assertShape(answer, fields) {
  assert.deepEqual(Object.keys(answer).sort(), Object.keys(fields).sort());
  for (const [field, value] of Object.entries(answer)) {
    const type = value === null ? 'null' : typeof value;
    assert.ok(fields[field].split(' ').includes(type), `${field} is ${JSON.stringify(value)}`);
  }
}

export const STORE = {
  id: 'string',
  type: 'string',
  name: 'string',
  description: 'string',
  metadata: 'object',
  created_at: 'string',
  updated_at: 'string',
  archived_at: 'string null',
  memory_count: 'number',
  content_bytes: 'number',
  expires_unused_after: 'number null',
  sensitive_data_policy: 'string',
  records_reads: 'boolean',
  search_mode: 'string null',
};

export const MEMORY = {
  id: 'string',
  type: 'string',
  memory_store_id: 'string',
  memory_version_id: 'string',
  path: 'string',
  content: 'string null',
  content_size_bytes: 'number',
  content_sha256: 'string',
  created_at: 'string',
  updated_at: 'string',
  size_bytes: 'number',
  last_accessed_at: 'string null',
  expires_at: 'string null',
  expiry_time: 'string null',
  pinned: 'boolean',
};

export const VERSION = {
  id: 'string',
  type: 'string',
  memory_store_id: 'string',
  memory_id: 'string',
  seq: 'number',
  operation: 'string',
  path: 'string null',
  content: 'string null',
  content_size_bytes: 'number null',
  content_sha256: 'string null',
  created_at: 'string',
  created_by: 'object null',
  redacted_at: 'string null',
  redacted_by: 'object null',
};

/**
 * Checks that a call is refused with this error; returns the SDK's error.
 * @param {Function} errorClass
 * @param {string} type
 * @param {() => PromiseLike<unknown>} call
 * @param {string} named what the message names
 * @returns {Promise<import('@anthropic-ai/sdk').APIError & {error: any}>}
 */
export async function refused(errorClass, type, call, named = '') {
  /** @type {any} */
  let error;
  try {
    await call();
  } catch (raised) {
    error = raised;
  }
  assert.ok(error, `not refused: ${call}`);
  const isExpected = error instanceof errorClass;
  assert.ok(isExpected, `${call}: ${error.stack}`);
  assert.equal(error.error.type, 'error');
  assert.equal(error.error.error.type, type);
  assert.equal(error.type, type);
  assert.match(error.requestID, id('req'));
  assert.equal(error.error.request_id, error.requestID);
  assert.ok(error.error.error.message.includes(named), `${named} is not in ${error.message}`);
  return error;
}

/**
 * @param {() => PromiseLike<unknown>} call
 * @param {string} named
 */
export const badRequest = (call, named = '') =>
  refused(Anthropic.BadRequestError, 'invalid_request_error', call, named);

/** @param {() => PromiseLike<unknown>} call */
export const notFound = (call) => refused(Anthropic.NotFoundError, 'not_found_error', call);

/**
 * @param {string} type
 * @param {() => PromiseLike<unknown>} call
 * @param {Record<string, string>} fields what the error's object says beside
 */
export async function conflict(type, call, fields = {}) {
  const error = await refused(Anthropic.ConflictError, type, call);
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  for (const [field, value] of Object.entries(fields)) assert.equal(error.error.error[field], value, field);
  return error;
}

/** Faults of the proxy, each for one request. */
export const UNAVAILABLE = 'answered with 503, unseen by the server';
export const LOST = 'carried out, and the answer lost';
export const CUT = 'carried out, and the answer cut in its middle';
export const SILENT = 'carried out, and never answered';

const NOT_NOW = {
  status: 503,
  headers: { 'retry-after': '0.01' },
  body: '{"type":"error","error":{"type":"overloaded_error","message":"not now"}}',
};

/**
 * A proxy of the server that records requests and injects faults.
 *
 * A fault is for one request; a function among them is called before its
 * request goes on to the server, and an answer is given instead of the server's.
 * Further requests pass.
 * @typedef {{status: number, headers?: Record<string, string>, body?: string}} Answer
 * @typedef {string | null | Answer | (() => Promise<unknown>)} Fault
 */
export class Proxy {
  /** @type {Fault[]} */
  #faults = [];
  /** @type {string | null} */
  #spoiltMethod = null;
  /** @type {[string, number | null][]} */
  #requests = [];
  /** @type {{headers: import('node:http').IncomingHttpHeaders, body: string}[]} */
  #sent = [];
  #server = createServer((incoming, outgoing) => {
    this.#handle(incoming, outgoing).catch((error) => outgoing.destroy(error));
  });

  /**
   * A proxy that ends with the test.
   * @param {import('node:test').TestContext} test
   */
  static async open(test) {
    const proxy = new Proxy();
    await new Promise((listening) => proxy.#server.listen(0, '127.0.0.1', () => listening(null)));
    test.after(() => {
      proxy.#server.close();
      proxy.#server.closeAllConnections();
    });
    return proxy;
  }

  get url() {
    const { port } = /** @type {import('node:net').AddressInfo} */ (this.#server.address());
    return `http://127.0.0.1:${port}`;
  }

  /**
   * Resets the record and injects faults into the next requests (of one method).
   * @param {Fault[]} faults
   * @param {string | null} method
   */
  spoil(faults, method = null) {
    this.#requests = [];
    this.#sent = [];
    this.#faults = [...faults];
    this.#spoiltMethod = method;
  }

  /**
   * Method and status of each request since `spoil`; null if the server got no request.
   * @param {string | null} method
   */
  seen(method = null) {
    return this.#requests.filter((request) => method === null || request[0] === method);
  }

  /** Headers and body of each request since `spoil`. */
  sent() {
    return this.#sent;
  }

  /**
   * @param {import('node:http').IncomingMessage} incoming
   * @param {import('node:http').ServerResponse} outgoing
   */
  async #handle(incoming, outgoing) {
    const method = incoming.method ?? '';
    const parts = [];
    for await (const part of incoming) parts.push(part);
    const body = Buffer.concat(parts);
    this.#sent.push({ headers: incoming.headers, body: body.toString() });
    const isSpoilt = this.#spoiltMethod === null || this.#spoiltMethod === method;
    const fault = isSpoilt ? this.#faults.shift() : null;
    const instead = fault === UNAVAILABLE ? NOT_NOW : fault;
    if (typeof instead === 'object' && instead !== null) {
      this.#requests.push([method, null]);
      outgoing.writeHead(instead.status, { 'content-type': 'application/json', ...instead.headers });
      outgoing.end(instead.body);
      return;
    }
    if (typeof fault === 'function') await fault();
    const answer = await forward(incoming, body);
    this.#requests.push([method, answer.status]);
    if (fault === SILENT) return;
    if (fault === LOST) {
      incoming.socket.destroy();
      return;
    }
    if (fault === CUT) {
      outgoing.writeHead(answer.status, { ...answer.headers, 'content-length': answer.body.length });
      outgoing.write(answer.body.subarray(0, answer.body.length / 2), () => incoming.socket.destroy());
      return;
    }
    outgoing.writeHead(answer.status, answer.headers);
    outgoing.end(answer.body);
  }
}

/**
 * @param {import('node:http').IncomingMessage} incoming
 * @param {Buffer} body
 * @returns {Promise<{status: number, headers: import('node:http').IncomingHttpHeaders, body: Buffer}>}
 */
function forward(incoming, body) {
  return new Promise((answered, failed) => {
    const headers = { ...incoming.headers, host: new URL(BASE_URL).host };
    delete headers.connection;
    const options = { method: incoming.method, headers, agent: false };
    const onward = request(new URL(incoming.url ?? '', BASE_URL), options, async (response) => {
      try {
        const parts = [];
        for await (const part of response) parts.push(part);
        const { connection, 'keep-alive': _, 'transfer-encoding': __, ...rest } = response.headers;
        answered({ status: response.statusCode ?? 0, headers: rest, body: Buffer.concat(parts) });
      } catch (error) {
        failed(error);
      }
    });
    onward.on('error', failed);
    onward.end(body);
  });
}
