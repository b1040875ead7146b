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
  const isFinished = call.status === "Succeeded" || call.status === "Failed";
  return [
    isFinished && button("Rerun", () => rerun(page, call, path), { kind: "primary", key: "rerun", glyph: "refresh" }),
    call.status === "Scheduled" && button("Change due time", () => changeDue(call, path, changed), { key: "due" }),
    button("Edit name and tags", () => edit(call, path, changed), { key: "edit" }),
    call.status === "Scheduled" && button("Cancel", () => remove(page, call, path, true), { kind: "danger", key: "remove" }),
    isFinished && button("Remove", () => remove(page, call, path, false), { kind: "danger", key: "remove" }),
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

function changeDue(call, path, changed) {
  dialog({
    title: "Change the due time",
    content: dueFields("dueAt", { now: false, value: call.dueAt }),
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

function remove(page, call, path, isCancel) {
  const words = isCancel
    ? ["Cancel this call?", "It will not be sent, and it is removed.", "Cancel the call", "The call is cancelled."]
    : ["Remove this call?", "Its executions and events go with it.", "Remove the call", "The call is removed."];
  confirm(words[0], words[1], words[2], async () => {
    await request("DELETE", path, { ifMatch: call.revision });
    toast(words[3]);
    page.go(place("calls", call.tenantId), { instead: true });
  });
}
