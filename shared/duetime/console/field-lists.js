// Fields that stand in a form and in a detail, each said once: what it is called, how it is read, written and shown.

import { h } from "./dom.js";
import { escalatesTo, field, headers, lines, number, rawJson, text } from "./forms.js";
import { rawMember } from "./json.js";
import { headerTable, textBox } from "./messages.js";
import { when } from "./times.js";
import { code, copier, link, place, retryWords, section, tags } from "./ui.js";

/** What timers and schedules have, whatever they do. */
export const LABELS = [
  { name: "tags", label: "Tags", type: "textarea", rows: 2, hint: "one to a line", read: lines, write: writeLines, show: tags },
  { name: "expireAfter", label: "Expires after", hint: "how late it may fire, such as 10m; no limit when empty" },
];

/**
 * What timers and schedules send, and how. In any list: `name` is the API's; `read(form, name)` is what was written, as
 * the API wants it; `write(value, json)` puts a value into the field; `show(value)` is what a detail says, or null for
 * what has a place of its own there. The rest is for `field`.
 */
export const CALLBACK = [
  {
    name: "payload",
    label: "Payload",
    type: "textarea",
    rows: 6,
    wide: true,
    hint: "any JSON; it is delivered unchanged",
    read: rawJson,
    write: (_, json) => rawMember(json, "payload"),
    show: null,
  },
  {
    name: "headers",
    label: "Headers",
    type: "textarea",
    wide: true,
    hint: "Name: value, one to a line",
    read: headers,
    write: writeHeaders,
    show: null,
  },
  { name: "correlationId", label: "Correlation id", show: (id) => [code(id), copier(id, "correlation id")] },
  { name: "timeoutSeconds", label: "Timeout", inputmode: "numeric", hint: "in seconds, 1 to 900; 30 when empty", read: number, show: (seconds) => `${seconds} s` },
  ...LABELS,
];

export function writeHeaders(given) {
  return Object.entries(given).map(([name, value]) => `${name}: ${value}`).join("\n");
}

export function writeLines(list) {
  return list.join("\n");
}

/** The fields of a list; `given` is the answer of the API whose values they begin with. */
export function listedFields(list, given) {
  return list.map(({ name, label, read, write = String, show, ...options }) => {
    const value = given?.data[name];
    return field(name, label, value == null ? options : { ...options, value: write(value, given.text) });
  });
}

export function readListed(list, form) {
  return Object.fromEntries(list.map(({ name, read = text }) => [name, read(form, name)]));
}

/** Pairs for `facts`. */
export function listedFacts(list, data) {
  return list.filter(({ show }) => show !== null).map(({ name, label, options, show = shown(options) }) => [label, isGiven(data[name]) && show(data[name])]);
}

export function isGiven(value) {
  return value != null && !(Array.isArray(value) && value.length === 0);
}

/** In the words of the field. */
function shown(options) {
  return (value) => options?.find(([one]) => one === value)?.[1] ?? value;
}

export function callbackFacts(data) {
  return [...listedFacts(CALLBACK, data), ["Retries", data.retryPolicy && retryWords(data.retryPolicy)], ["Escalates to", escalatesTo(data.retryPolicy)]];
}

/** Of the service call that a schedule submits. */
export function callFacts({ name, tags: given, starred, timeoutSeconds, correlationId, retryPolicy }) {
  return [
    ["Call", name],
    ["Tags of calls", isGiven(given) && tags(given)],
    ["Star", starred && "kept for ever"],
    ["Timeout", `${timeoutSeconds} s`],
    ["Correlation id", correlationId && [code(correlationId), copier(correlationId, "correlation id")]],
    ["Retries", retryWords(retryPolicy)],
  ];
}

/** Where it is sent: a URL, or the ARN of a target. */
export function destination({ callbackUrl, url, target }) {
  return target?.arn ?? callbackUrl ?? url;
}

/** What a schedule submits, in a line. */
export function callWords({ name, request }) {
  return `submits "${name}": ${request.method} ${destination(request)}`;
}

export function failureFact(failure, namespace) {
  const escalation = failure?.escalationId && h("div", null, link(place("timers", namespace, "timer", failure.escalationId), "its escalation"));
  return failure && [`${failure.reason}: ${failure.message}`, h("div", null, when(failure.at)), escalation];
}

/** What is submitted. */
export function callSections({ request }, json) {
  const body = rawMember(json, "serviceCall", "request", "body");
  return [
    section("Service call", {}, h("p", { class: "first-line" }, h("b", null, request.method), " ", destination(request)), headerTable(Object.entries(request.headers ?? {}))),
    section("Body", {}, textBox(body === "null" ? "" : body, { key: "body", what: "body" })),
  ];
}

/** What is sent. */
export function callbackSections(data, json) {
  const payload = rawMember(json, "payload");
  return [
    section("Callback", {}, h("p", { class: "first-line" }, h("b", null, "POST"), " ", destination(data)), headerTable(Object.entries(data.headers ?? {}))),
    section("Payload", {}, textBox(payload === "null" ? "" : payload, { key: "payload", what: "payload" })),
  ];
}
