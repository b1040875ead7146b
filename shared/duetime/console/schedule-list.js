// The schedules of a namespace.

import { paths } from "./api.js";
import { h } from "./dom.js";
import { callWords, destination } from "./field-lists.js";
import { field, text } from "./forms.js";
import { filters, pagedList, tabs } from "./lists.js";
import { many, skippedWords } from "./many.js";
import { namespaceChoice } from "./namespaces.js";
import * as session from "./session.js";
import { when } from "./times.js";
import { badge, button, empty, failureBadge, link, nothing, place, table, tags } from "./ui.js";

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
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: place("calendars"), data: { key: "calendars" } }, "Calendars"),
        session.may("writer") && h("a", { class: "button primary", href: create, data: { key: "new" } }, "Create a schedule"),
      ),
    ),
    tabs(page, base, "state", STATES),
    filters(page, base, FILTERS, { kept: ["state"] }),
    session.may("writer") && toolbar(page, namespace, list.redraw),
    list.element,
  );
}

/** For all that match the filters but the state: only active ones are paused, only paused ones resumed. */
function toolbar(page, namespace, done) {
  const given = Object.fromEntries(FILTERS.map(({ name }) => [name, page.query.get(name)]).filter(([, value]) => value));
  const words = Object.entries(given).map(([name, value]) => `${name} ${value}`).join(", ");
  const which = words ? "all that match" : "all";
  const ones = words ? `schedules with ${words}` : "schedules of this namespace";
  const path = paths.schedules(namespace);
  const pause = () =>
    many(page, {
      title: "Pause many",
      content: [
        h("p", null, `All active ${ones} are paused. What comes due meanwhile is missed.`),
        h("div", { class: "fields" }, field("reason", "Reason", { wide: true, hint: "for people; may be empty", maxlength: 255, autofocus: true })),
      ],
      label: "Pause",
      path: `${path}/pause`,
      body: (form) => ({ ...given, reason: text(form, "reason") }),
      counted: (sums) => `${sums.affected} of them`,
      words: (sums) => `${sums.affected} paused${skippedWords(sums)}`,
      done,
    });
  const resume = () =>
    many(page, {
      title: "Resume many",
      content: h("p", null, `All paused ${ones} are resumed. What they missed fires as each one says.`),
      label: "Resume",
      path: `${path}/resume`,
      body: () => given,
      counted: (sums) => `${sums.affected} of them`,
      words: (sums) => `${sums.affected} resumed${skippedWords(sums)}`,
      done,
    });
  return h("div", { class: "actions bar" }, button(`Pause ${which}`, pause, { key: "pause all" }), button(`Resume ${which}`, resume, { key: "resume all" }));
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
          h("div", { class: "sub" }, destination(schedule) ?? (schedule.serviceCall && callWords(schedule.serviceCall))),
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
