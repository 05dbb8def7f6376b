// What to write instead of a URL that does not lead to the API of a server.

/** Ends of a URL that the client adds itself, or that are pages for people, with what follows them. */
const ENDS = /(?<![:/])\/+(admin|console|docs|mcp|v1)(\/.*)?$/;
const WITHOUT_TLS = /wrong.version.number|packet.length.too.long|record.layer.failure/i;
const CLOSED = /before secure TLS|ECONNRESET|handshake|EOF/;
const WITH_TLS = /Expected HTTP\/|HTTPS/;

/** The URL of a server as it was given, without a final `/`. */
export function serverURL(value: string): string {
  const rule = "baseURL (or KEEPSAKE_URL) must be an http:// or https:// URL without credentials, query and fragment";
  const url = parsedURL(value);
  if (url === undefined || !["http:", "https:"].includes(url.protocol)) {
    // The message does not repeat a text that may hold a password.
    const isHost = !/:\/\/|@/.test(value) && parsedURL(`http://${value}`) !== undefined;
    throw new TypeError(isHost ? `${rule}: write http://${value}, or https://${value} for a port with TLS` : rule);
  }
  const plain = withoutSecrets(url);
  if (plain.href !== url.href) throw new TypeError(`${rule}: write ${shown(plain)}`);
  return shown(url);
}

/** What is wrong if the port is one without TLS, or with TLS, unlike the URL. */
export function ofScheme(baseURL: string, reason: string): string | undefined {
  const rest = baseURL.replace(/^https?:\/\//, "");
  if (baseURL.startsWith("https:") && WITHOUT_TLS.test(reason)) {
    return `the port answered without TLS: write http://${rest} as baseURL`;
  }
  if (baseURL.startsWith("http:") && WITH_TLS.test(reason)) {
    return `the port answered as one with TLS: write https://${rest} as baseURL`;
  }
  return undefined;
}

/** What to add to the reason of no answer, if the port may have closed the connection during the TLS handshake. */
export function ofClosedHandshake(baseURL: string, reason: string): string {
  if (!baseURL.startsWith("https:") || !CLOSED.test(reason)) return "";
  return `; if the port is one without TLS, write ${baseURL.replace("https:", "http:")} as baseURL`;
}

/** What to add to the reason of an answer, if the URL has an end that is too much. */
export function ofAnswer(baseURL: string, status: number): string {
  const instead = baseURL.replace(ENDS, "");
  if (instead === baseURL || (status >= 300 && status !== 404 && status !== 405)) return "";
  return `; the client adds the end of the path itself: write ${instead} as baseURL`;
}

/** What to do after a redirect, which would send the credential to another server. */
export function ofRedirect(baseURL: string, url: string, location: string): string {
  const target = parsedURL(location, url);
  if (target === undefined) return "a redirect to nowhere: is baseURL a Keepsake server?";
  // The query may hold a token.
  const { href } = withoutSecrets(target);
  const end = url.slice(baseURL.length);
  const start = href.endsWith(end) ? href.slice(0, -end.length) : baseURL;
  const instead = start === baseURL ? "the URL of the server itself" : start;
  return `a redirect to ${href}, which is not followed: write ${instead} as baseURL`;
}

function withoutSecrets(url: URL): URL {
  const plain = new URL(url);
  plain.username = plain.password = plain.search = plain.hash = "";
  return plain;
}

function shown(url: URL): string {
  return url.href.replace(/\/+$/, "");
}

function parsedURL(value: string, base?: string): URL | undefined {
  try {
    return new URL(value, base);
  } catch {
    return undefined;
  }
}
