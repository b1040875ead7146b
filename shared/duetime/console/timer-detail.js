// One timer: whether it fired, when, and what the receiver said to each attempt.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { callbackFacts, callbackSections, failureFact } from "./field-lists.js";
import { due, dueFields, showErrors } from "./forms.js";
import { region } from "./lists.js";
import { localFields } from "./local-due.js";
import { headerTable, textBox } from "./messages.js";
import * as session from "./session.js";
import { between, milliseconds, nearly, now, when } from "./times.js";
import { badge, button, code, confirm, copier, dialog, facts, httpStatus, link, muted, place, section, toast } from "./ui.js";

export function timerDetail(page, { namespace, id }) {
  page.title(id);
  const path = paths.timer(namespace, id);
  let dueAt = null;
  const view = region(page, {
    what: "Loading the timer…",
    read: async (signal) => {
      const [timer, attempts] = await Promise.all([request("GET", path, { signal }), request("GET", `${path}/attempts`, { signal })]);
      dueAt = timer.data.nextAttemptAt;
      return { timer, attempts: attempts.data.items };
    },
    draw: ({ timer, attempts }) => drawTimer(page, path, timer, attempts, () => view.refresh()),
    dueAt: () => dueAt,
  });
  return h("article", null, h("p", { class: "crumbs" }, link(place("timers", namespace), `Timers of ${namespace}`)), view.element);
}

function drawTimer(page, path, { data: timer, text }, attempts, load) {
  return [
    h(
      "div",
      { class: "head" },
      h("div", { class: "title" }, h("h1", { class: "mono" }, timer.id), h("p", { class: "lead" }, badge(timer.state), " ", verdict(timer, attempts))),
      h("div", { class: "actions" }, buttons(page, path, timer, load)),
    ),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        null,
        section("Attempts", {}, attempts.length ? [...attempts].reverse().map((one, at) => attemptFold(one, at === 0)) : h("p", { class: "muted" }, "None yet.")),
        callbackSections(timer, text),
      ),
      h("div", null, section("Timer", {}, timerFacts(timer))),
    ),
  ];
}

/** Did it fire, when, and what did the receiver say: in one sentence. */
function verdict(timer, attempts) {
  const last = attempts.at(-1);
  if (timer.state === "Fired") {
    const late = between(timer.executeAt, timer.firedAt);
    const said = last?.status ? ["; the receiver responded ", httpStatus(last.status), ` within ${milliseconds(last.durationMs)}`] : null;
    return h("span", null, late >= 0 ? `Fired ${milliseconds(late)} after its due time` : "Fired before its due time", said, ".");
  }
  if (timer.state === "Failed") {
    const tries = timer.attempts === 0 ? "without an attempt" : timer.attempts === 1 ? "at its only attempt" : `after ${timer.attempts} attempts`;
    return h("span", null, `Failed ${tries}: `, failureWords(timer.failure), ".");
  }
  if (timer.state === "Cancelled") return h("span", null, `Cancelled ${timer.attempts === 0 ? "before its first attempt" : `after ${timer.attempts} attempts`}, `, nearly(timer.updatedAt), ".");
  if (timer.state === "Firing") return h("span", null, "An attempt is in flight.");
  if (timer.state === "Waiting") return h("span", null, "The receiver took the work, and is to say by ", nearly(timer.nextAttemptAt), " what came of it.");
  if (timer.attempts > 0) return h("span", null, `Attempt ${timer.attempts} failed: `, failureWords(timer.failure), ". The next one is ", nearly(timer.nextAttemptAt), ".");
  return h("span", null, Date.parse(timer.executeAt) > now() ? "Fires " : "Due ", nearly(timer.executeAt), ".");
}

export function failureWords(failure) {
  if (!failure) return "for an unknown reason";
  return failure.status === null ? [failure.reason, " – ", failure.message] : ["the receiver responded ", httpStatus(failure.status)];
}

function timerFacts(timer) {
  return facts([
    ["Due", when(timer.executeAt, { milliseconds: true })],
    ["By local time", timer.localTime && `${timer.localTime.replace("T", " ")} ${timer.timeZone}`],
    ["Fired", timer.firedAt && when(timer.firedAt, { milliseconds: true })],
    [timer.state === "Waiting" ? "Answer by" : "Next attempt", timer.nextAttemptAt && timer.nextAttemptAt !== timer.executeAt && when(timer.nextAttemptAt, { milliseconds: true })],
    ["Attempts", timer.attempts],
    ["Last failure", failureFact(timer.failure, timer.namespace)],
    ...callbackFacts(timer),
    ["Id", [code(timer.id), copier(timer.id, "id")]],
    ["Created", when(timer.createdAt)],
    ["Changed", when(timer.updatedAt)],
    ["Revision", timer.revision],
  ]);
}

