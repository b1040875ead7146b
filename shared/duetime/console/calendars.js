// Calendars, which know the business days of schedules: their list, one of them, and its form.

import { paths, readAll, readPage, request } from "./api.js";
import { h } from "./dom.js";
import { writeLines } from "./field-lists.js";
import { field, formPage, invalid, lines, text } from "./forms.js";
import { region } from "./lists.js";
import { readNamespaces } from "./namespaces.js";
import * as session from "./session.js";
import { button, code, confirm, empty, facts, link, loading, place, problemView, section, table, tags, toast } from "./ui.js";

const WEEKDAYS = [
  ["MON", "Monday"],
  ["TUE", "Tuesday"],
  ["WED", "Wednesday"],
  ["THU", "Thursday"],
  ["FRI", "Friday"],
  ["SAT", "Saturday"],
  ["SUN", "Sunday"],
];
const WORKING = ["MON", "TUE", "WED", "THU", "FRI"];
const USERS = 50;

const base = place("calendars");

function weekdayWords(weekdays) {
  return WEEKDAYS.filter(([day]) => weekdays.includes(day)).map(([, name]) => name).join(", ") || "none";
}

export function calendarList(page) {
  page.title("Calendars");
  const create = place("calendars", "new");
  const list = region(page, {
    read: (signal) => readAll(paths.calendars, { signal }),
    draw: ({ items }) => (items.length ? calendarTable(items) : empty("No calendars yet.", session.may("admin") ? link(create, "Create the first one") : "None was created.")),
  });
  return h(
    "div",
    null,
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", null, "Calendars"), h("p", { class: "lead" }, "Schedules that name one occur on its business days.")),
      session.may("admin") && h("a", { class: "button primary", href: create, data: { key: "new" } }, "Create a calendar"),
    ),
    list.element,
  );
}

function calendarTable(items) {
  return table(
    "Calendars",
    [
      { label: "Calendar", class: "main-cell", cell: ({ name }) => link(place("calendars", "calendar", name), name) },
      { label: "Business days on", cell: ({ weekdays }) => weekdayWords(weekdays) },
      { label: "Days off", class: "fit number", cell: ({ daysOff }) => daysOff.length },
      { label: "More business days", class: "fit number", cell: ({ businessDays }) => businessDays.length },
    ],
    items,
  );
}

export function calendarDetail(page, { name }) {
  page.title(name);
  const view = region(page, {
    what: "Loading the calendar…",
    read: async (signal) => {
      const [calendar, users] = await Promise.all([request("GET", paths.calendar(name), { signal }), usersOf(name, signal)]);
      return { calendar: calendar.data, users };
    },
    draw: ({ calendar, users }) => drawCalendar(page, calendar, users),
  });
  return h("article", null, h("p", { class: "crumbs" }, link(base, "Calendars")), view.element);
}

/** The schedules that name a calendar, of all namespaces; up to a bound of each. */
async function usersOf(name, signal) {
  const { items } = await readNamespaces(signal);
  const found = await Promise.all(items.map((one) => readPage(paths.schedules(one.name), { query: { calendar: name }, limit: USERS, signal })));
  return found.flatMap((one) => one.items.map(({ namespace, id, description }) => ({ namespace, id, description })));
}

function drawCalendar(page, calendar, users) {
  return [
    h(
      "div",
      { class: "head" },
      h("div", { class: "title" }, h("h1", { class: "mono" }, calendar.name)),
      h("div", { class: "actions" }, buttons(page, calendar, users)),
    ),
    section(
      "Business days",
      {},
      facts([
        ["On", weekdayWords(calendar.weekdays)],
        ["Days off", calendar.daysOff.length > 0 && tags(calendar.daysOff)],
        ["More business days", calendar.businessDays.length > 0 && tags(calendar.businessDays)],
        ["Revision", calendar.revision],
      ]),
    ),
    section(
      "Schedules that use it",
      {},
      h("p", { class: "hint" }, "Their pending occurrences stay where they are until they are computed again: at the earliest 10 s after a change."),
      users.length ? userTable(users) : h("p", { class: "muted" }, "None."),
    ),
  ];
}

function userTable(users) {
  return table(
    "Schedules that use it",
    [
      { label: "Schedule", class: "main-cell", cell: ({ namespace, id, description }) => [link(place("schedules", namespace, "schedule", id), id), h("div", null, description)] },
      { label: "Namespace", cell: ({ namespace }) => code(namespace) },
    ],
    users,
  );
}

