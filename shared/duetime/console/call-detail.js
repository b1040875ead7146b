// One service call: what it is, whether it was sent, when, and what the receiver said.

import { paths, readPage, request } from "./api.js";
import { callButtons, starButton } from "./call-actions.js";
import { h, replace } from "./dom.js";
import { follow } from "./events.js";
import { destination } from "./field-lists.js";
import { rawMember } from "./json.js";
import { fromLogged, headerTable, message, noResponse, textBox } from "./messages.js";
import { between, milliseconds, nearly, now, when } from "./times.js";
import { badge, code, copier, facts, httpStatus, link, loading, muted, place, problemView, section, tags } from "./ui.js";

const REASONS = {
  HttpStatus: "the response has an error status",
  Timeout: "no complete response in time",
  Network: "no connection to the receiver, or it was lost",
  RefusedUrl: "the URL is not allowed",
  RefusedAddress: "the address of the host is not allowed",
  Unreadable: "the stored call is unreadable",
};

export function callDetail(page, { tenant, id, execution: wanted }) {
  page.title("Service call");
  const view = new CallView(page, tenant, id, wanted);
  view.start();
  return view.element;
}

class CallView {
  constructor(page, tenant, id, wanted) {
    Object.assign(this, { page, tenant, id, wanted });
    this.path = paths.call(tenant, id);
    this.head = h("div", null, loading("Loading the call…"));
    this.executions = h("div", null, loading());
    this.events = new EventList();
    this.rest = h(
      "div",
      { class: "columns", hidden: true },
      h("div", null, section("Executions", {}, this.executions), section("Request", {}, (this.request = h("div")))),
      h("div", null, (this.about = h("div")), section("Events", { aside: this.events.state }, this.events.element)),
    );
    this.element = h("article", null, h("p", { class: "crumbs" }, link(place("calls", tenant), "Service calls")), this.head, this.rest);
    this.shown = "";
    this.shownExecutions = "";
    this.isFollowing = false;
    this.bodies = new Map();
  }

  start() {
    this.load();
    this.followEvents();
    this.page.every(10000, () => this.load());
  }

  /** Until they are complete. What has finished can still be changed: then `loadOnce` has them followed again. */
  async followEvents() {
    this.isFollowing = true;
    await follow(`${this.path}/events`, {
      after: this.events.last,
      signal: this.page.signal,
      onEvents: (items) => {
        this.events.add(items);
        this.load();
      },
      onState: (state) => this.events.tell(state),
    });
    await this.load();
    this.isFollowing = false;
  }

  /** One load at a time; a wish for another one meanwhile is fulfilled after it. */
  async load() {
    if (this.isLoading) {
      this.isWanted = true;
      return;
    }
    this.isLoading = true;
    try {
      do {
        this.isWanted = false;
        await this.loadOnce();
      } while (this.isWanted && !this.page.signal.aborted);
    } finally {
      this.isLoading = false;
    }
  }

  async loadOnce() {
    const { signal } = this.page;
    try {
      const [call, executions] = await Promise.all([
        request("GET", this.path, { signal }),
        readPage(`${this.path}/executions`, { limit: 50, signal }),
      ]);
      this.rest.hidden = false;
      if (call.text !== this.shown) {
        this.shown = call.text;
        this.drawCall(call.data, call.text);
        if (!this.isFollowing) this.followEvents();
      }
      const text = JSON.stringify(executions);
      if (text !== this.shownExecutions) {
        this.shownExecutions = text;
        this.drawExecutions(executions);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!this.shown || error.status === 404) {
        this.shown = "";
        this.rest.hidden = true;
        replace(this.head, problemView(error, { again: () => this.load() }));
      }
    }
  }

  drawCall(call, text) {
    this.page.title(call.name);
    const changed = () => this.load();
    replace(
      this.head,
      h(
        "div",
        { class: "head" },
        h(
          "div",
          { class: "title" },
          h("h1", null, call.name),
          h("p", { class: "lead" }, badge(call.status), " ", verdict(call)),
        ),
        h("div", { class: "actions" }, starButton(call, changed), callButtons(this.page, call, changed)),
      ),
    );
    replace(this.about, section("Call", {}, callFacts(call)));
    replace(this.request, requestOf(call, rawMember(text, "request", "body")));
  }