function attemptFold(attempt, isOpen) {
  const key = `${attempt.firingId} ${attempt.number}`;
  return h(
    "details",
    { class: "fold execution", open: isOpen, data: { key } },
    h(
      "summary",
      { data: { key: `summary ${key}` } },
      h("span", { class: "number" }, `#${attempt.number}`),
      badge(attempt.outcome),
      attempt.status ? httpStatus(attempt.status) : attempt.errorClass && h("span", { class: "http bad" }, attempt.errorClass),
      h("span", { class: "spread" }, when(attempt.startedAt, { milliseconds: true })),
      muted(milliseconds(attempt.durationMs)),
    ),
    h(
      "div",
      { class: "fold-body" },
      facts([
        ["Failed", attempt.reason && `${attempt.reason}: ${attempt.message ?? ""}`],
        ["Ended", when(attempt.finishedAt, { milliseconds: true, near: false })],
        ["webhook-id", code(attempt.firingId)],
      ]),
      attempt.status && h("h3", null, "Response"),
      attempt.status && headerTable(Object.entries(attempt.headers)),
      attempt.status &&
        textBox(attempt.body, {
          key: `body ${key}`,
          what: "response body",
          note: attempt.bodyTruncated ? `The beginning of ${attempt.bodyBytes} bytes.` : attempt.bodyBytes && !attempt.body ? `${attempt.bodyBytes} bytes, not kept.` : undefined,
        }),
    ),
  );
}

// -- what can be done ---------------------------------------------------------------------------------------------

function buttons(page, path, timer, load) {
  if (!session.may("writer")) return [];
  const isWaiting = timer.state === "Scheduled";
  const isOver = ["Fired", "Failed", "Cancelled"].includes(timer.state);
  const act = (what, words) => async () => {
    try {
      await request("POST", `${path}/${what}`, { ifMatch: timer.revision });
      toast(words);
    } catch (error) {
      toast(error.message, "bad");
    }
    await load();
  };
  return [
    timer.state === "Failed" && button("Redrive", act("redrive", "The timer is scheduled again, due now."), { kind: "primary", key: "redrive", glyph: "refresh" }),
    isWaiting && button("Fire now", act("fire", "The timer is due now."), { kind: "primary", key: "fire" }),
    isWaiting && button("Change due time", () => changeDue(page, path, timer, load), { key: "due" }),
    isWaiting && button("Cancel", () => cancel(path, timer, load), { kind: "danger", key: "cancel" }),
    !isWaiting && button("Remove", () => remove(page, path, timer, isOver), { kind: "danger", key: "remove" }),
  ];
}

function changeDue(page, path, timer, load) {
  dialog({
    title: "Change the due time",
    content: dueFields("executeAt", { now: false, value: timer.executeAt, local: localFields(page, timer), isLocal: timer.localTime !== null }),
    label: "Change",
    onProblem: showErrors,
    act: async (form) => {
      await request("PATCH", path, { body: due(form, "executeAt"), ifMatch: timer.revision });
      toast("The due time is changed.");
      await load();
    },
  });
}

function cancel(path, timer, load) {
  const what = timer.attempts ? "There will be no further attempt." : "It will not fire.";
  confirm("Cancel this timer?", `${what} It is kept as Cancelled.`, "Cancel the timer", async () => {
    await request("POST", `${path}/cancel`, { ifMatch: timer.revision });
    toast("The timer is cancelled.");
    await load();
  });
}

function remove(page, path, timer, isOver) {
  const words = isOver ? "Its attempts go with it." : "It will not fire again, and its attempts go with it.";
  confirm("Remove this timer?", words, "Remove the timer", async () => {
    const { data } = await request("DELETE", path, { ifMatch: timer.revision });
    toast(data.attemptInFlight ? "The timer is removed. An attempt is in flight: its receiver may still get it." : "The timer is removed.");
    page.go(place("timers", timer.namespace), { instead: true });
  });
}
