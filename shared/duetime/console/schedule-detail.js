// One schedule: when it occurs, what happened to the last occurrences, and what can be done.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { callbackFacts, callbackSections, callFacts, callSections, failureFact } from "./field-lists.js";
import { clearErrors, field, invalid, number, showErrors, text } from "./forms.js";
import { region } from "./lists.js";
import { many, skippedWords } from "./many.js";
import { calendarStrip } from "./schedule-calendar.js";
import { scheduleFacts } from "./schedule-fields.js";
import { occurrenceTable } from "./schedule-preview.js";
import * as session from "./session.js";
import { between, fromInput, localTime, milliseconds, nearly, now, when } from "./times.js";
import { badge, button, code, confirm, copier, dialog, facts, failureBadge, link, muted, nothing, place, placeWith, section, table, toast } from "./ui.js";

const KEPT = 100;
/** Of a span of missed ones: no more are counted. */
const COUNTED = 100;
const SHOWN = 10;

export function scheduleDetail(page, { namespace, id }) {
  page.title(id);
  const path = paths.schedule(namespace, id);
  const known = { dueAt: null, revision: null, occurrences: { past: [], coming: [] } };
  const changed = () => {
    known.revision = null; // what is triggered or backfilled is beside the schedule
    return view.refresh();
  };
  const view = region(page, {
    what: "Loading the schedule…",
    read: async (signal) => {
      const schedule = await request("GET", path, { signal });
      const { revision, state, nextDueAt } = schedule.data;
      // An ongoing occurrence ends without a change of the schedule.
      const isSame = revision === known.revision && !known.occurrences.past.some((line) => line.state === "Ongoing");
      if (!isSame && state !== "Unreadable") {
        known.occurrences = (await request("GET", `${path}/occurrences`, { query: { count: KEPT }, signal })).data;
      }
      Object.assign(known, { revision, dueAt: state === "Active" ? nextDueAt : null });
      return { schedule, occurrences: known.occurrences };
    },
    draw: ({ schedule, occurrences }) => draw(page, path, schedule, occurrences, changed),
    dueAt: () => known.dueAt,
  });
  return h("article", null, h("p", { class: "crumbs" }, link(place("schedules", namespace), `Schedules of ${namespace}`)), view.element);
}

function draw(page, path, { data: schedule, text }, { past, coming }, load) {
  return [
    h(
      "div",
      { class: "head" },
      h("div", { class: "title" }, h("h1", { class: "mono" }, schedule.id), h("p", { class: "lead" }, badge(schedule.state), " ", verdict(schedule))),
      h("div", { class: "actions" }, buttons(page, path, schedule, load)),
    ),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        null,
        section(
          "Coming",
          {},
          schedule.state === "Paused" && h("p", { class: "hint" }, "None of these fires before it is resumed."),
          calendarStrip(coming, KEPT),
          coming.length ? occurrenceTable("Coming occurrences", coming.slice(0, SHOWN), schedule.timeZone) : h("p", { class: "muted" }, "None."),
        ),
        section("History", {}, past.length ? history(past) : h("p", { class: "muted" }, "No occurrence yet.")),
        schedule.serviceCall ? callSections(schedule.serviceCall, text) : callbackSections(schedule, text),
      ),
      h("div", null, section("Schedule", {}, allFacts(schedule))),
    ),
  ];
}

const ENDED = {
  maxFirings: ({ firings }) => (firings === 1 ? "Ended after its firing." : `Ended after ${firings} firings.`),
  noOccurrence: () => "Ended: no occurrence is left.",
  receiver: () => "Ended: its receiver asked for it.",
};

/** Whether it fires, and when next, in one sentence. */
function verdict(schedule) {
  const words = schedule.description;
  if (schedule.state === "Active") {
    const isDue = Date.parse(schedule.nextDueAt) <= now();
    return h("span", null, words, isDue ? ". Due " : ". Fires ", nearly(schedule.nextDueAt), ".");
  }
  if (schedule.state === "Paused") return h("span", null, words, ". Paused ", nearly(schedule.pausedAt), schedule.pauseReason && `: ${schedule.pauseReason}`, ".");
  if (schedule.state === "Ended") return h("span", null, words, ". ", ENDED[schedule.endReason]?.(schedule) ?? "Ended.");
  return h("span", null, "What is stored of it cannot be read, so it does not fire. Remove it and create it again.");
}