  drawExecutions({ items, nextCursor }) {
    if (!items.length) {
      replace(this.executions, h("p", { class: "muted" }, "Nothing was sent."));
      return;
    }
    const opened = this.wanted ?? items[0].id;
    replace(
      this.executions,
      items.map((execution) => this.executionFold(execution, execution.id === opened)),
      nextCursor && muted("The newest 50."),
    );
    this.wanted = undefined;
  }

  executionFold(execution, isOpen) {
    const body = h("div", { class: "fold-body" });
    const fold = h(
      "details",
      { class: "fold execution", open: isOpen, data: { key: execution.id } },
      h(
        "summary",
        { data: { key: `summary ${execution.id}` } },
        h("span", { class: "number" }, `#${execution.number}`),
        badge(execution.status),
        execution.response ? httpStatus(execution.response.status) : execution.reason && h("span", { class: "http bad" }, execution.reason),
        h("span", { class: "spread" }, when(execution.startedAt, { milliseconds: true })),
        execution.durationMs !== null && muted(milliseconds(execution.durationMs)),
      ),
      body,
    );
    const fill = () => fold.open && this.fillExecution(execution, body);
    fold.addEventListener("toggle", fill);
    // What is folded out is known only after `replace` has looked at what was before.
    queueMicrotask(fill);
    return fold;
  }

  /** Bodies are read when they are looked at. A finished execution does not change any more. */
  async fillExecution(execution, body) {
    const known = this.bodies.get(execution.id);
    if (known?.status === execution.status) {
      body.replaceChildren(known.node);
      return;
    }
    if (!body.hasChildNodes()) body.append(loading("Loading the execution…"));
    try {
      const path = `${this.path}/executions/${encodeURIComponent(execution.id)}`;
      const { data } = await request("GET", path, { signal: this.page.signal });
      const node = executionView(this.tenant, data);
      this.bodies.set(execution.id, { status: data.status, node });
      body.replaceChildren(node);
    } catch (error) {
      if (!this.page.signal.aborted) body.replaceChildren(problemView(error, { again: () => this.fillExecution(execution, body) }));
    }
  }
}

/** Did it fire, when, and what did the receiver say: in one sentence. */
function verdict(call) {
  const { outcome } = call;
  const start = call.startedAt && late(call.dueAt, call.startedAt);
  const said = outcome && (outcome.status !== null ? ["the receiver responded ", httpStatus(outcome.status)] : [REASONS[outcome.reason] ?? outcome.reason]);
  if (call.status === "Succeeded") return h("span", null, "Sent ", start, "; ", said, ".");
  if (call.status === "Failed") {
    if (!start) return h("span", null, "Never sent: ", said, ".");
    const tries = call.attempts > 1 ? ` ${call.attempts} times` : "";
    return h("span", null, `Sent${tries}, first `, start, "; ", said, ".");
  }
  if (call.status === "Cancelled") {
    if (!start) return h("span", null, "Cancelled before it was sent.");
    return h("span", null, `Cancelled after ${call.attempts === 1 ? "one attempt" : `${call.attempts} attempts`}, first sent `, start, "; ", said, ".");
  }
  if (call.status === "Running" && call.nextAttemptAt) {
    return h("span", null, `Attempt ${call.attempts} failed: `, said, ". The next one is ", nearly(call.nextAttemptAt), ".");
  }
  if (call.status === "Running") return h("span", null, `Sent ${call.attempts > 1 ? "again, " : ""}first `, start, "; no response yet.");
  return Date.parse(call.dueAt) > now() ? h("span", null, "Will be sent ", nearly(call.dueAt), ".") : h("span", null, "Due ", nearly(call.dueAt), ", not sent yet.");
}

function late(dueAt, startedAt) {
  const ms = between(dueAt, startedAt);
  return ms >= 0 ? `${milliseconds(ms)} after its due time` : `${milliseconds(-ms)} before its due time`;
}

