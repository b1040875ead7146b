// What can be done with a namespace: paused, resumed, resharded, deleted.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { clearErrors, field, invalid, number, showErrors, text } from "./forms.js";
import { sleep } from "./live.js";
import * as session from "./session.js";
import { localTime } from "./times.js";
import { button, confirm, dialog, toast } from "./ui.js";

const SECOND_MS = 1000;

/** The buttons for what is possible with `one` as it is now. `changed` is told when something was done. */
export function namespaceButtons(page, one, changed) {
  if (!session.may("admin")) return null;
  const named = (label, act, kind) => button(label, act, { kind, key: `${label} ${one.name}`, name: `${label} ${one.name}` });
  if (one.state === "Deleting") return named("Continue deleting", () => deleteAll(page, one, changed), "quiet danger");
  return [
    one.state === "Paused"
      ? named("Resume", () => resume(one, changed), "quiet")
      : named("Pause", () => pause(one, changed), "quiet"),
    named("Reshard", () => reshard(one, changed), "quiet"),
    named("Delete", () => remove(page, one, changed), "quiet danger"),
  ];
}

function pause(one, changed) {
  dialog({
    title: `Pause ${one.name}?`,
    content: [
      h("p", null, "Within 10 seconds none of its timers fire. They can still be created and changed."),
      h("div", { class: "fields" }, field("reason", "Reason", { wide: true, hint: "for people; may be empty", maxlength: 255, autofocus: true })),
    ],
    label: "Pause",
    onProblem: showErrors,
    act: async (form) => {
      await request("POST", `${paths.namespace(one.name)}/pause`, { body: { reason: text(form, "reason") }, ifMatch: one.revision });
      toast(`${one.name} is paused.`);
      changed();
    },
  });
}

function resume(one, changed) {
  const late =
    one.misfire === "expire"
      ? "Timers that came due in the pause and were never tried fail with the reason expired."
      : "Timers that came due in the pause are fired now.";
  dialog({
    title: `Resume ${one.name}?`,
    content: h("p", null, late),
    label: "Resume",
    act: async () => {
      await request("POST", `${paths.namespace(one.name)}/resume`, { ifMatch: one.revision });
      toast(`${one.name} is resumed.`);
      changed();
    },
  });
}

function reshard(one, changed) {
  dialog({
    title: `Reshard ${one.name}?`,
    content: [
      h("p", null, "New timers go to the new shards in two minutes. Those that are there stay, and fire where they are. It can be done eight times."),
      h("div", { class: "fields" }, field("numShards", "Shards", { inputmode: "numeric", value: one.numShards, hint: "1 to 4096", autofocus: true })),
    ],
    label: "Reshard",
    onProblem: showErrors,
    act: async (form) => {
      const { data } = await request("POST", `${paths.namespace(one.name)}/reshard`, { body: { numShards: number(form, "numShards") }, ifMatch: one.revision });
      const isSame = data.revision === one.revision;
      toast(isSame ? `${one.name} has ${one.numShards} shards already.` : `${one.name} has ${data.numShards} shards from ${localTime(data.earlierShards.at(-1).until)} on.`);
      changed();
    },
  });
}

/** First without its timers: the server says when there are some, and only then is it asked about them. */
function remove(page, one, changed) {
  const progress = h("p", { class: "muted", role: "status" });
  const question = "This deletes its settings and signing secrets, too. A namespace with timers is kept.";
  const element = confirm(`Delete ${one.name}?`, question, "Delete", async () => {
    try {
      await steps(page, element, one, {}, progress);
    } catch (error) {
      if (error.code !== "namespace_not_empty") throw error;
      deleteAll(page, one, changed);
      return;
    } finally {
      changed();
    }
  });
  element.querySelector(".wrong").before(progress);
}

/** With all its timers, for which the name has to be typed. */
function deleteAll(page, one, changed) {
  const progress = h("p", { class: "muted", role: "status" });
  const element = dialog({
    title: `Delete ${one.name} with all its timers?`,
    content: [
      h("p", null, "It has timers. All of them are removed for good, and none of them fires any more."),
      h("div", { class: "fields" }, field("name", "Name of the namespace", { wide: true, hint: `type ${one.name}`, autofocus: true })),
      progress,
    ],
    label: "Delete everything",
    kind: "danger",
    onProblem: showErrors,
    act: async (form) => {
      clearErrors(form);
      if (text(form, "name") !== one.name) throw invalid({ field: "name", message: `is not ${one.name}` });
      try {
        await steps(page, element, one, { force: true }, progress);
      } finally {
        changed();
      }
    },
  });
}

/** Step by step until it is gone. When the dialog is closed before, the deletion can be resumed. */
async function steps(page, element, one, query, progress) {
  const closed = new AbortController();
  element.addEventListener("close", () => closed.abort());
  let removed = 0;
  while (!closed.signal.aborted) {
    const { data, headers } = await request("DELETE", paths.namespace(one.name), { query, ifMatch: one.revision, signal: page.signal });
    removed += data.removed;
    const timers = removed === 1 ? "1 timer" : `${removed} timers`;
    if (data.done) {
      toast(`${one.name} is deleted${removed ? `, with ${timers}` : ""}.`);
      return;
    }
    const seconds = Number(headers.get("retry-after"));
    progress.textContent = `${timers} removed. ${seconds ? `It is gone in ${seconds} s, if this stays open.` : ""}`;
    await sleep(seconds * SECOND_MS, closed.signal);
  }
}
