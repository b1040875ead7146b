// What can be done with a service call.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { due, dueFields, field, lines, showErrors, text } from "./forms.js";
import { icon } from "./icons.js";
import * as session from "./session.js";
import { button, confirm, dialog, place, toast } from "./ui.js";

export function starButton(call, onChange) {
  const title = call.starred ? "Starred: kept for ever" : "Not starred";
  const mayChange = session.may("writer");
  const press = async () => {
    try {
      await request("PATCH", paths.call(call.tenantId, call.id), { body: { starred: !call.starred } });
    } catch (error) {
      toast(error.message, "bad");
    }
    onChange?.();
  };
  return h(
    "button",
    {
      type: "button",
      class: "quiet bare star",
      "aria-pressed": String(call.starred),
      "aria-label": `Star ${call.name}`,
      title,
      disabled: !mayChange,
      data: { key: `star ${call.id}` },
      on: { click: press },
    },
    icon("star"),
  );
}

/** The buttons for what is possible with `call` as it is now. `changed` is told when something was done. */
export function callButtons(page, call, changed) {
  if (!session.may("writer")) return [];
  const path = paths.call(call.tenantId, call.id);
  const isFinished = ["Succeeded", "Failed", "Cancelled"].includes(call.status);
  const isWaiting = !isFinished && !call.executionId;
  return [
    isFinished && button("Rerun", () => rerun(page, call, path), { kind: "primary", key: "rerun", glyph: "refresh" }),
    isWaiting && button("Fire now", () => fire(call, path, changed), { kind: "primary", key: "fire" }),
    isWaiting && button("Change due time", () => changeDue(call, path, changed), { key: "due" }),
    button("Edit name and tags", () => edit(call, path, changed), { key: "edit" }),
    isWaiting && button("Cancel", () => cancel(call, path, changed), { kind: "danger", key: "cancel" }),
    isFinished && button("Remove", () => remove(page, call, path), { kind: "danger", key: "remove" }),
  ];
}

function rerun(page, call, path) {
  dialog({
    title: "Rerun this call",
    content: [h("p", null, "A new call with the same request, tags and retries."), dueFields("dueAt")],
    label: "Rerun",
    onProblem: showErrors,
    act: async (form) => {
      const { data } = await request("POST", `${path}/rerun`, { body: due(form, "dueAt") });
      toast("The rerun is submitted.");
      page.go(place("calls", data.tenantId, data.id));
    },
  });
}

async function fire(call, path, changed) {
  try {
    await request("POST", `${path}/fire`, { ifMatch: call.revision });
    toast("The call is due now.");
  } catch (error) {
    toast(error.message, "bad");
  }
  changed();
}

function changeDue(call, path, changed) {
  dialog({
    title: "Change the due time",
    content: dueFields("dueAt", { now: false, value: call.nextAttemptAt }),
    label: "Change",
    onProblem: showErrors,
    act: async (form) => {
      await request("PATCH", path, { body: due(form, "dueAt"), ifMatch: call.revision });
      toast("The due time is changed.");
      changed();
    },
  });
}

function edit(call, path, changed) {
  dialog({
    title: "Name and tags",
    content: h(
      "div",
      { class: "fields" },
      field("name", "Name", { value: call.name, wide: true }),
      field("tags", "Tags", { type: "textarea", value: call.tags.join("\n"), hint: "one to a line", wide: true }),
    ),
    label: "Save",
    onProblem: showErrors,
    act: async (form) => {
      const body = { name: text(form, "name") ?? "", tags: lines(form, "tags") ?? [] };
      await request("PATCH", path, { body, ifMatch: call.revision });
      toast("Saved.");
      changed();
    },
  });
}

function cancel(call, path, changed) {
  const what = call.attempts ? "There will be no further attempt." : "It will not be sent.";
  confirm("Cancel this call?", `${what} It is kept as Cancelled.`, "Cancel the call", async () => {
    await request("POST", `${path}/cancel`, { ifMatch: call.revision });
    toast("The call is cancelled.");
    changed();
  });
}

function remove(page, call, path) {
  confirm("Remove this call?", "Its executions and events go with it.", "Remove the call", async () => {
    await request("DELETE", path, { ifMatch: call.revision });
    toast("The call is removed.");
    page.go(place("calls", call.tenantId), { instead: true });
  });
}
