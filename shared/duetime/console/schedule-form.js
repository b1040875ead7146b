// Creating and changing a schedule.

import { paths, request } from "./api.js";
import { moreFields, readCall, requestFields } from "./call-form.js";
import { h } from "./dom.js";
import { CALLBACK, LABELS, destination, isGiven, listedFields, readListed } from "./field-lists.js";
import * as forms from "./forms.js";
import { rawMember, withRaw } from "./json.js";
import { MORE_TIMING, POLICY, TIMING } from "./schedule-fields.js";
import { preview } from "./schedule-preview.js";
import { loading, place, problemView, toast } from "./ui.js";

const { field } = forms;
const WITHIN = "serviceCall.";

export function createSchedule(page, { namespace }) {
  const ids = forms.keysFor();
  return scheduleForm(page, {
    title: "Create a schedule",
    crumb: `Schedules of ${namespace}`,
    back: place("schedules", namespace),
    label: "Create",
    submit: async (form) => {
      const { payload, serviceCall, ...members } = read(form, form.elements.target.value === "call");
      const given = withRaw({ ...members, paused: form.elements.paused.checked || undefined }, { payload, serviceCall });
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
    const isOfCall = given.data.serviceCall !== null;
    let first = null;
    const view = scheduleForm(page, {
      title: `Change ${id}`,
      crumb: id,
      back,
      label: "Change",
      given,
      submit: async (form) => {
        const found = read(form, isOfCall);
        const names = Object.keys(found).filter((name) => JSON.stringify(found[name]) !== JSON.stringify(first[name]));
        const { payload, serviceCall, ...members } = Object.fromEntries(names.map((name) => [name, found[name] ?? null]));
        const body = withRaw(members, { payload: payload === null ? "null" : payload, serviceCall });
        await request("PATCH", path, { body, signal: page.signal });
        toast("Changed.");
        page.go(back, { instead: true });
      },
    });
    first = read(view.querySelector("form"), isOfCall);
    box.replaceChildren(view);
  };
  open().catch((error) => page.signal.aborted || box.replaceChildren(problemView(error, { again: page.again })));
  return box;
}

function scheduleForm(page, { given, ...more }) {
  const call = given?.data.serviceCall ?? undefined;
  const target = field("target", "At each occurrence", {
    type: "select",
    options: [
      ["callback", "A callback is sent"],
      ["call", "A service call is submitted"],
    ],
  });
  const what = h("div");
  const how = h("div");
  const show = (isOfCall) => {
    what.replaceChildren(isOfCall ? ofCall.what : ofCallback.what);
    how.replaceChildren(...(isOfCall ? ofCall.how : ofCallback.how));
  };
  const ofCallback = {
    what: h("div", { class: "fields" }, field("callbackUrl", "Callback URL", { type: "url", wide: true, placeholder: "https://", hint: "gets a POST at each occurrence; or the ARN of a target", paths: ["target"], value: (given && destination(given.data)) ?? "" })),
    how: [
      fold("What is sent", listedFields(CALLBACK, given)),
      forms.policyFields("The policy of the namespace applies when all fields are empty. Intervals: 30s, 5m, 1h30m.", given?.data.retryPolicy, { escalates: true }),
    ],
  };
  const ofCall = {
    what: requestFields({ within: WITHIN, given: call, json: call && bodyText(given.text) }),
    how: [...moreFields({ within: WITHIN, given: call }), fold("Labels and expiry", listedFields(LABELS, given))],
  };
  target.querySelector("select").addEventListener("change", (event) => show(event.target.value === "call"));
  show(Boolean(call));
  const times = h("div");
  const view = forms.formPage(page, {
    ...more,
    content: [
      !given && h("div", { class: "fields" }, target),
      what,
      h(
        "div",
        { class: "fields" },
        !given && field("id", "Id", { wide: true, hint: "unique in the namespace; generated when empty", maxlength: 230 }),
        listedFields(TIMING, given),
        forms.zones(),
      ),
      fold("More about its times", listedFields(MORE_TIMING, given), given && MORE_TIMING.some(({ name, options }) => !options && isGiven(given.data[name]))),
      times,
      fold("Missed, overlapping, ending", listedFields(POLICY, given)),
      how,
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

function bodyText(json) {
  const text = rawMember(json, "serviceCall", "request", "body");
  return text === "null" ? "" : text;
}

/** By the names of the API; `payload` and `serviceCall` are JSON texts. */
function read(form, isOfCall) {
  const listed = readListed([...TIMING, ...MORE_TIMING, ...POLICY, ...(isOfCall ? LABELS : CALLBACK)], form);
  if (isOfCall) return { serviceCall: readCall(form, { within: WITHIN }), ...listed };
  return { ...forms.destination(form, "callbackUrl"), ...listed, retryPolicy: forms.policy(form) };
}
