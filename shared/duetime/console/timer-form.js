// Creating a timer.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import * as forms from "./forms.js";
import { withRaw } from "./json.js";
import { link, place, problemView, toast } from "./ui.js";

const { field } = forms;

export function timerForm(page, { namespace }) {
  page.title("Create a timer");
  const wrong = h("div", { class: "wrong" });
  const go = h("button", { type: "submit", class: "primary" }, "Create");
  const form = h(
    "form",
    { class: "card", novalidate: true },
    h(
      "div",
      { class: "fields" },
      field("callbackUrl", "Callback URL", { type: "url", wide: true, placeholder: "https://", hint: "gets a POST when the timer fires" }),
      field("id", "Id", { wide: true, hint: "unique in the namespace; generated when empty", maxlength: 255 }),
    ),
    forms.dueFields("executeAt"),
    h(
      "div",
      { class: "fields" },
      field("payload", "Payload", { type: "textarea", rows: 6, wide: true, hint: "any JSON; it is delivered unchanged" }),
      field("headers", "Headers", { type: "textarea", wide: true, hint: "Name: value, one to a line" }),
      field("tags", "Tags", { type: "textarea", rows: 2, hint: "one to a line" }),
      field("correlationId", "Correlation id"),
      field("timeoutSeconds", "Timeout in seconds", { inputmode: "numeric", hint: "1 to 900; 30 when empty" }),
      field("expireAfter", "Expires after", { hint: "how late it may fire, such as 10m; no limit when empty" }),
    ),
    forms.policyFields("The policy of the namespace applies when all fields are empty. Intervals: 30s, 5m, 1h30m."),
    wrong,
    h("div", { class: "actions end" }, link(place("timers", namespace), "Back"), go),
  );
  const ids = forms.keysFor();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    forms.clearErrors(form);
    try {
      const body = read(form, ids);
      const { data, status } = await request("POST", paths.timers(namespace), { body, signal: page.signal });
      toast(status === 200 ? "This timer already exists." : "Created.");
      page.go(place("timers", namespace, "timer", data.id), { instead: true });
    } catch (error) {
      go.disabled = false;
      if (!page.signal.aborted && !forms.showErrors(form, error)) wrong.replaceChildren(problemView(error));
    }
  });
  return h("div", { class: "page-narrow" }, h("p", { class: "crumbs" }, link(place("timers", namespace), `Timers of ${namespace}`)), h("h1", null, "Create a timer"), form);
}

/** The body, as JSON text. Without an id one is made here: what is sent again after a lost answer is the same timer. */
function read(form, ids) {
  const given = withRaw(
    {
      callbackUrl: forms.text(form, "callbackUrl"),
      ...forms.due(form, "executeAt", { nowIs: { delay: 0 } }),
      headers: forms.headers(form, "headers"),
      tags: forms.lines(form, "tags"),
      correlationId: forms.text(form, "correlationId"),
      timeoutSeconds: forms.number(form, "timeoutSeconds"),
      expireAfter: forms.text(form, "expireAfter"),
      retryPolicy: forms.policy(form),
    },
    { payload: forms.rawJson(form, "payload") },
  );
  const id = form.elements.id.value || ids(given);
  return `${given.slice(0, -1)},"id":${JSON.stringify(id)}}`;
}
