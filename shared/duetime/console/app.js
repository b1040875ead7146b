// The page: which view shows what the address names, the bar at the top, and what happens by itself.

import { callDetail } from "./call-detail.js";
import { callForm } from "./call-form.js";
import { callList } from "./call-list.js";
import { calendarDetail, calendarList, changeCalendar, createCalendar } from "./calendars.js";
import { deadLetters } from "./dead-letters.js";
import { byKey, h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { every, isPaused, setPaused } from "./live.js";
import { overview } from "./overview.js";
import { scheduleDetail } from "./schedule-detail.js";
import { changeSchedule, createSchedule } from "./schedule-form.js";
import { scheduleList } from "./schedule-list.js";
import * as session from "./session.js";
import { findSession, signInView } from "./sign-in.js";
import { tick } from "./times.js";
import { timerDetail } from "./timer-detail.js";
import { timerForm } from "./timer-form.js";
import { namespaceHome, timerList } from "./timer-list.js";
import { empty, link, loading, place, problemView } from "./ui.js";

/** Segments with a colon are parameters. The first that fits counts. A role, if there is one, is needed for the page. */
const VIEWS = [
  ["", overview, "overview"],
  ["calls/:tenant", callList, "calls"],
  ["calls/:tenant/new", callForm, "calls", "writer"],
  ["calls/:tenant/:id", callDetail, "calls"],
  ["calls/:tenant/:id/executions/:execution", callDetail, "calls"],
  ["timers", namespaceHome, "timers"],
  ["timers/:namespace", timerList, "timers"],
  ["timers/:namespace/new", timerForm, "timers", "writer"],
  ["timers/:namespace/timer/:id", timerDetail, "timers"],
  ["schedules", namespaceHome, "schedules"],
  ["schedules/:namespace", scheduleList, "schedules"],
  ["schedules/:namespace/new", createSchedule, "schedules", "writer"],
  ["schedules/:namespace/schedule/:id", scheduleDetail, "schedules"],
  ["schedules/:namespace/schedule/:id/change", changeSchedule, "schedules", "writer"],
  ["calendars", calendarList, "schedules"],
  ["calendars/new", createCalendar, "schedules", "admin"],
  ["calendars/calendar/:name", calendarDetail, "schedules"],
  ["calendars/calendar/:name/change", changeCalendar, "schedules", "admin"],
  ["dead-letters", namespaceHome, "dead-letters"],
  ["dead-letters/:namespace", deadLetters, "dead-letters"],
];

const main = document.getElementById("main");
let leave = new AbortController();
let shownPath = null;
let isReady = false;

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean);
  try {
    return { path, segments: segments.map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { path, segments: ["?"], query: new URLSearchParams() };
  }
}

function match(segments) {
  for (const [pattern, view, area, role = "reader"] of VIEWS) {
    const parts = pattern.split("/").filter(Boolean);
    if (parts.length !== segments.length) continue;
    if (parts.every((part, at) => part.startsWith(":") || part === segments[at])) {
      const named = parts.map((part, at) => [part.slice(1), segments[at]]).filter((_, at) => parts[at].startsWith(":"));
      return { view: session.may(role) ? view : () => needs(role), area, params: Object.fromEntries(named) };
    }
  }
  return null;
}

function go(hash, { instead = false } = {}) {
  if (hash === location.hash) navigate();
  else if (instead) location.replace(hash);
  else location.hash = hash;
}

function navigate() {
  leave.abort();
  leave = new AbortController();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const { path, segments, query } = parse(location.hash);
  const found = match(segments);
  const focused = document.activeElement?.dataset?.key;
  // Before the bar is drawn: it leads to the tenant and the namespace that the address names.
  if (found) session.remember(found.params);
  drawTop(found?.area);
  const page = {
    area: found?.area,
    query,
    signal: leave.signal,
    go,
    again: navigate,
    title: (text) => {
      document.title = `${text} · Duetime`;
    },
    every: (ms, work) => void every(ms, work, page.signal),
  };
  page.title("Console");
  try {
    main.replaceChildren(found ? found.view(page, found.params) : nowhere());
  } catch (error) {
    main.replaceChildren(problemView(error));
  }
  if (path !== shownPath) {
    window.scrollTo(0, 0);
    if (shownPath !== null) main.focus({ preventScroll: true });
  } else if (focused) {
    byKey(main, focused)?.focus({ preventScroll: true });
  }
  shownPath = path;
}

