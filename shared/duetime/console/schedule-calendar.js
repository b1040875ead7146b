// A strip of days with the occurrences to come.

import { h } from "./dom.js";
import { clockTime, now } from "./times.js";
import { muted } from "./ui.js";

const DAYS = 28;
const DAY_MS = 86400000;
const FEWEST_DAYS = 3;
const SHOWN = 3;

/**
 * The days from that of `at` on, each with the times of its occurrences; `times` is null where `coming`, which ends
 * because no more than `limit` were asked for, says nothing. No days when it says something of few of them.
 */
export function calendarDays(coming, limit, at) {
  if (!coming.length) return [];
  const times = Map.groupBy(coming.map(({ localTime }) => clockTime(localTime)), ({ date }) => date);
  const first = clockTime(coming[0].localTime);
  const written = `${first.date}T${first.time}`;
  const today = at + Date.parse(`${written}Z`) - Date.parse(written + first.offset);
  const days = Array.from({ length: DAYS }, (_, index) => new Date(today + index * DAY_MS).toISOString().slice(0, 10));
  const end = coming.length < limit ? null : [...times.keys()].at(-1);
  const found = days.map((date) => ({ date, times: end !== null && date >= end ? null : (times.get(date) ?? []).map(({ time }) => time.slice(0, 5)) }));
  return found.filter((day) => day.times).length < FEWEST_DAYS ? [] : found;
}

export function calendarStrip(coming, limit) {
  const days = calendarDays(coming, limit, now());
  if (!days.length) return null;
  return h("ol", { class: "strip", "aria-label": "Days with occurrences" }, days.map(dayCell));
}

function dayCell({ date, times }, index) {
  const { day } = clockTime(`${date}T00:00:00`);
  const words = times === null ? "not computed" : times.length ? times.join(", ") : "none";
  const shown = times === null ? "…" : times.length > SHOWN ? `${times.length} times` : times.map((time) => h("span", null, time));
  const kinds = [index === 0 && "today", times?.length && "busy", (day === "Sat" || day === "Sun") && "weekend"].filter(Boolean);
  return h(
    "li",
    { class: kinds.join(" "), title: `${day} ${date}: ${words}` },
    h("span", { class: "unseen" }, `${day} ${date}: ${words}`),
    h("span", { class: "day", "aria-hidden": "true" }, muted(day), " ", Number(date.slice(8))),
    h("span", { class: "at", "aria-hidden": "true" }, shown),
  );
}