function callFacts(call) {
  return facts([
    ["Due", when(call.dueAt, { milliseconds: true })],
    ["Created", when(call.createdAt)],
    ["First sent", call.startedAt && when(call.startedAt, { milliseconds: true })],
    ["Finished", call.finishedAt && when(call.finishedAt, { milliseconds: true })],
    ["Next attempt", call.nextAttemptAt && call.attempts > 0 && when(call.nextAttemptAt)],
    ["Attempts", attempts(call)],
    ["Message", call.outcome?.message],
    ["Tags", tags(call.tags)],
    ["Timeout", `${call.timeoutSeconds} s`],
    ["Kept until", call.expiresAt && when(call.expiresAt)],
    ["Rerun of", call.rerunOf && link(place("calls", call.tenantId, call.rerunOf), call.rerunOf)],
    ["Id", [code(call.id), copier(call.id, "id")]],
    ["Correlation id", [code(call.correlationId), copier(call.correlationId, "correlation id")]],
    ["Idempotency key", call.idempotencyKey && code(call.idempotencyKey)],
    ["Tenant", code(call.tenantId)],
    ["Revision", call.revision],
  ]);
}

function attempts(call) {
  return `${call.attempts} of at most ${call.retryPolicy.maxAttempts}`;
}

function requestOf(call, rawBody) {
  const { request: given } = call;
  // A string is sent as its text, anything else as the JSON that was given.
  const isText = rawBody?.startsWith('"');
  const body = rawBody === undefined || rawBody === "null" ? null : isText ? JSON.parse(rawBody) : rawBody;
  return [
    h("p", { class: "first-line" }, h("b", null, given.method), " ", destination(given)),
    headerTable(Object.entries(given.headers ?? {})),
    textBox(body, { key: "request body", what: "body" }),
  ];
}

function executionView(tenant, execution) {
  const sent = fromLogged(execution.request);
  const response = execution.response && fromLogged(execution.response);
  return h(
    "div",
    null,
    facts([
      ["Failed", execution.reason && `${execution.reason}: ${execution.message ?? REASONS[execution.reason] ?? ""}`],
      ["Ended", execution.finishedAt && when(execution.finishedAt, { milliseconds: true, near: false })],
      ["Took", execution.durationMs !== null && milliseconds(execution.durationMs)],
      ["Ends at the latest", execution.finishedAt === null && when(execution.deadlineAt)],
    ]),
    h(
      "div",
      { class: "exchange" },
      message("Request", [h("b", null, execution.request.method), " ", execution.request.url], sent.headers, sent.body, execution.id),
      response
        ? message("Response", httpStatus(execution.response.status), response.headers, response.body, execution.id)
        : noResponse(execution.finishedAt === null ? "Not yet." : "There was none."),
    ),
    h(
      "p",
      { class: "sub" },
      "Execution ",
      link(place("calls", tenant, execution.serviceCallId, "executions", execution.id), execution.id),
    ),
  );
}

/** The events of the call, in order; new ones are added at the end. */
class EventList {
  constructor() {
    this.list = h("ol", { class: "events" });
    this.nothing = h("p", { class: "muted" }, "None yet.");
    this.element = h("div", null, this.nothing, this.list);
    this.state = h("span", { class: "muted", role: "status" });
    this.last = 0;
  }

  add(items) {
    this.nothing.remove();
    for (const event of items.filter(({ sequence }) => sequence > this.last)) {
      this.last = event.sequence;
      this.list.append(
        h(
          "li",
          null,
          h("div", { class: "event-head" }, h("b", null, event.type), when(event.occurredAt, { milliseconds: true, near: false })),
          h("div", { class: "sub" }, Object.entries(event.payload).map(([name, value]) => `${name}=${shown(value)}`).join("  ")),
        ),
      );
    }
  }

  tell(state) {
    const words = { streaming: "live", polling: "updated every 2 s", complete: "complete" };
    this.state.textContent = words[state] ?? (state.message || "broken off");
  }
}

function shown(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
