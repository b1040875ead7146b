// The timers of a namespace.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { destination } from "./field-lists.js";
import { filters, pagedList, tabs } from "./lists.js";
import { namespaceChoice, readNamespaces } from "./namespaces.js";
import * as session from "./session.js";
import { between, milliseconds, when } from "./times.js";
import { badge, empty, failureBadge, link, loading, muted, nothing, place, problemView, table, tags } from "./ui.js";

const STATES = [
  ["", "All"],
  ["Scheduled", "Scheduled"],
  ["Firing", "Firing"],
  ["Waiting", "Waiting"],
  ["Fired", "Fired"],
  ["Failed", "Failed"],
  ["Cancelled", "Cancelled"],
];

export const REASONS = [
  ["", "Any"],
  ["HttpStatus", "HttpStatus: no success"],
  ["NotOk", "NotOk: said ok: false"],
  ["Timeout", "Timeout: no response in time"],
  ["Nack", "Nack: the receiver gave it back"],
  ["Network", "Network: not reached"],
  ["RefusedUrl", "RefusedUrl"],
  ["RefusedAddress", "RefusedAddress"],
  ["Expired", "Expired: too late"],
  ["Unreadable", "Unreadable"],
  ["Unrecorded", "Unrecorded: outcome not stored"],
];

const FILTERS = [
  { name: "tag", label: "Tag" },
  { name: "dueFrom", label: "Due from", type: "datetime-local" },
  { name: "dueTo", label: "Due before", type: "datetime-local" },
  { name: "correlationId", label: "Correlation id" },
  { name: "reason", label: "Last failure", type: "select", options: REASONS },
];

/** Leads on to the namespace that was looked at last, or to the first one. */
export function namespaceHome(page) {
  const box = h("div", null, loading());
  readNamespaces(page.signal).then(
    ({ items }) => {
      const names = items.map(({ name }) => name);
      const name = [session.namespace(), "default"].find((one) => names.includes(one)) ?? names[0];
      if (name) page.go(place(page.area, name), { instead: true });
      else box.replaceChildren(empty("There is no namespace.", link("#/", "Create one on the overview.")));
    },
    (error) => page.signal.aborted || box.replaceChildren(problemView(error, { again: page.again })),
  );
  return box;
}

export function timerList(page, { namespace }) {
  page.title(`Timers of ${namespace}`);
  const base = place("timers", namespace);
  const query = Object.fromEntries(["state", "tag", "dueFrom", "dueTo", "correlationId", "reason"].map((name) => [name, page.query.get(name)]));
  const list = pagedList(page, {
    path: paths.timers(namespace),
    query,
    base,
    draw: (items) => timerTable(items),
    none: ({ isLater, isFiltered, hasMore }) => {
      if (hasMore) return empty("Nothing on this page.", "The next page may have some.");
      if (isLater) return empty("No more timers.");
      if (isFiltered) return empty("No timer matches these filters.");
      return empty("No timers yet.", session.may("writer") ? link(place("timers", namespace, "new"), "Create the first one") : "None was created.");
    },
  });
  return h(
    "div",
    null,
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", null, "Timers"), namespaceChoice(page, namespace)),
      h(
        "div",
        { class: "actions" },
        finder(page, namespace),
        session.may("writer") && h("a", { class: "button primary", href: place("timers", namespace, "new"), data: { key: "new" } }, "Create a timer"),
      ),
    ),
    tabs(page, base, "state", STATES),
    filters(page, base, FILTERS, { kept: ["state"] }),
    list.element,
  );
}

function finder(page, namespace) {
  const input = h("input", { name: "id", placeholder: "Timer id", "aria-label": "Timer id", autocomplete: "off", spellcheck: "false", data: { key: "find" } });
  const wrong = h("p", { class: "field-error", role: "alert" });
  const form = h("form", { class: "find", role: "search" }, h("div", { class: "inline" }, input, h("button", { type: "submit" }, "Find")), wrong);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    wrong.textContent = "";
    // An id may begin or end with spaces, so it is taken as it is.
    const id = input.value;
    if (!id) return;
    try {
      await request("GET", paths.timer(namespace, id), { signal: page.signal });
      page.go(place("timers", namespace, "timer", id));
    } catch (error) {
      if (!page.signal.aborted) wrong.textContent = error.status === 404 ? "There is no such timer." : error.message;
    }
  });
  return form;
}

function timerTable(items) {
  return table(
    "Timers",
    [
      { label: "State", class: "fit", cell: (timer) => badge(timer.state) },
      {
        label: "Timer",
        class: "main-cell",
        cell: (timer) => [
          link(place("timers", timer.namespace, "timer", timer.id), timer.id),
          h("div", { class: "sub" }, destination(timer)),
          tags(timer.tags),
        ],
      },
      { label: "Result", class: "result", cell: timerResult },
      { label: "Due", class: "fit time", cell: (timer) => when(timer.executeAt) },
      { label: "Fired", class: "fit time", cell: (timer) => when(timer.firedAt) },
      { label: "Attempts", class: "fit number", cell: (timer) => timer.attempts },
    ],
    items,
  );
}

export function timerResult(timer) {
  if (timer.state === "Fired") {
    const late = between(timer.executeAt, timer.firedAt);
    return timer.attempts > 1 ? muted(`after ${timer.attempts} attempts`) : muted(late >= 0 ? `${milliseconds(late)} after due` : "before its due time");
  }
  return timer.failure ? failureBadge(timer.failure) : nothing();
}
