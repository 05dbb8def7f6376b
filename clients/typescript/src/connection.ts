import { ofAnswer, ofClosedHandshake, ofRedirect, ofScheme, serverURL } from "./advice.js";
import { causes, errorOf, type Failure } from "./errors.js";

/** Where the server is, and how long a call may take. */
export interface ConnectionOptions {
  /** The server's URL; `KEEPSAKE_URL` by default. */
  baseURL?: string | undefined;
  /** An API key or a session's token; `KEEPSAKE_API_KEY` by default. */
  apiKey?: string | undefined;
  /** How often a request is sent again if its outcome is unknown; 5 by default. */
  maxRetries?: number | undefined;
  /** The time limit of one attempt; 60,000 by default. */
  attemptTimeoutMs?: number | undefined;
  /** The time limit of a call with all its attempts and waits; 120,000 by default. */
  totalTimeoutMs?: number | undefined;
  /** A replacement for the platform's `fetch`, for instance with a proxy. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** The longest wait before the second attempt; each further one may be twice as long. */
const FIRST_WAIT_MS = 200;
/** The longest wait that the server did not ask for. */
const MAX_WAIT_MS = 10_000;

/** Errors of an attempt whose request was not sent. */
const UNSENT = /ECONNREFUSED|ENOTFOUND|EAI_AGAIN/;

/** The longest answer that is read: the longest that a server gives is one memory as JSON. */
const MAX_ANSWER_BYTES = 64 * 2 ** 20 + 64 * 2 ** 10;

/** Sends requests to one server with one credential. */
export class Connection {
  readonly #baseURL: string;
  readonly #apiKey: string;
  readonly #maxRetries: number;
  readonly #attemptTimeoutMs: number;
  readonly #totalTimeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ConnectionOptions) {
    this.#baseURL = serverURL(setting(options.baseURL, "baseURL", "KEEPSAKE_URL"));
    this.#apiKey = checkedKey(setting(options.apiKey, "apiKey", "KEEPSAKE_API_KEY"));
    this.#maxRetries = checkedNumber("maxRetries", options.maxRetries ?? 5, 0);
    this.#attemptTimeoutMs = checkedNumber("attemptTimeoutMs", options.attemptTimeoutMs ?? 60_000, 1);
    this.#totalTimeoutMs = checkedNumber("totalTimeoutMs", options.totalTimeoutMs ?? 120_000, 1);
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /**
   * Posts a body and returns the JSON of the answer, which must be as `isExpected` says.
   *
   * A request whose outcome is unknown is sent again unchanged, so the body or the
   * headers must make it idempotent.
   */
  async post<Answer>(
    path: string,
    body: unknown,
    headers: Record<string, string>,
    isExpected: (answer: unknown) => answer is Answer,
    signal: AbortSignal | null | undefined,
  ): Promise<Answer> {
    const url = this.#baseURL + path;
    const deadline = Date.now() + this.#totalTimeoutMs;
    const request = {
      method: "POST",
      headers: { ...headers, authorization: `Bearer ${this.#apiKey}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      // A redirect would send the credential to another server.
      redirect: "manual",
    } as const;
    let isInDoubt = false;
    for (let attempt = 1; ; attempt++) {
      const limitMs = Math.min(this.#attemptTimeoutMs, deadline - Date.now());
      const outcome = await this.#attempt(url, request, limitMs, isExpected, signal);
      if ("answer" in outcome) return outcome.answer;
      isInDoubt ||= outcome.isInDoubt === true;
      const waitMs = Math.max(backoffMs(attempt), outcome.retryAfterMs ?? 0);
      const isLast = attempt > this.#maxRetries || Date.now() + waitMs >= deadline;
      if (!outcome.isTransient || isLast) throw errorOf({ ...outcome, isInDoubt }, url, attempt);
      await wait(waitMs, signal);
    }
  }

  /** Sends the request once. */
  async #attempt<Answer>(
    url: string,
    request: RequestInit,
    limitMs: number,
    isExpected: (answer: unknown) => answer is Answer,
    signal: AbortSignal | null | undefined,
  ): Promise<{ answer: Answer } | Failure> {
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    let isTimeout = false;
    const timer = setTimeout(() => {
      isTimeout = true;
      controller.abort();
    }, limitMs);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      signal?.throwIfAborted();
      const fetch = this.#fetch;
      const response = await fetch(url, { ...request, signal: controller.signal });
      const text = await textOf(response);
      if (text === undefined) {
        const reason = `${response.status}, but the answer has more than ${MAX_ANSWER_BYTES} bytes`;
        return { status: response.status, reason, isTransient: false };
      }
      const answer = parsed(text);
      if (response.status === 200 && isExpected(answer)) return { answer };
      const { status } = response;
      const ofText = status === 400 && answer === undefined ? ofScheme(this.#baseURL, text) : undefined;
      if (ofText !== undefined) return { status, reason: `${status}: ${ofText}`, isTransient: false };
      return failureOf(this.#baseURL, url, response, answer);
    } catch (error) {
      signal?.throwIfAborted();
      const cause = causes(error);
      const wrongScheme = ofScheme(this.#baseURL, cause);
      if (wrongScheme !== undefined) return { reason: wrongScheme, cause: error, isTransient: false };
      const isUnsent = UNSENT.test(cause);
      const problem = isUnsent ? "the server cannot be reached" : "no answer";
      const advice = ofClosedHandshake(this.#baseURL, cause);
      const reason = isTimeout ? `no answer within ${limitMs} ms` : `${problem}: ${cause}${advice}`;
      return { reason, cause: error, isTransient: true, isInDoubt: !isUnsent };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

/** The error that the server states. */
function failureOf(baseURL: string, url: string, { status, headers }: Response, body: unknown): Failure {
  const shared = {
    status,
    requestId: field(body, "request_id") ?? headers.get("request-id") ?? undefined,
    isTransient: (status === 408 || status === 429 || status >= 500) && headers.get("x-should-retry") !== "false",
    retryAfterMs: retryAfterMs(headers.get("retry-after")),
  };
  const error = typeof body === "object" && body !== null && "error" in body ? body.error : undefined;
  const [type, message] = [field(error, "type"), field(error, "message")];
  if (type !== undefined && message !== undefined) {
    return { ...shared, type, reason: `${status} ${type}: ${message}${ofAnswer(baseURL, status)}` };
  }
  const location = headers.get("location");
  if (status >= 300 && status < 400 && location !== null) {
    return { ...shared, reason: `${status}: ${ofRedirect(baseURL, url, location)}` };
  }
  const advice = ofAnswer(baseURL, status) || ": is baseURL a Keepsake server?";
  return { ...shared, reason: `${status}, but the answer is not one of this API${advice}` };
}

/** The text of an answer; undefined if it is too long. */
async function textOf(response: Response): Promise<string | undefined> {
  if (response.body === null) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.byteLength;
    if (bytes > MAX_ANSWER_BYTES) {
      // The connection is closed; nobody waits for that.
      reader.cancel().catch(() => undefined);
      return undefined;
    }
    text += decoder.decode(value, { stream: true });
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A field of an object if it is a string. */
function field(object: unknown, name: string): string | undefined {
  if (typeof object !== "object" || object === null) return undefined;
  const value = (object as Record<string, unknown>)[name];
  return typeof value === "string" ? value : undefined;
}

/** `retry-after` in seconds, or as a time. */
function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  const seconds = Number(header);
  const ms = Number.isNaN(seconds) ? Date.parse(header) - Date.now() : seconds * 1000;
  return ms >= 0 ? ms : undefined;
}

/** Exponential backoff with jitter. */
function backoffMs(attempt: number): number {
  return Math.min(FIRST_WAIT_MS * 2 ** (attempt - 1), MAX_WAIT_MS) * (0.5 + Math.random() / 2);
}

/** Waits; rejects if the signal is aborted. */
function wait(ms: number, signal: AbortSignal | null | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
  });
}

/** An option, or else its environment variable. */
export function setting(option: string | undefined, name: string, variable: string): string {
  const value = option ?? globalThis.process?.env?.[variable];
  if (value) return value;
  throw new TypeError(`${name} is missing: pass it, or set the variable ${variable}`);
}

/** A credential that is safe in a header: `fetch` would print an invalid one in its error. */
function checkedKey(value: string): string {
  const key = value.trim();
  if (/^[!-~]+$/.test(key)) return key;
  throw new TypeError("apiKey (or KEEPSAKE_API_KEY) must be an API key or token: ASCII characters without spaces");
}

function checkedNumber(name: string, value: number, least: number): number {
  if (Number.isSafeInteger(value) && value >= least && value < 2 ** 31) return value;
  throw new TypeError(`${name} must be a whole number of at least ${least}, and less than 2^31, not ${value}`);
}
