// Fields with their labels, hints and errors, and what people write into them as the API wants it.

import { Problem } from "./api.js";
import { h } from "./dom.js";
import { isJson } from "./json.js";
import { fromInput, toInput, zone } from "./times.js";
import { link, problemView } from "./ui.js";

let counter = 0;

/**
 * A field. `path` is its name in the API, by which errors find it; `paths` further ones. `type` is that of an input, or
 * `textarea`, `select` (with `options`), `checkbox`.
 */
export function field(path, label, { type = "text", value = "", hint, options, paths = [], wide = false, ...more } = {}) {
  counter += 1;
  const id = `field-${counter}`;
  const attributes = { id, name: path, autocomplete: "off", ...more };
  const control = makeControl(type, attributes, value, options);
  const error = h("p", { class: "field-error", id: `${id}-error` });
  const help = hint && h("p", { class: "hint", id: `${id}-hint` }, hint);
  control.setAttribute("aria-describedby", [help && `${id}-hint`, `${id}-error`].filter(Boolean).join(" "));
  const caption = h("label", { for: id }, label);
  const content = type === "checkbox" ? [h("div", { class: "check" }, control, caption)] : [caption, control];
  return h("div", { class: `field${wide ? " wide" : ""}`, data: { paths: JSON.stringify([path, ...paths]) } }, content, help, error);
}

function makeControl(type, attributes, value, options) {
  if (type === "textarea") return h("textarea", { rows: 3, spellcheck: "false", ...attributes, value });
  if (type === "select") {
    const shown = options.map(([one, text]) => h("option", { value: one, selected: one === value }, text));
    return h("select", attributes, shown);
  }
  if (type === "checkbox") return h("input", { type, checked: Boolean(value), ...attributes });
  const step = type === "datetime-local" ? { step: 1 } : {};
  return h("input", { type, spellcheck: "false", ...step, ...attributes, value });
}

/** A page with a form: `submit(form)` leads on to another one, and what it raises is shown. `back` is where it came from. */
export function formPage(page, { title, crumb, back, label, content, submit }) {
  page.title(title);
  const wrong = h("div", { class: "wrong" });
  const go = h("button", { type: "submit", class: "primary" }, label);
  const form = h("form", { class: "card", novalidate: true }, content, wrong, h("div", { class: "actions end" }, link(back, "Back"), go));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    clearErrors(form);
    try {
      await submit(form);
    } catch (error) {
      go.disabled = false;
      if (!page.signal.aborted && !showErrors(form, error)) wrong.replaceChildren(problemView(error));
    }
  });
  return h("div", { class: "page-narrow" }, h("p", { class: "crumbs" }, link(back, crumb)), h("h1", null, title), form);
}

/** Puts the errors of a Problem to the fields they are about; false when there is none that has a field here. */
export function showErrors(form, error) {
  clearErrors(form);
  if (!(error instanceof Problem)) return false;
  const left = error.errors.filter((each) => !mark(form, each));
  const marked = form.querySelector("[aria-invalid=true]");
  if (!marked) return false;
  for (const fold of form.querySelectorAll("details")) if (fold.querySelector("[aria-invalid=true]")) fold.open = true;
  marked.focus();
  const summary = form.querySelector(".wrong");
  if (summary && left.length) {
    summary.replaceChildren(
      h("div", { class: "state problem", role: "alert" }, h("ul", null, left.map((each) => h("li", null, `${each.field}: ${each.message}`)))),
    );
  }
  return true;
}

