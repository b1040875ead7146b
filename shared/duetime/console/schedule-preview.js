// When the schedule of a form would occur, asked while it is written.

import { paths, request } from "./api.js";
import { h, replace } from "./dom.js";
import { readListed } from "./field-lists.js";
import { sleep } from "./live.js";
import { MORE_TIMING, TIMING } from "./schedule-fields.js";
import { clockTime, nearly, when, zone } from "./times.js";
import { icon } from "./icons.js";
import { muted, table } from "./ui.js";

const REST_MS = 400;
const NAMES = new Set([...TIMING, ...MORE_TIMING].map(({ name }) => name));

/**
 * A region that follows what is written in `form`. It asks when nothing was written for a while, and one question ends
 * the one before. `id()` is that of the schedule, on which delays depend.
 */
export function preview(page, form, id) {
  const words = h("div", { role: "status", class: "preview-words" });
  const times = h("div");
  let asked = null;
  let current = new AbortController();
  const show = async () => {
    current.abort();
    current = new AbortController();
    const signal = AbortSignal.any([page.signal, current.signal]);
    const timing = { ...readListed(TIMING, form), ...readListed(MORE_TIMING, form) };
    if (!(timing.cron || timing.every || timing.rrule)) {
      asked = null;
      replace(words, muted("Write a cron expression, an interval or a rule to see when it occurs."));
      replace(times);
      return;
    }
    const body = JSON.stringify({ ...timing, id: id() });
    if (body === asked) return;
    await sleep(REST_MS, signal);
    if (signal.aborted) return;
    asked = body;
    try {
      const { data } = await request("POST", paths.preview, { body, signal });
      replace(words, h("p", null, h("b", null, data.description)), data.clockChanges.map(warning));
      replace(times, data.items.length ? occurrenceTable("Next occurrences", data.items, data.timeZone) : muted("No occurrence is left."));
    } catch (error) {
      if (signal.aborted) return;
      asked = null;
      const found = error.errors?.length ? error.errors.map(({ field, message }) => `${field}: ${message}`) : [error.message];
      replace(words, found.map((text) => h("p", { class: "preview-error" }, text)));
      replace(times);
    }
  };
  form.addEventListener("input", (event) => (NAMES.has(event.target.name) || event.target.name === "id") && show());
  show();
  return h("section", { class: "preview", "aria-label": "Preview" }, words, times);
}

/** What a change of clocks does to an occurrence, in a sentence. */
export function clockWords({ effect, setFrom, setTo }) {
  const [from, to] = [clockTime(setFrom), clockTime(setTo)];
  const [before, after] = [from, to].map(({ time }) => time.slice(0, 5));
  const what = {
    moved: `An occurrence in between fires at ${after}.`,
    leftOut: "An occurrence in between does not fire.",
    doubled: "An occurrence in between fires twice.",
  };
  return `On ${from.day} ${from.date} clocks are set from ${before} to ${after}. ${what[effect] ?? "An occurrence is affected."}`;
}

function warning(change) {
  return h("p", { class: "notice clock" }, icon("waiting"), clockWords(change));
}

/** Occurrences with the local time of the schedule, of the browser where that is another, and with their delay. */
export function occurrenceTable(caption, items, timeZone) {
  const isDelayed = items.some(({ scheduledAt, dueAt }) => scheduledAt !== dueAt);
  return table(
    caption,
    [
      { label: timeZone, class: "fit", cell: ({ localTime }) => localWords(localTime) },
      timeZone !== zone() && { label: zone(), class: "fit", cell: ({ scheduledAt }) => when(scheduledAt, { near: false }) },
      isDelayed && { label: "Delayed to", class: "fit", cell: ({ dueAt }) => when(dueAt, { near: false }) },
      { label: "From now", cell: ({ dueAt }) => nearly(dueAt) },
    ].filter(Boolean),
    items,
  );
}

function localWords(text) {
  const { day, date, time, offset } = clockTime(text);
  return h("span", null, muted(day), ` ${date} ${time} `, muted(offset));
}