function nowhere() {
  return h("div", null, h("h1", null, "Not found"), empty("This page does not exist.", link("#/", "To the overview")));
}

function needs(role) {
  return h("div", null, h("h1", null, "Not allowed"), empty(`This page needs an API key with the role ${role}.`, link("#/", "To the overview")));
}

// -- the bar at the top -----------------------------------------------------------------------------------------------

function ofNamespace(area) {
  return session.namespace() ? place(area, session.namespace()) : place(area);
}

function drawTop(area) {
  const places = [
    ["overview", "#/", "Overview"],
    ["calls", place("calls", session.tenant()), "Service calls"],
    ["timers", ofNamespace("timers"), "Timers"],
    ["schedules", ofNamespace("schedules"), "Schedules"],
    ["dead-letters", ofNamespace("dead-letters"), "Dead letters"],
  ];
  const nav = h(
    "nav",
    { "aria-label": "Main" },
    places.map(([name, href, label]) => h("a", { href, "aria-current": name === area ? "page" : null, data: { key: `nav ${name}` } }, label)),
  );
  const user = session.isSignedIn()
    ? [
        h("span", { class: "who", title: "Tenant and role of your API key" }, session.tenant(), " · ", session.role()),
        h("button", { type: "button", class: "quiet", data: { key: "sign-out" }, on: { click: signOut } }, "Sign out"),
      ]
    : null;
  replace(
    document.getElementById("top"),
    h("a", { class: "brand", href: "#/", "aria-label": "Duetime, overview" }, h("img", { src: new URL("icon.svg", import.meta.url).href, alt: "", width: 22, height: 22 }), "Duetime"),
    isReady && nav,
    h("div", { class: "top-end" }, isReady && refreshSwitch(), isReady && user),
  );
}

function refreshSwitch() {
  const paused = isPaused();
  const words = paused ? "Paused" : "Live";
  return h(
    "button",
    {
      type: "button",
      class: "quiet refresh",
      "aria-pressed": String(paused),
      "aria-label": `${words}: pause auto-refresh`,
      title: paused ? "Auto-refresh is off" : "Lists are refreshed every few seconds",
      data: { key: "pause" },
      on: {
        click: () => {
          setPaused(!paused);
          drawTop(match(parse(location.hash).segments)?.area);
          if (paused) navigate();
        },
      },
    },
    icon(paused ? "play" : "pause"),
    words,
  );
}

// -- who is here --------------------------------------------------------------------------------------------------

function signOut() {
  session.signOut();
  start();
}

function showSignIn(problem) {
  leave.abort();
  leave = new AbortController();
  isReady = false;
  shownPath = null;
  drawTop();
  document.title = "Sign in · Duetime";
  main.replaceChildren(signInView({ problem, signal: leave.signal, done: ready }));
}

function ready() {
  isReady = true;
  navigate();
}

async function start() {
  isReady = false;
  leave.abort();
  leave = new AbortController();
  drawTop();
  main.replaceChildren(loading());
  const { signal } = leave;
  try {
    if (await findSession(signal)) ready();
    else showSignIn(null);
  } catch (error) {
    if (!signal.aborted) main.replaceChildren(problemView(error, { again: start }));
  }
}

session.restore();
session.whenRefused((problem) => queueMicrotask(() => showSignIn(problem)));
document.getElementById("skip").addEventListener("click", () => main.focus());
window.addEventListener("hashchange", () => isReady && navigate());
setInterval(() => document.hidden || tick(), 1000);
start();
