// Instants and durations as people read them. Instants are shown in local time, with UTC in the tooltip.

import { h } from "./dom.js";

const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

let offsetMs = 0;

/** The time of the server, as far as its answers tell it: clocks of browsers may be wrong. */
export function now() {
  return Date.now() + offsetMs;
}

/** `Date` headers have whole seconds, so a small difference means nothing. */
export function learnServerTime(header) {
  const difference = Date.parse(header) + 500 - Date.now();
  if (Number.isFinite(difference)) offsetMs = Math.abs(difference) > 2500 ? difference : 0;
}

const two = (number) => String(number).padStart(2, "0");

/** `2026-11-28 15:04:05`; with milliseconds when asked for. */
export function localTime(iso, { milliseconds = false } = {}) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return String(iso);
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const fraction = milliseconds ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}${fraction}`;
}

/** `in 5 s`, `3 min ago`, `now`: one unit, two where the first is small. */
export function relative(iso, at = now()) {
  const difference = Date.parse(iso) - at;
  if (Number.isNaN(difference)) return "";
  const seconds = Math.round(Math.abs(difference) / 1000);
  if (seconds === 0) return "now";
  const words = span(seconds);
  return difference > 0 ? `in ${words}` : `${words} ago`;
}

function span(seconds) {
  const index = UNITS.findIndex(([size]) => seconds >= size);
  const [size, unit] = UNITS[index];
  const whole = Math.floor(seconds / size);
  const next = UNITS[index + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return whole < 10 && rest > 0 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

/** `4 ms`, `1.2 s`, `3 min 5 s`. */
export function milliseconds(number) {
  if (number == null) return "";
  if (number < 1000) return `${Math.round(number)} ms`;
  if (number < 60000) return `${(number / 1000).toFixed(number < 10000 ? 2 : 1)} s`;
  return span(Math.round(number / 1000));
}

export function between(from, to) {
  return Date.parse(to) - Date.parse(from);
}

/** `2027-03-28T02:30:00.000+01:00` as `{ day: "Sun", date, time: "02:30:00", offset }`: what clocks of its zone show. */
export function clockTime(text) {
  const [, date, time, offset] = /^(.{10})T(.{8})[.\d]*(.*)$/.exec(text);
  const day = DAYS[new Date(date).getUTCDay()];
  return { day, date, time, offset };
}

/** A time element: local time, and how far from now, which `tick` keeps true. */
export function when(iso, { milliseconds: withMilliseconds = false, near = true } = {}) {
  if (!iso) return h("span", { class: "muted none" }, "–");
  return h(
    "time",
    { datetime: iso, title: `${iso} (UTC)` },
    h("span", { class: "at" }, localTime(iso, { milliseconds: withMilliseconds })),
    near && [" ", h("span", { class: "near", data: { near: iso } }, relative(iso))],
  );
}

/** How far from now alone, for sentences. */
export function nearly(iso) {
  return h("time", { datetime: iso, title: `${localTime(iso)} – ${iso} (UTC)`, data: { near: iso } }, relative(iso));
}

export function tick(root = document) {
  const at = now();
  for (const element of root.querySelectorAll("[data-near]")) {
    const words = relative(element.dataset.near, at);
    if (element.textContent !== words) element.textContent = words;
  }
}

/** What a `datetime-local` input holds for an instant, and back. Both are in the browser's time zone. */
export function toInput(iso) {
  return iso ? localTime(iso).replace(" ", "T") : "";
}

export function fromInput(value) {
  const at = value ? new Date(value) : null;
  return at && !Number.isNaN(at.getTime()) ? at.toISOString() : null;
}

export function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local time";
}
