// Submitting a service call.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import * as forms from "./forms.js";
import { isJson, withRaw } from "./json.js";
import { place, toast } from "./ui.js";

const { field } = forms;
const METHODS = ["POST", "GET", "PUT", "PATCH", "DELETE"].map((method) => [method, method]);

export function callForm(page, { tenant }) {
  const keys = forms.keysFor();
  return forms.formPage(page, {
    title: "Submit a service call",
    crumb: "Service calls",
    back: place("calls", tenant),
    label: "Submit",
    content: [
      h(
        "div",
        { class: "fields" },
        field("name", "Name", { wide: true, hint: "for people; lists filter by its beginning", maxlength: 200 }),
        h("div", { class: "fields url-line" }, field("request.method", "Method", { type: "select", options: METHODS }), field("request.url", "URL", { type: "url", placeholder: "https://" })),
        field("request.headers", "Headers", { type: "textarea", wide: true, hint: "Name: value, one to a line" }),
        field("bodyKind", "Body", { type: "select", options: [["json", "JSON, unchanged"], ["text", "Text"]] }),
        field("request.body", "Content", { type: "textarea", rows: 6, wide: true, paths: ["request"] }),
      ),
      forms.dueFields("dueAt"),
      h(
        "div",
        { class: "fields" },
        field("tags", "Tags", { type: "textarea", rows: 2, hint: "one to a line" }),
        field("starred", "Star: keep it for ever", { type: "checkbox" }),
      ),
      h(
        "details",
        { class: "fold" },
        h("summary", null, "More"),
        h(
          "div",
          { class: "fields" },
          field("timeoutSeconds", "Timeout", { inputmode: "numeric", hint: "in seconds, 1 to 900; 30 when empty" }),
          field("correlationId", "Correlation id", { hint: "generated when empty" }),
          field("idempotencyKey", "Idempotency key", { hint: "generated when empty, so that a repeated submission makes one call" }),
        ),
      ),
      forms.policyFields("One attempt when all fields are empty. Intervals: 30s, 5m, 1h30m."),
    ],
    submit: async (form) => {
      const body = read(form, keys);
      const { data, status } = await request("POST", paths.calls(tenant), { body, signal: page.signal });
      toast(status === 200 ? "This call was already submitted." : "Submitted.");
      page.go(place("calls", tenant, data.id), { instead: true });
    },
  });
}

/** The body of the submission, as JSON text: the request's own body stays the text that was written. */
function read(form, keys) {
  const given = withRaw(
    {
      name: forms.text(form, "name"),
      ...forms.due(form, "dueAt"),
      tags: forms.lines(form, "tags"),
      starred: form.elements.starred.checked || undefined,
      timeoutSeconds: forms.number(form, "timeoutSeconds"),
      correlationId: forms.text(form, "correlationId"),
      retryPolicy: forms.policy(form),
    },
    {
      request: withRaw(
        { method: form.elements["request.method"].value, url: forms.text(form, "request.url"), headers: forms.headers(form, "request.headers") },
        { body: readBody(form) },
      ),
    },
  );
  const key = forms.text(form, "idempotencyKey") ?? keys(given);
  return `${given.slice(0, -1)},"idempotencyKey":${JSON.stringify(key)}}`;
}

function readBody(form) {
  const written = form.elements["request.body"].value;
  if (written.trim() === "") return undefined;
  if (form.elements.bodyKind.value === "text") return JSON.stringify(written);
  if (!isJson(written)) throw forms.invalid({ field: "request.body", message: "is not JSON; choose Text to send it unchanged" });
  return written.trim();
}
