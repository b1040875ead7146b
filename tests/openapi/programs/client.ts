// A client with the types that openapi-typescript makes: compiled by `tsc --strict`, run against `duetime serve`.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./schema.js";

const { DUETIME_URL: baseUrl, DUETIME_API_KEY: key } = process.env;
assert(baseUrl !== undefined && key !== undefined);
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

async function timers(): Promise<void> {
  const made = await api.PUT("/v1/namespaces/{namespace}", { params: { path: { namespace: "typed" } }, body: {} });
  assert.equal(made.response.status, 201);

  // Nothing but what is required, and nothing that is null.
  const timer: components["schemas"]["TimerBody"] = { id: "first", delay: "1h", callbackUrl: "https://example.com/" };
  const created = await api.POST("/v1/namespaces/{namespace}/timers", {
    params: { path: { namespace: "typed" } },
    body: timer,
  });
  assert(created.data !== undefined);
  assert.equal(created.data.revision, 1);

  const address = { namespace: "typed", timerId: created.data.id };
  const changed = await api.PATCH("/v1/namespaces/{namespace}/timers/{timerId}", {
    params: { path: address, header: { "If-Match": created.response.headers.get("etag") ?? "" } },
    body: { tags: ["typed"], retryPolicy: { maxAttempts: 3 } },
  });
  assert.deepEqual(changed.data?.tags, ["typed"]);
  assert.equal(changed.data.retryPolicy.maxAttempts, 3);

  const listed = await api.GET("/v1/namespaces/{namespace}/timers", {
    params: { path: { namespace: "typed" }, query: { tag: "typed", limit: 10 } },
  });
  assert.deepEqual(listed.data?.items.map((item) => item.id), ["first"]);
  assert.equal(listed.data.nextCursor, null);

  const batch = await api.POST("/v1/namespaces/{namespace}/timers/batch", {
    params: { path: { namespace: "typed" } },
    body: { timers: [{ id: "second", executeAt: "2030-01-01T00:00:00Z", callbackUrl: "https://example.com/" }] },
  });
  assert.deepEqual(batch.data?.items.map((item) => item.status), [201]);

  const missing = await api.GET("/v1/namespaces/{namespace}/timers/{timerId}", {
    params: { path: { namespace: "typed", timerId: "none" } },
  });
  assert.equal(missing.error?.code, "timer_not_found");
}

async function serviceCalls(): Promise<void> {
  const submitted = await api.POST("/v1/tenants/{tenant}/service-calls", {
    params: { path: { tenant: "acme" } },
    body: { name: "ping", delay: 3600, request: { method: "POST", url: "https://example.com/", body: { a: 1 } } },
  });
  assert.equal(submitted.response.status, 202);
  assert(submitted.data !== undefined);

  const address = { tenant: "acme", serviceCallId: submitted.data.id };
  const starred = await api.PATCH("/v1/tenants/{tenant}/service-calls/{serviceCallId}", {
    params: { path: address },
    body: { starred: true },
  });
  assert.equal(starred.data?.starred, true);

  const events = await api.GET("/v1/tenants/{tenant}/service-calls/{serviceCallId}/events", {
    params: { path: address },
  });
  assert(events.data !== undefined && typeof events.data === "object");
  assert.equal(events.data.items[0]?.type, "ServiceCallSubmitted");

  const cancelled = await api.POST("/v1/tenants/{tenant}/service-calls/{serviceCallId}/cancel", {
    params: { path: address },
  });
  assert.equal(cancelled.data?.status, "Cancelled");
}

// What a receiver knows of the requests that it gets.
type Callback = webhooks["timerDue"]["post"]["requestBody"]["content"]["application/json"];
export const lagMs = (callback: Callback): number => Date.parse(callback.firedAt) - Date.parse(callback.executeAt);

await timers();
await serviceCalls();
