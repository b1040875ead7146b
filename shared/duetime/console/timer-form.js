// Creating a timer.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { CALLBACK, listedFields, readListed } from "./field-lists.js";
import * as forms from "./forms.js";
import { withRaw } from "./json.js";
import { localFields } from "./local-due.js";
import { place, toast } from "./ui.js";

const { field } = forms;

export function timerForm(page, { namespace }) {
  const ids = forms.keysFor();
  return forms.formPage(page, {
    title: "Create a timer",
    crumb: `Timers of ${namespace}`,
    back: place("timers", namespace),
    label: "Create",
    content: [
      h(
        "div",
        { class: "fields" },
        field("callbackUrl", "Callback URL", { type: "url", wide: true, placeholder: "https://", hint: "gets a POST when the timer fires; or the ARN of a target", paths: ["target"] }),
        field("id", "Id", { wide: true, hint: "unique in the namespace; generated when empty", maxlength: 255 }),
      ),
      forms.dueFields("executeAt", { local: localFields(page) }),
      h("div", { class: "fields" }, listedFields(CALLBACK)),
      forms.policyFields("The policy of the namespace applies when all fields are empty. Intervals: 30s, 5m, 1h30m.", undefined, { escalates: true }),
    ],
    submit: async (form) => {
      const body = read(form, ids);
      const { data, status } = await request("POST", paths.timers(namespace), { body, signal: page.signal });
      toast(status === 200 ? "This timer already exists." : "Created.");
      page.go(place("timers", namespace, "timer", data.id), { instead: true });
    },
  });
}

/** The body, as JSON text. Without an id one is made here: what is sent again after a lost answer is the same timer. */
function read(form, ids) {
  const { payload, ...content } = readListed(CALLBACK, form);
  const given = withRaw(
    {
      ...forms.destination(form, "callbackUrl"),
      ...forms.due(form, "executeAt", { nowIs: { delay: 0 } }),
      ...content,
      retryPolicy: forms.policy(form),
    },
    { payload },
  );
  const id = form.elements.id.value || ids(given);
  return `${given.slice(0, -1)},"id":${JSON.stringify(id)}}`;
}
