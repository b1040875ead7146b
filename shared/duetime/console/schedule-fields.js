// What a schedule says of its times, and of occurrences that are late or overlap.

import { h } from "./dom.js";
import { lines, number } from "./forms.js";
import { listedFacts, writeLines } from "./field-lists.js";
import { fromInput, toInput, when, zone } from "./times.js";
import { code, link, place } from "./ui.js";

const texts = { type: "textarea", rows: 2, read: lines, write: writeLines, show: (list) => list.map((one) => h("div", null, code(one))) };
const instant = { type: "datetime-local", read: readInstant, write: toInput, show: (iso) => when(iso) };

/** In lists of fields as in `field-lists.js`. */
export const TIMING = [
  { name: "cron", label: "Cron", ...texts, hint: "such as 30 9 * * MON-FRI; @daily; cron(...) and rate(...) of AWS; one to a line" },
  { name: "every", label: "Every", hint: "an interval of 1s or more, such as 90m", placeholder: "90m" },
  { name: "timeZone", label: "Time zone", list: "zones", value: zone(), hint: "such as Europe/Berlin; UTC when empty" },
];

export const MORE_TIMING = [
  { name: "rrule", label: "Rules", wide: true, ...texts, hint: "of RFC 5545, such as FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17; one to a line" },
  { name: "exclude", label: "Except", wide: true, ...texts, hint: "dates such as 2026-12-25, and cron expressions; one to a line" },
  { name: "calendar", label: "Calendar", hint: "the name of one, which knows the business days", show: (name) => link(place("calendars", "calendar", name), name) },
  {
    name: "dayOff",
    label: "On other days",
    type: "select",
    options: [
      ["skip", "Leave out"],
      ["next", "Move to the next business day"],
      ["previous", "Move to the previous business day"],
    ],
    hint: "that are no business days of the calendar",
  },
  { name: "startAt", label: "Not before", ...instant },
  { name: "endAt", label: "Not after", ...instant },
  { name: "anchor", label: "Counted from", ...instant, hint: "where intervals and rules begin" },
  {
    name: "dst",
    label: "Clock changes",
    type: "select",
    options: [
      ["once", "Once"],
      ["skip", "Not in gaps"],
      ["both", "Both times"],
    ],
    hint: "a time of day that does not exist, or happens twice",
  },
  { name: "window", label: "Window", hint: "delays all occurrences alike, within this, such as 10m" },
  { name: "jitter", label: "Jitter", hint: "delays each occurrence within this, such as 30s" },
];

export const POLICY = [
  {
    name: "misfire",
    label: "When missed",
    type: "select",
    options: [
      ["all", "Fire all"],
      ["latest", "Fire the latest"],
      ["skip", "Fire none"],
    ],
    hint: "by an outage or a pause",
  },
  { name: "catchUp", label: "Catch up", hint: "how far back all are fired; 1h when empty" },
  {
    name: "overlap",
    label: "When overlapping",
    type: "select",
    options: [
      ["allow", "Fire"],
      ["skip", "Skip"],
      ["bufferOne", "Fire the last one after it"],
    ],
    hint: "an earlier one is retried or in flight",
  },
  {
    name: "pauseAfter",
    label: "Pause after",
    inputmode: "numeric",
    hint: "so many failures in a row",
    read: number,
    show: (count) => (count === 1 ? "1 failure" : `${count} failures in a row`),
  },
  { name: "maxFirings", label: "Firings at most", inputmode: "numeric", hint: "it ends after so many", read: number },
];

/** An instant of the API. What is no time is none. */
function readInstant(form, name) {
  return fromInput(form.elements[name].value) ?? undefined;
}

export function scheduleFacts(data) {
  const told = [...TIMING, ...MORE_TIMING, ...POLICY].filter(({ name }) => name !== "dayOff" || data.calendar);
  return listedFacts(told, data);
}
