// The service calls of a tenant.

import { paths } from "./api.js";
import { starButton } from "./call-actions.js";
import { h } from "./dom.js";
import { destination } from "./field-lists.js";
import { filters, pagedList, tabs } from "./lists.js";
import * as session from "./session.js";
import { when } from "./times.js";
import { badge, code, empty, httpStatus, link, muted, nothing, place, placeWith, table, tags } from "./ui.js";

const STATES = [
  ["", "All"],
  ["Scheduled", "Scheduled"],
  ["Running", "Running"],
  ["Succeeded", "Succeeded"],
  ["Failed", "Failed"],
  ["Cancelled", "Cancelled"],
];

const FILTERS = [
  { name: "name", label: "Name begins with" },
  { name: "tag", label: "Tags, all of", type: "words" },
  { name: "createdFrom", label: "Created from", type: "datetime-local" },
  { name: "createdTo", label: "Created before", type: "datetime-local" },
  { name: "correlationId", label: "Correlation id" },
  { name: "starred", label: "Star", type: "select", options: [["", "Any"], ["true", "Starred"], ["false", "Not starred"]] },
];

export function callList(page, { tenant }) {
  page.title("Service calls");
  const base = place("calls", tenant);
  const query = {};
  for (const name of ["status", "name", "createdFrom", "createdTo", "correlationId", "starred", "order", "dueTo"]) query[name] = page.query.get(name);
  query.tag = page.query.getAll("tag");
  const list = pagedList(page, {
    path: paths.calls(tenant),
    query,
    base,
    draw: (items) => callTable(items, { onChange: () => list.redraw() }),
    none: ({ isLater, isFiltered, hasMore }) => noCalls(tenant, { isLater, isFiltered, hasMore }),
  });
  return h(
    "div",
    null,
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", null, "Service calls"), tenantChoice(page, tenant)),
      session.may("writer") && h("a", { class: "button primary", href: place("calls", tenant, "new"), data: { key: "new" } }, "Submit a call"),
    ),
    tabs(page, base, "status", STATES),
    filters(page, base, FILTERS, { kept: ["status", "order"] }),
    query.status === "Scheduled" && orderChoice(page, base, query.order),
    list.element,
  );
}

function orderChoice(page, base, order) {
  const given = Object.fromEntries([...new Set(page.query.keys())].filter((name) => name !== "cursor").map((name) => [name, page.query.getAll(name)]));
  return h(
    "p",
    { class: "order" },
    muted("Order: "),
    order ? link(placeWith(base, { ...given, order: null }), "newest first") : h("strong", null, "newest first"),
    muted(" · "),
    order ? h("strong", null, "next due first") : link(placeWith(base, { ...given, order: "dueAt" }), "next due first"),
  );
}

/** Without API keys, whoever is here may look at any tenant's. */
function tenantChoice(page, tenant) {
  if (session.isSignedIn()) return h("p", { class: "muted" }, "Tenant ", code(tenant));
  const input = h("input", { name: "tenant", value: tenant, autocomplete: "off", spellcheck: "false", data: { key: "tenant" } });
  const form = h("form", { class: "inline" }, h("label", null, "Tenant ", input), h("button", { type: "submit", class: "quiet" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim()) page.go(place("calls", input.value.trim()));
  });
  return form;
}

function noCalls(tenant, { isLater, isFiltered, hasMore }) {
  if (hasMore) return empty("Nothing on this page.", "The next page may have some.");
  if (isLater) return empty("No more service calls.");
  if (isFiltered) return empty("No service call matches these filters.");
  return empty(
    "No service calls yet.",
    session.may("writer") ? link(place("calls", tenant, "new"), "Submit the first one") : "None was submitted.",
  );
}

export function callTable(items, { onChange, caption = "Service calls" } = {}) {
  return table(
    caption,
    [
      { label: "Status", class: "fit", cell: (call) => badge(call.status) },
      {
        label: "Name",
        class: "main-cell",
        cell: (call) => [
          link(place("calls", call.tenantId, call.id), call.name),
          h("div", { class: "sub" }, h("b", null, call.request.method), " ", destination(call.request)),
          tags(call.tags),
        ],
      },
      { label: "Result", class: "result", cell: result },
      { label: "Due", class: "fit time", cell: (call) => when(call.dueAt) },
      { label: "Finished", class: "fit time", cell: (call) => when(call.finishedAt) },
      { label: "Star", hidden: true, class: "fit end", cell: (call) => starButton(call, onChange) },
    ],
    items,
  );
}

/** What came of a call so far, in few words. */
export function result(call) {
  const outcome = call.outcome;
  if (!outcome) return call.status === "Running" ? muted("in flight") : nothing();
  const attempts = call.attempts > 1 ? muted(` · attempt ${call.attempts}`) : null;
  if (outcome.status !== null) return h("span", null, httpStatus(outcome.status), attempts);
  return h("span", null, h("span", { class: "http bad" }, outcome.reason), attempts);
}
