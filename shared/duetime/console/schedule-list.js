// The schedules of a namespace.

import { paths } from "./api.js";
import { h } from "./dom.js";
import { filters, pagedList, tabs } from "./lists.js";
import { namespaceChoice } from "./namespaces.js";
import * as session from "./session.js";
import { when } from "./times.js";
import { badge, empty, failureBadge, link, nothing, place, table, tags } from "./ui.js";

const STATES = [
  ["", "All"],
  ["Active", "Active"],
  ["Paused", "Paused"],
  ["Ended", "Ended"],
];

const FILTERS = [
  { name: "tag", label: "Tag" },
  { name: "dueFrom", label: "Next from", type: "datetime-local" },
  { name: "dueTo", label: "Next before", type: "datetime-local" },
];

export function scheduleList(page, { namespace }) {
  page.title(`Schedules of ${namespace}`);
  const base = place("schedules", namespace);
  const create = place("schedules", namespace, "new");
  const list = pagedList(page, {
    path: paths.schedules(namespace),
    query: Object.fromEntries(["state", "tag", "dueFrom", "dueTo"].map((name) => [name, page.query.get(name)])),
    base,
    draw: scheduleTable,
    none: ({ isLater, isFiltered, hasMore }) => {
      if (hasMore) return empty("Nothing on this page.", "The next page may have some.");
      if (isLater) return empty("No more schedules.");
      if (isFiltered) return empty("No schedule matches these filters.");
      return empty("No schedules yet.", session.may("writer") ? link(create, "Create the first one") : "None was created.");
    },
  });
  return h(
    "div",
    null,
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", null, "Schedules"), namespaceChoice(page, namespace)),
      session.may("writer") && h("a", { class: "button primary", href: create, data: { key: "new" } }, "Create a schedule"),
    ),
    tabs(page, base, "state", STATES),
    filters(page, base, FILTERS, { kept: ["state"] }),
    list.element,
  );
}

function scheduleTable(items) {
  return table(
    "Schedules",
    [
      { label: "State", class: "fit", cell: (schedule) => badge(schedule.state) },
      {
        label: "Schedule",
        class: "main-cell",
        cell: (schedule) => [
          link(place("schedules", schedule.namespace, "schedule", schedule.id), schedule.id),
          h("div", null, schedule.description),
          h("div", { class: "sub" }, schedule.callbackUrl),
          tags(schedule.tags),
        ],
      },
      { label: "Last failure", class: "result", cell: ({ failure }) => (failure ? failureBadge(failure) : nothing()) },
      { label: "Next", class: "fit time", cell: ({ state, nextDueAt }) => (state === "Active" ? when(nextDueAt) : nothing()) },
      { label: "Last fired", class: "fit time", cell: (schedule) => when(schedule.firedAt) },
      { label: "Firings", class: "fit number", cell: (schedule) => schedule.firings },
    ],
    items,
  );
}