function buttons(page, calendar, users) {
  return [
    session.may("writer") && users.length > 0 && button("Compute occurrences again", () => recompute(page, users), { key: "recompute" }),
    session.may("admin") && h("a", { class: "button", href: place("calendars", "calendar", calendar.name, "change"), data: { key: "change" } }, "Change"),
    session.may("admin") && button("Remove", () => remove(page, calendar, users), { kind: "danger", key: "remove" }),
  ];
}

/** Of all schedules in the namespaces of those that use it, as the API does it. */
async function recompute(page, users) {
  const sums = { affected: 0, skipped: 0 };
  try {
    for (const namespace of new Set(users.map((one) => one.namespace))) {
      let cursor;
      do {
        const { data } = await request("POST", `${paths.schedules(namespace)}/recompute`, { body: { cursor }, signal: page.signal });
        sums.affected += data.affected;
        sums.skipped += data.skipped;
        cursor = data.nextCursor;
      } while (cursor !== null);
    }
    toast(`${sums.affected} moved${sums.skipped ? `, ${sums.skipped} skipped` : ""}.`);
  } catch (error) {
    if (!page.signal.aborted) toast(error.message, "bad");
  }
}

function remove(page, { name, revision }, users) {
  const waiting = "nothing is sent until there is a calendar of this name again.";
  const words = users.length ? `${users.length === 1 ? "A schedule names" : `${users.length} schedules name`} it: ${waiting}` : "No schedule names it.";
  confirm("Remove this calendar?", words, "Remove the calendar", async () => {
    await request("DELETE", paths.calendar(name), { ifMatch: revision });
    toast("The calendar is removed.");
    page.go(base, { instead: true });
  });
}

export function createCalendar(page) {
  return calendarForm(page, { title: "Create a calendar", crumb: "Calendars", back: base, label: "Create" });
}

export function changeCalendar(page, { name }) {
  const box = h("div", null, loading("Loading the calendar…"));
  request("GET", paths.calendar(name), { signal: page.signal }).then(
    ({ data }) => box.replaceChildren(calendarForm(page, { title: `Change ${name}`, crumb: name, back: place("calendars", "calendar", name), label: "Change", given: data })),
    (error) => page.signal.aborted || box.replaceChildren(problemView(error, { again: page.again })),
  );
  return box;
}

async function isThere(name, signal) {
  try {
    await request("GET", paths.calendar(name), { signal });
    return true;
  } catch (error) {
    if (error.status === 404) return false;
    throw error;
  }
}

function calendarForm(page, { given, ...more }) {
  const dates = (name, label, hint) => field(name, label, { type: "textarea", rows: 8, wide: true, hint, value: writeLines(given?.[name] ?? []) });
  return formPage(page, {
    ...more,
    content: [
      !given && h("div", { class: "fields" }, field("calendar", "Name", { wide: true, hint: "lower case letters, digits, . _ -", paths: ["name"], maxlength: 63 })),
      h("p", null, "Business days on"),
      h("div", { class: "fields", role: "group", "aria-label": "Business days on" }, WEEKDAYS.map(([day, label]) => field(day, label, { type: "checkbox", value: (given?.weekdays ?? WORKING).includes(day) }))),
      h(
        "div",
        { class: "fields" },
        dates("daysOff", "Days off", "dates such as 2026-12-25, one to a line"),
        dates("businessDays", "More business days", "whatever their weekday is, one to a line"),
      ),
      h("div", { class: "fields" }, field("ics", "An .ics file", { type: "file", accept: ".ics,text/calendar", wide: true, hint: "the whole days of its events are days off, too" })),
    ],
    submit: async (form) => {
      const name = given?.name ?? text(form, "calendar") ?? "-";
      const weekdays = WEEKDAYS.map(([day]) => day).filter((day) => form.elements[day].checked);
      const ics = await form.elements.ics.files[0]?.text();
      const body = { weekdays, daysOff: lines(form, "daysOff") ?? [], businessDays: lines(form, "businessDays") ?? [], ics };
      if (!given && (await isThere(name, page.signal))) throw invalid({ field: "calendar", message: "there is one of this name" });
      await request("PUT", paths.calendar(name), { body, ifMatch: given?.revision, signal: page.signal });
      toast(given ? "Changed." : "Created.");
      page.go(place("calendars", "calendar", name), { instead: true });
    },
  });
}