function allFacts(schedule) {
  const isActive = schedule.state === "Active";
  const isDelayed = schedule.nextDueAt !== schedule.nextScheduledAt;
  return facts([
    ["Next", isActive && when(schedule.nextScheduledAt)],
    ["Delayed to", isActive && isDelayed && when(schedule.nextDueAt, { milliseconds: true })],
    ["Last fired", schedule.firedAt && when(schedule.firedAt, { milliseconds: true })],
    ["Last failure", failureFact(schedule.failure, schedule.namespace)],
    ["Firings", schedule.firings],
    ...scheduleFacts(schedule),
    ...callbackFacts(schedule),
    ...(schedule.serviceCall ? callFacts(schedule.serviceCall) : []),
    ["Calls", schedule.serviceCall && link(placeWith(place("calls", session.tenant()), { tag: `schedule:${schedule.namespace}/${schedule.id}` }), "of this schedule")],
    ["Id", [code(schedule.id), copier(schedule.id, "id")]],
    ["Created", when(schedule.createdAt)],
    ["Changed", when(schedule.updatedAt)],
    ["Revision", schedule.revision],
  ]);
}

/** The last lines; those before can be folded out. */
function history(past) {
  const before = past.slice(SHOWN);
  return [
    historyTable("Past occurrences", past.slice(0, SHOWN)),
    before.length > 0 &&
      h("details", { class: "fold", data: { key: "history" } }, h("summary", { data: { key: "history summary" } }, `${before.length} before`), historyTable("Occurrences before", before)),
  ];
}

function historyTable(caption, past) {
  return table(
    caption,
    [
      { label: "Number", class: "fit number", cell: (line) => line.number || muted(line.kind.toLowerCase()) },
      { label: "State", class: "fit", cell: (line) => badge(line.state) },
      { label: "Scheduled", class: "fit time", cell: scheduled },
      { label: "Attempts", class: "fit number", cell: (line) => line.attempts || nothing() },
      { label: "Result", class: "result wide", cell: lineResult },
    ],
    past,
  );
}

function scheduled(line) {
  if (line.lastScheduledAt === null) return when(line.scheduledAt);
  return h("div", null, when(line.scheduledAt, { near: false }), h("div", { class: "sub", title: `${line.lastScheduledAt} (UTC)` }, `to ${localTime(line.lastScheduledAt)}`));
}

/** What came of an occurrence, or of a span of missed ones, with what the receiver asked for. */
function lineResult(line) {
  const call = line.serviceCallId && link(place("calls", session.tenant(), line.serviceCallId), "its service call");
  return h("div", null, outcome(line), line.message && h("div", { class: "sub" }, line.message), call && h("div", { class: "sub" }, call));
}

function outcome(line) {
  if (line.failure) return failureBadge(line.failure);
  if (line.state === "Missed") return muted(line.count === 1 ? "too late" : `${line.count === COUNTED ? `${COUNTED} or more` : line.count} occurrences, too late`);
  if (line.state === "Skipped") return muted("an earlier one was not finished");
  if (!line.startedAt) return nothing();
  return muted(line.attempts > 1 ? `after ${line.attempts} attempts` : `${milliseconds(between(line.scheduledAt, line.startedAt))} after its time`);
}

// -- what can be done ---------------------------------------------------------------------------------------------

function buttons(page, path, schedule, load) {
  if (!session.may("writer")) return [];
  const isReadable = schedule.state !== "Unreadable";
  const act = (what, words) => async () => {
    try {
      await request("POST", `${path}/${what}`);
      toast(words);
    } catch (error) {
      toast(error.message, "bad");
    }
    await load();
  };
  return [
    isReadable && button("Trigger now", act("trigger", `Its ${schedule.serviceCall ? "service call is submitted" : "callback is sent"} now, beside its occurrences.`), { kind: "primary", key: "trigger" }),
    schedule.state === "Active" && button("Pause", () => pause(path, schedule, load), { key: "pause schedule" }),
    schedule.state === "Paused" && button("Resume", () => resume(path, schedule, load), { key: "pause schedule" }),
    isReadable && button("Backfill", () => backfill(page, path, schedule, load), { key: "backfill" }),
    isReadable && button("Cancel backfill", () => cancelBackfill(page, path, load), { key: "cancel backfill" }),
    isReadable && !["maxFirings", "receiver"].includes(schedule.endReason) && h("a", { class: "button", href: place("schedules", schedule.namespace, "schedule", schedule.id, "change"), data: { key: "change" } }, "Change"),
    button("Remove", () => remove(page, path, schedule), { kind: "danger", key: "remove" }),
  ];
}

