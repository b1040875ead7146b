// Submitting a service call.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { destination, writeHeaders, writeLines } from "./field-lists.js";
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
      requestFields(),
      forms.dueFields("dueAt"),
      moreFields({ more: field("idempotencyKey", "Idempotency key", { hint: "generated when empty, so that a repeated submission makes one call" }) }),
    ],
    submit: async (form) => {
      const body = read(form, keys);
      const { data, status } = await request("POST", paths.calls(tenant), { body, signal: page.signal });
      toast(status === 200 ? "This call was already submitted." : "Submitted.");
      page.go(place("calls", tenant, data.id), { instead: true });
    },
  });
}

/** What is called. `within` is what stands before the names of the API; `given` a call, and `json` the text of the body. */
export function requestFields({ within = "", given, json } = {}) {
  const { method, headers } = given?.request ?? {};
  return h(
    "div",
    { class: "fields" },
    field(`${within}name`, "Name", { wide: true, hint: "for people; lists filter by its beginning", maxlength: 200, value: given?.name }),
    h(
      "div",
      { class: "fields url-line" },
      field(`${within}request.method`, "Method", { type: "select", options: METHODS, value: method }),
      field(`${within}request.url`, "URL", { type: "url", placeholder: "https://, or arn: of a target", paths: [`${within}request.target`], value: given && destination(given.request) }),
    ),
    field(`${within}request.headers`, "Headers", { type: "textarea", wide: true, hint: "Name: value, one to a line", value: headers ? writeHeaders(headers) : "" }),
    field("bodyKind", "Body", { type: "select", options: [["json", "JSON, unchanged"], ["text", "Text"]] }),
    field(`${within}request.body`, "Content", { type: "textarea", rows: 6, wide: true, paths: [`${within}request`], value: json }),
  );
}

/** How it is called. */
export function moreFields({ within = "", given, more } = {}) {
  return [
    h(
      "div",
      { class: "fields" },
      field(`${within}tags`, within ? "Tags of its calls" : "Tags", { type: "textarea", rows: 2, hint: "one to a line", value: given && writeLines(given.tags) }),
      field(`${within}starred`, within ? "Star: keep its calls for ever" : "Star: keep it for ever", { type: "checkbox", value: given?.starred }),
    ),
    h(
      "details",
      { class: "fold" },
      h("summary", null, within ? "More about its calls" : "More"),
      h(
        "div",
        { class: "fields" },
        field(`${within}timeoutSeconds`, "Timeout", { inputmode: "numeric", hint: "in seconds, 1 to 900; 30 when empty", value: given?.timeoutSeconds }),
        field(`${within}correlationId`, "Correlation id", { hint: "generated when empty", value: given?.correlationId ?? "" }),
        more,
      ),
    ),
    forms.policyFields("One attempt when all fields are empty. Intervals: 30s, 5m, 1h30m.", given?.retryPolicy, { within }),
  ];
}

/** A call as JSON text: the request's own body stays the text that was written. */
export function readCall(form, { within = "", ...others } = {}) {
  return withRaw(
    {
      name: forms.text(form, `${within}name`),
      ...others,
      tags: forms.lines(form, `${within}tags`),
      starred: form.elements[`${within}starred`].checked || undefined,
      timeoutSeconds: forms.number(form, `${within}timeoutSeconds`),
      correlationId: forms.text(form, `${within}correlationId`),
      retryPolicy: forms.policy(form, { within }),
    },
    {
      request: withRaw(
        {
          method: form.elements[`${within}request.method`].value,
          ...forms.destination(form, "url", { within: `${within}request.` }),
          headers: forms.headers(form, `${within}request.headers`),
        },
        { body: readBody(form, `${within}request.body`) },
      ),
    },
  );
}

function read(form, keys) {
  const given = readCall(form, forms.due(form, "dueAt"));
  const key = forms.text(form, "idempotencyKey") ?? keys(given);
  return `${given.slice(0, -1)},"idempotencyKey":${JSON.stringify(key)}}`;
}

function readBody(form, name) {
  const written = form.elements[name].value;
  if (written.trim() === "") return undefined;
  if (form.elements.bodyKind.value === "text") return JSON.stringify(written);
  if (!isJson(written)) throw forms.invalid({ field: name, message: "is not JSON; choose Text to send it unchanged" });
  return written.trim();
}
