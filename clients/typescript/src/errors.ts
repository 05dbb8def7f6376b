/** A call that got no tool result. */
export class KeepsakeError extends Error {
  override readonly name: string = "KeepsakeError";
  /** The URL of the call. */
  readonly url: string;
  /** The HTTP status of the last answer; undefined if there was no answer. */
  readonly status: number | undefined;
  /** The type of the server's error, such as `not_found_error`. */
  readonly type: string | undefined;
  /** The id of the request in the server's log. */
  readonly requestId: string | undefined;
  /** How often the request was sent. */
  readonly attempts: number;

  constructor(failure: Failure, url: string, attempts: number) {
    const sent = attempts === 1 ? "" : `, after ${attempts} attempts`;
    const request = failure.requestId === undefined ? "" : ` (request ${failure.requestId})`;
    const isInDoubt = failure.status === undefined && failure.isInDoubt === true;
    const doubt = isInDoubt ? "; the command may have been carried out" : "";
    super(`POST ${url}: ${failure.reason}${request}${sent}${doubt}`, { cause: failure.cause });
    this.url = url;
    this.status = failure.status;
    this.type = failure.type;
    this.requestId = failure.requestId;
    this.attempts = attempts;
  }
}

/** The server, or a proxy in front of it, answered with an error. */
export class KeepsakeAPIError extends KeepsakeError {
  override readonly name = "KeepsakeAPIError";
  declare readonly status: number;
}

/** There was no complete answer. The message says whether the command may have been carried out. */
export class KeepsakeConnectionError extends KeepsakeError {
  override readonly name = "KeepsakeConnectionError";
}

/** How one attempt failed. */
export interface Failure {
  readonly reason: string;
  readonly status?: number;
  readonly type?: string | undefined;
  readonly requestId?: string | undefined;
  readonly cause?: unknown;
  /** Whether the same request may succeed if it is sent again. */
  readonly isTransient: boolean;
  /** Whether the request may have reached the server without an answer. */
  readonly isInDoubt?: boolean;
  /** How long the server asks to wait before the next attempt. */
  readonly retryAfterMs?: number | undefined;
}

export function errorOf(failure: Failure, url: string, attempts: number): KeepsakeError {
  const { status } = failure;
  return status === undefined
    ? new KeepsakeConnectionError(failure, url, attempts)
    : new KeepsakeAPIError(failure, url, attempts);
}

/** The messages of an error and its causes. */
export function causes(error: unknown): string {
  const messages: string[] = [];
  for (let each = error; each !== undefined && each !== null && messages.length < 5; ) {
    const message = each instanceof Error ? each.message || describe(each) : String(each);
    if (!messages.includes(message)) messages.push(message);
    each = each instanceof Error ? each.cause : undefined;
  }
  return messages.join(": ");
}

/** Errors of a connection to several addresses have no message, only a code. */
function describe(error: Error & { code?: unknown }): string {
  return typeof error.code === "string" ? error.code : error.name;
}