function pause(path, schedule, load) {
  dialog({
    title: `Pause ${schedule.id}?`,
    content: [
      h("p", null, "Nothing fires until it is resumed. What comes due meanwhile is missed."),
      h("div", { class: "fields" }, field("reason", "Reason", { wide: true, hint: "for people; may be empty", maxlength: 255, autofocus: true })),
    ],
    label: "Pause",
    onProblem: showErrors,
    act: async (form) => {
      await request("POST", `${path}/pause`, { body: { reason: text(form, "reason") } });
      toast("The schedule is paused.");
      await load();
    },
  });
}

/** First the range, then how many there are in it. */
function backfill(page, path, schedule, load) {
  dialog({
    title: `Backfill ${schedule.id}`,
    content: [
      h("p", null, "The occurrences of a range of the past are sent once more, or late. What is pending or to come is left out."),
      h(
        "div",
        { class: "fields" },
        field("from", "From", { type: "datetime-local", autofocus: true }),
        field("to", "Before", { type: "datetime-local", hint: "now when empty" }),
        field("rateLimit", "Per second", { inputmode: "decimal", hint: "how many become due, such as 0.5; 1 when empty" }),
      ),
    ],
    label: "Count",
    onProblem: showErrors,
    act: async (form) => {
      clearErrors(form);
      const range = { from: fromInput(form.elements.from.value), to: fromInput(form.elements.to.value) ?? undefined, rateLimit: number(form, "rateLimit") };
      if (!range.from) throw invalid({ field: "from", message: "is missing" });
      many(page, {
        title: `Backfill ${schedule.id}`,
        content: h("p", null, `From ${localTime(range.from)} to ${range.to ? localTime(range.to) : "now"}. Each is beside the schedule.`),
        label: "Send",
        path: `${path}/backfill`,
        body: () => range,
        counted: (sums) => `${occurrences(sums.created)}${lastWords(sums)}${skippedWords(sums)}`,
        words: (sums) => `${occurrences(sums.created)} will be sent${skippedWords(sums)}`,
        done: load,
      });
    },
  });
}

function lastWords({ last }) {
  return last.lastDueAt === null ? "" : `, the last one at ${localTime(last.lastDueAt)}`;
}

function occurrences(count) {
  return count === 1 ? "1 occurrence" : `${count} occurrences`;
}

function cancelBackfill(page, path, load) {
  many(page, {
    title: "Cancel backfills?",
    content: h("p", null, "What backfills are still to send is not sent. What is in flight goes on."),
    label: "Cancel backfills",
    kind: "danger",
    path: `${path}/backfill/cancel`,
    body: () => ({}),
    counted: (sums) => `${occurrences(sums.cancelled)} still to send`,
    words: (sums) => `${occurrences(sums.cancelled)} cancelled${skippedWords(sums)}`,
    done: load,
  });
}

const MISSED = {
  all: (schedule) => `Occurrences that were missed in the last ${schedule.catchUp} fire now, at most 100.`,
  latest: () => "If occurrences were missed, the last one fires now.",
  skip: () => "Occurrences that were missed do not fire.",
};

function resume(path, schedule, load) {
  dialog({
    title: `Resume ${schedule.id}?`,
    content: h("p", null, MISSED[schedule.misfire]?.(schedule)),
    label: "Resume",
    act: async () => {
      await request("POST", `${path}/resume`);
      toast("The schedule is resumed.");
      await load();
    },
  });
}

function remove(page, path, schedule) {
  confirm("Remove this schedule?", "Its history goes with it. An occurrence that is retried, or in flight, goes on.", "Remove the schedule", async () => {
    await request("DELETE", path);
    toast("The schedule is removed.");
    page.go(place("schedules", schedule.namespace), { instead: true });
  });
}
