// The schedules of a namespace.

import { paths } from "./api.js";
import { h } from "./dom.js";
import { pagedList } from "./lists.js";
import { namespaceChoice } from "./namespaces.js";
import * as session from "./session.js";
import { when } from "./times.js";
import { badge, empty, failureBadge, link, nothing, place, table, tags } from "./ui.js";

export function scheduleList(page, { namespace }) {
  page.title(`Schedules of ${namespace}`);
  const base = place("schedules", namespace);
  const create = place("schedules", namespace, "new");
  const list = pagedList(page, {
    path: paths.schedules(namespace),
    query: {},
    base,
    draw: scheduleTable,
    none: ({ isLater, hasMore }) => {
      if (hasMore) return empty("Nothing on this page.", "The next page may have some.");
      if (isLater) return empty("No more schedules.");
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
