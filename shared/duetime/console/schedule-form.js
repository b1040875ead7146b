// Creating and changing a schedule.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { CALLBACK, isGiven, listedFields, readListed } from "./field-lists.js";
import * as forms from "./forms.js";
import { withRaw } from "./json.js";
import { MORE_TIMING, POLICY, TIMING } from "./schedule-fields.js";
import { preview } from "./schedule-preview.js";
import { loading, place, problemView, toast } from "./ui.js";

const { field } = forms;

export function createSchedule(page, { namespace }) {
  const ids = forms.keysFor();
  return scheduleForm(page, {
    title: "Create a schedule",
    crumb: `Schedules of ${namespace}`,
    back: place("schedules", namespace),
    label: "Create",
    submit: async (form) => {
      const { payload, ...members } = read(form);
      const given = withRaw({ ...members, paused: form.elements.paused.checked || undefined }, { payload });
      const id = form.elements.id.value || ids(given);
      const body = `${given.slice(0, -1)},"id":${JSON.stringify(id)}}`;
      const { status } = await request("POST", paths.schedules(namespace), { body, signal: page.signal });
      toast(status === 200 ? "This schedule already exists." : "Created.");
      page.go(place("schedules", namespace, "schedule", id), { instead: true });
    },
  });
}

/**
 * Only what was changed here is sent, without a revision: that counts occurrences too, which would refuse every change
 * of a schedule that fires often.
 */
export function changeSchedule(page, { namespace, id }) {
  const path = paths.schedule(namespace, id);
  const back = place("schedules", namespace, "schedule", id);
  const box = h("div", null, loading("Loading the schedule…"));
  const open = async () => {
    const given = await request("GET", path, { signal: page.signal });
    let first = null;
    const view = scheduleForm(page, {
      title: `Change ${id}`,
      crumb: id,
      back,
      label: "Change",
      given,
      submit: async (form) => {
        const found = read(form);
        const names = Object.keys(found).filter((name) => JSON.stringify(found[name]) !== JSON.stringify(first[name]));
        const { payload, ...members } = Object.fromEntries(names.map((name) => [name, found[name] ?? null]));
        const body = withRaw(members, { payload: payload === null ? "null" : payload });
        await request("PATCH", path, { body, signal: page.signal });
        toast("Changed.");
        page.go(back, { instead: true });
      },
    });
    first = read(view.querySelector("form"));
    box.replaceChildren(view);
  };
  open().catch((error) => page.signal.aborted || box.replaceChildren(problemView(error, { again: page.again })));
  return box;
}

function scheduleForm(page, { given, ...more }) {
  const times = h("div");
  const view = forms.formPage(page, {
    ...more,
    content: [
      h(
        "div",
        { class: "fields" },
        field("callbackUrl", "Callback URL", { type: "url", wide: true, placeholder: "https://", hint: "gets a POST at each occurrence", value: given?.data.callbackUrl }),
        !given && field("id", "Id", { wide: true, hint: "unique in the namespace; generated when empty", maxlength: 230 }),
        listedFields(TIMING, given),
        forms.zones(),
      ),
      fold("More about its times", listedFields(MORE_TIMING, given), given && MORE_TIMING.some(({ name, options }) => !options && isGiven(given.data[name]))),
      times,
      fold("Missed, overlapping, ending", listedFields(POLICY, given)),
      fold("What is sent", listedFields(CALLBACK, given)),
      forms.policyFields("The policy of the namespace applies when all fields are empty. Intervals: 30s, 5m, 1h30m.", given?.data.retryPolicy),
      !given && field("paused", "Paused: nothing fires until it is resumed", { type: "checkbox" }),
    ],
  });
  const form = view.querySelector("form");
  times.replaceWith(preview(page, form, () => given?.data.id ?? (form.elements.id.value || undefined)));
  return view;
}

function fold(title, content, isOpen) {
  return h("details", { class: "fold", open: isOpen }, h("summary", null, title), h("div", { class: "fields" }, content));
}

/** By the names of the API; `payload` is JSON text. */
function read(form) {
  return {
    callbackUrl: forms.text(form, "callbackUrl"),
    ...readListed([...TIMING, ...MORE_TIMING, ...POLICY, ...CALLBACK], form),
    retryPolicy: forms.policy(form),
  };
}
