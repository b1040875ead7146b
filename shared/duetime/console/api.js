// Requests to the API of the server that this page came from, and what it answers.

import * as session from "./session.js";
import { learnServerTime } from "./times.js";

const BASE = new URL("./", document.baseURI);
const TIMEOUT_MS = 35000;
const MAX_ROUNDS = 10;

/** What the server, or the way to it, says against a request. `errors` name fields by their path. */
export class Problem extends Error {
  constructor({ status = 0, title = "", detail = "", code = "", errors = [], requestId = "" }) {
    super(detail || title);
    Object.assign(this, { status, title, detail: detail || title, code, errors, requestId });
  }
}

/**
 * The answer to a request: `data` is its JSON, `text` the text of it. `body` is an object, or JSON text.
 * Raises a Problem; an AbortError when `signal` is what ended it.
 */
export async function request(method, path, { query, body, headers, ifMatch, key, signal } = {}) {
  const response = await send(method, path, { query, body, headers, ifMatch, key, signal });
  const text = await readText(response, signal);
  if (!response.ok) throw await toProblem(response, text, key);
  return { status: response.status, data: text ? JSON.parse(text) : null, text, headers: response.headers };
}

/** The response itself, whatever its status; for streams. */
export async function send(method, path, { query, body, headers = {}, ifMatch, key, signal, timeout = TIMEOUT_MS } = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of entries(query)) url.searchParams.append(name, value);
  const sent = new Headers({ accept: "application/json", ...headers });
  const used = key ?? session.key();
  if (used) sent.set("authorization", `Bearer ${used}`);
  if (body !== undefined) sent.set("content-type", "application/json");
  if (ifMatch !== undefined) sent.set("if-match", `"${ifMatch}"`);
  const signals = [signal, timeout && AbortSignal.timeout(timeout)].filter(Boolean);
  try {
    const response = await fetch(url, {
      method,
      headers: sent,
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      signal: signals.length ? AbortSignal.any(signals) : undefined,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
    learnServerTime(response.headers.get("date"));
    return response;
  } catch (error) {
    throw lost(error, signal);
  }
}

async function readText(response, signal) {
  try {
    return await response.text();
  } catch (error) {
    throw lost(error, signal);
  }
}

function lost(error, signal) {
  if (signal?.aborted) return new DOMException("left", "AbortError");
  const detail = error?.name === "TimeoutError" ? "The server took too long to respond." : "The server does not respond.";
  return new Problem({ title: "No response", detail });
}

/** Also tells the session when the key is no good: a gateway says that without a problem document. */
export async function toProblem(response, text, key) {
  let about = {};
  try {
    about = JSON.parse(text);
  } catch {
    about = {};
  }
  const status = response.status;
  const isProblem = (response.headers.get("content-type") ?? "").startsWith("application/problem+json");
  const title = about.title ?? about.message ?? response.statusText ?? "";
  const problem = new Problem({
    status,
    title: title || `Status ${status}`,
    detail: about.detail,
    code: about.code,
    errors: Array.isArray(about.errors) ? about.errors : [],
    requestId: about.requestId,
  });
  if (key === undefined && (status === 401 || (status === 403 && !isProblem))) session.refused(problem);
  return problem;
}

function entries(query) {
  return Object.entries(query ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((one) => one != null && one !== "").map((one) => [name, String(one)]),
  );
}

/**
 * A page of a list with `limit` items, unless there are fewer. A page of the API may be short and not the last one, so
 * this asks on, for a bounded number of times; `nextCursor` says from where to go on.
 */
export async function readPage(path, { query = {}, limit = 50, cursor, signal } = {}) {
  const items = [];
  let next = cursor ?? null;
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const asked = { ...query, limit: limit - items.length, cursor: next };
    const { data } = await request("GET", path, { query: asked, signal });
    items.push(...data.items);
    next = data.nextCursor;
    if (next === null || items.length >= limit) break;
  }
  return { items, nextCursor: next };
}

/** All items of a short list; `isWhole` is false when there were more than `most`. */
export async function readAll(path, { query = {}, most = 2000, signal } = {}) {
  const items = [];
  let cursor = null;
  do {
    const page = await readPage(path, { query, limit: 500, cursor, signal });
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== null && items.length < most);
  return { items, isWhole: cursor === null };
}

// -- paths ------------------------------------------------------------------------------------------------------

const FAITHFUL = /^[A-Za-z0-9._~!$&'()*,;=:@-]+$/;
const SAFE_PREFIX = "base64url:";

/** The id of a timer or a schedule as a segment of a path, in the spelling that arrives through every gateway. */
function idSegment(id) {
  if (FAITHFUL.test(id) && id !== "." && id !== ".." && !id.startsWith(SAFE_PREFIX)) return id;
  const bytes = new TextEncoder().encode(id);
  const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return SAFE_PREFIX + base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const segment = encodeURIComponent;

export const paths = {
  health: "health",
  principal: "v1/principal",
  shards: "v1/shards",
  namespaces: "v1/namespaces",
  namespace: (name) => `v1/namespaces/${segment(name)}`,
  timers: (name) => `v1/namespaces/${segment(name)}/timers`,
  timer: (name, id) => `v1/namespaces/${segment(name)}/timers/${idSegment(id)}`,
  schedules: (name) => `v1/namespaces/${segment(name)}/schedules`,
  schedule: (name, id) => `v1/namespaces/${segment(name)}/schedules/${idSegment(id)}`,
  preview: "v1/schedules/preview",
  calendars: "v1/calendars",
  calendar: (name) => `v1/calendars/${segment(name)}`,
  redrive: (name) => `v1/namespaces/${segment(name)}/redrive`,
  calls: (tenant) => `v1/tenants/${segment(tenant)}/service-calls`,
  call: (tenant, id) => `v1/tenants/${segment(tenant)}/service-calls/${segment(id)}`,
};
