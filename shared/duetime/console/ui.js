// Parts that all pages are made of: states, tables, notices, dialogs.

import { Problem } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";

const KINDS = {
  Scheduled: "waiting",
  Retry: "waiting",
  Running: "running",
  Firing: "running",
  Waiting: "running",
  Succeeded: "good",
  Fired: "good",
  Rescheduled: "good",
  Failed: "bad",
  Cancelled: "unknown",
  Active: "good",
  Paused: "waiting",
  Deleting: "bad",
  Unreadable: "bad",
  Ongoing: "running",
  Missed: "bad",
};

export function badge(state, kind = KINDS[state] ?? "unknown") {
  return h("span", { class: `badge ${kind}` }, icon(kind), state);
}

/** The status of an HTTP answer, coloured by its class; the number says the same. */
export function httpStatus(status) {
  const kind = status >= 200 && status < 300 ? "good" : status >= 400 ? "bad" : "waiting";
  return h("span", { class: `http ${kind}` }, status);
}

/** Why an attempt failed, in one word or number; the tooltip says more. */
export function failureBadge(failure) {
  const known = failure.status === null ? h("span", { class: "http bad" }, failure.reason) : [httpStatus(failure.status), muted(` ${failure.reason}`)];
  return h("span", { class: "failure", title: failure.message }, known);
}

export function tags(list) {
  return list.length ? h("span", { class: "tags" }, list.map((tag) => h("span", { class: "tag" }, tag))) : null;
}

export function code(text) {
  return h("code", null, text);
}

export function retryWords({ maxAttempts, maxAttemptsDuration, initialInterval, backoffMultiplier, maxInterval }) {
  if (maxAttempts === 1) return "none";
  return `up to ${maxAttempts} attempts within ${maxAttemptsDuration}, ${initialInterval} apart, then ×${backoffMultiplier} up to ${maxInterval}`;
}

/** Where there is no value. Narrow screens leave it out. */
export function nothing() {
  return h("span", { class: "muted none" }, "–");
}

export function muted(...content) {
  return h("span", { class: "muted" }, ...content);
}

export function button(label, listener, { kind = "", key, name, disabled = false, glyph } = {}) {
  return h(
    "button",
    { type: "button", class: kind, data: { key }, "aria-label": name, title: name, disabled, on: { click: listener } },
    glyph && icon(glyph),
    label,
  );
}

export function link(href, ...content) {
  if (!href.startsWith("#")) throw new Error("only places of this page are linked");
  return h("a", { href, data: { key: href } }, ...content);
}

/** A place of this page; `query` goes behind it. */
export function place(...segments) {
  return `#/${segments.map(encodeURIComponent).join("/")}`;
}

export function placeWith(base, query) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((one) => one != null && one !== "").map((one) => [name, String(one)]),
  );
  const text = new URLSearchParams(pairs).toString();
  return text ? `${base}?${text}` : base;
}

/** A button that copies; nothing where the browser does not allow it. */
export function copier(text, what) {
  if (!navigator.clipboard) return null;
  const element = button(null, () => navigator.clipboard.writeText(text).then(() => toast(`${what} copied.`), () => {}), {
    kind: "quiet bare",
    key: `copy ${what}`,
    name: `Copy ${what}`,
    glyph: "copy",
  });
  return element;
}

// -- tables -------------------------------------------------------------------------------------------------------

/**
 * `columns`: `{label, cell(item), class?, hidden?}`; a cell is one node or text, but for that of `main-cell`. On narrow
 * screens each row is a card whose cells name themselves, so the roles are said too: the layout takes the meaning from a
 * table otherwise.
 */
export function table(caption, columns, items, { rowClass } = {}) {
  const heads = columns.map((column) =>
    h(
      "th",
      { scope: "col", role: "columnheader", class: column.class },
      column.head ?? (column.hidden ? h("span", { class: "unseen" }, column.label) : column.label),
    ),
  );
  const rows = items.map((item) =>
    h(
      "tr",
      { role: "row", class: rowClass?.(item) },
      columns.map((column) =>
        h("td", { role: "cell", class: column.class, data: { label: column.hidden ? "" : column.label } }, column.cell(item)),
      ),
    ),
  );
  return h(
    "div",
    { class: "table-box" },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
      h("tbody", { role: "rowgroup" }, rows),
    ),
  );
}

/** Names with values; a value of null, false or "" leaves the name out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value != null && value !== "" && value !== false);
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

export function section(title, { aside, level = "h2", id } = {}, ...content) {
  return h(
    "section",
    { class: "part", id, "aria-label": title },
    h("div", { class: "part-head" }, h(level, null, title), aside && h("div", { class: "aside" }, aside)),
    ...content,
  );
}

// -- states -------------------------------------------------------------------------------------------------------

export function loading(what = "Loading…") {
  return h("p", { class: "state loading", role: "status" }, what);
}

export function empty(title, ...more) {
  return h("div", { class: "state empty" }, h("p", { class: "state-title" }, title), more.length ? h("p", null, ...more) : null);
}

/** What is wrong, in the words of the server. */
export function problemView(error, { again } = {}) {
  if (!(error instanceof Problem)) console.error(error);
  const known = error instanceof Problem ? error : new Problem({ title: "The page failed", detail: String(error) });
  return h(
    "div",
    { class: "state problem", role: "alert" },
    h("p", { class: "state-title" }, icon("bad"), known.status ? `${known.status} ${known.title}` : known.title),
    known.detail !== known.title && h("p", null, known.detail),
    known.errors.length > 1 &&
      h("ul", null, known.errors.map((each) => h("li", null, each.field && code(each.field), each.field && " ", each.message))),
    known.requestId && h("p", { class: "muted" }, "Request ", code(known.requestId)),
    again && button("Try again", again),
  );
}

export function toast(text, kind = "good") {
  const element = h("div", { class: `toast ${kind}` }, icon(kind), h("span", null, text));
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), 6000);
}

// -- dialogs ------------------------------------------------------------------------------------------------------

/**
 * A dialog around `content` with a button that does `act`. It closes when that succeeded; a Problem is shown in it,
 * by `onProblem` if that says true. `content` may hold fields.
 */
export function dialog({ title, content, label, kind = "primary", act, onProblem }) {
  const wrong = h("div", { class: "wrong" });
  const go = h("button", { type: "submit", class: kind }, label);
  const close = () => element.close();
  const form = h(
    "form",
    { method: "dialog", novalidate: true },
    h("h2", { id: "dialog-title" }, title),
    content,
    wrong,
    h("div", { class: "actions end" }, h("button", { type: "button", on: { click: close } }, "Back"), go),
  );
  const element = h("dialog", { "aria-labelledby": "dialog-title", on: { close: () => element.remove() } }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    wrong.replaceChildren();
    try {
      await act(form);
      close();
    } catch (error) {
      go.disabled = false;
      if (!onProblem?.(form, error)) wrong.replaceChildren(problemView(error));
    }
  });
  document.body.append(element);
  element.showModal();
  return element;
}

export function confirm(title, text, label, act) {
  return dialog({ title, content: h("p", null, text), label, kind: "danger", act });
}