export function clearErrors(form) {
  form.querySelector(".wrong")?.replaceChildren();
  for (const element of form.querySelectorAll(".field-error")) element.textContent = "";
  for (const element of form.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
}

function mark(form, { field: path, message }) {
  const fits = (own) => path === own || path.startsWith(`${own}.`) || path.startsWith(`${own}[`);
  const candidates = [...form.querySelectorAll(".field")]
    .map((element) => [element, Math.max(-1, ...JSON.parse(element.dataset.paths).filter(fits).map((own) => own.length))])
    .filter(([, length]) => length >= 0)
    .sort((one, other) => other[1] - one[1]);
  if (!candidates.length) return false;
  const [element] = candidates[0];
  element.querySelector("input, textarea, select").setAttribute("aria-invalid", "true");
  const text = element.querySelector(".field-error");
  const own = JSON.parse(element.dataset.paths).includes(path) ? message : `${path}: ${message}`;
  text.textContent = text.textContent ? `${text.textContent}; ${own}` : own;
  return true;
}

/** Faults that are seen before anything is sent, in the form of the server's. */
export function invalid(...errors) {
  return new Problem({ status: 400, title: "Invalid input", detail: errors[0].message, errors });
}

// -- what people write ----------------------------------------------------------------------------------------------

export function text(form, name) {
  const value = form.elements[name].value.trim();
  return value === "" ? undefined : value;
}

/** A URL under its name in the API, or else the target whose ARN was written in its place. */
export function destination(form, name, { within = "" } = {}) {
  const written = text(form, within + name);
  return aimed(name, written);
}

function aimed(name, written, target = "target") {
  return written?.startsWith("arn:") ? { [target]: { arn: written } } : { [name]: written };
}

export function number(form, name) {
  const value = text(form, name);
  if (value === undefined) return undefined;
  if (!/^-?\d+(\.\d+)?$/.test(value)) throw invalid({ field: name, message: "must be a number" });
  return Number(value);
}

/** One to a line. */
export function lines(form, name) {
  const found = form.elements[name].value.split("\n").map((line) => line.trim()).filter(Boolean);
  return found.length ? found : undefined;
}

/** `Name: value`, one to a line, as an object. */
export function headers(form, name) {
  const found = lines(form, name);
  if (!found) return undefined;
  const pairs = found.map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw invalid({ field: name, message: `"${line}" is not of the form "Name: value"` });
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  const names = pairs.map(([one]) => one.toLowerCase());
  const twice = names.find((one, index) => names.indexOf(one) !== index);
  if (twice) throw invalid({ field: name, message: `${twice} is given twice` });
  return Object.fromEntries(pairs);
}

/** JSON text as it was written; undefined when there is none. */
export function rawJson(form, name) {
  const value = text(form, name);
  if (value === undefined) return undefined;
  if (!isJson(value)) throw invalid({ field: name, message: "is not JSON" });
  return value;
}

/**
 * The fields of a due time: now, in a while, or at a time. `atName` is the API's name for the time. `local` are those of a
 * local time in a zone (`local-due.js`), where there is such a choice; `isLocal`: it is made.
 */
export function dueFields(atName, { now = true, value, local, isLocal = false } = {}) {
  const choices = [now && ["now", "Now"], ["in", "In"], ["at", "At"], local && ["local", "By the clocks of a zone"]].filter(Boolean);
  const first = isLocal ? "local" : value ? "at" : choices[0][0];
  const which = field("dueKind", "Due", { type: "select", options: choices, value: first });
  const delay = field("delay", "Delay", { hint: "30s, 5m, 1h30m, PT5M or seconds", placeholder: "5m" });
  const at = field(atName, "Time", { type: "datetime-local", value: toInput(value), hint: `local time (${zone()})` });
  const select = which.querySelector("select");
  const show = () => {
    delay.hidden = select.value !== "in";
    at.hidden = select.value !== "at";
    if (local) local.hidden = select.value !== "local";
  };
  select.addEventListener("change", show);
  show();
  return h("div", { class: "fields due" }, which, delay, at, local);
}

/** The names of time zones, for a field with the list `zones`. */
export function zones() {
  return h("datalist", { id: "zones" }, Intl.supportedValuesOf("timeZone").map((name) => h("option", { value: name })));
}

/** The members of a body that say when it is due; `nowIs` those for "now". */
export function due(form, atName, { nowIs = {} } = {}) {
  const kind = form.elements.dueKind.value;
  if (kind === "now") return nowIs;
  if (kind === "in") {
    const delay = text(form, "delay");
    if (!delay) throw invalid({ field: "delay", message: "is missing" });
    return { delay: /^\d+(\.\d+)?$/.test(delay) ? Number(delay) : delay };
  }
  if (kind === "local") {
    const given = { localTime: text(form, "localTime"), timeZone: text(form, "timeZone") };
    const missing = Object.keys(given).find((name) => !given[name]);
    if (missing) throw invalid({ field: missing, message: "is missing" });
    return given;
  }
  const at = fromInput(form.elements[atName].value);
  if (!at) throw invalid({ field: atName, message: "is missing" });
  return { [atName]: at };
}

const POLICY = [
  ["maxAttempts", "Attempts at most", number],
  ["initialInterval", "First interval", text],
  ["backoffMultiplier", "Multiplier", number],
  ["maxInterval", "Longest interval", text],
  ["maxAttemptsDuration", "For at most", text],
];

const ESCALATION = ["escalateUrl", "Escalate to", text];

/** `escalates`: of a timer or a schedule, whose failure may be told to another URL, or to a target whose ARN is written in its place. */
export function policyFields(hint, given, { within = "", escalates = false } = {}) {
  const values = { ...given, escalateUrl: escalatesTo(given) };
  return h(
    "details",
    { class: "fold" },
    h("summary", null, "Retries"),
    h("p", { class: "hint" }, hint),
    h("div", { class: "fields" }, [...POLICY, ...(escalates ? [ESCALATION] : [])].map(([name, label]) => field(`${within}retryPolicy.${name}`, label, { value: values[name], paths: name === "escalateUrl" ? [`${within}retryPolicy.escalateTarget`] : [] }))),
  );
}

/** Who is told of a failure: a URL, or the ARN of a target. */
export function escalatesTo(policy) {
  return policy?.escalateTarget?.arn ?? policy?.escalateUrl;
}

export function policy(form, { within = "" } = {}) {
  const present = [...POLICY, ESCALATION].filter(([name]) => form.elements[`${within}retryPolicy.${name}`]);
  const found = present.map(([name, , read]) => [name, read(form, `${within}retryPolicy.${name}`)]).filter(([, value]) => value !== undefined);
  if (!found.length) return undefined;
  const { escalateUrl, ...rest } = Object.fromEntries(found);
  return escalateUrl === undefined ? rest : { ...rest, ...aimed("escalateUrl", escalateUrl, "escalateTarget") };
}

/** A function that makes a key for a text: the same one for the same text, so that it can be sent again. */
export function keysFor() {
  let last = null;
  return (content) => {
    if (last?.content !== content) last = { content, key: newKey() };
    return last.key;
  };
}

/** 128 random bits; `crypto.randomUUID` is not there on pages that came over plain HTTP from another machine. */
function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
