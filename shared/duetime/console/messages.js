// Requests and responses as they were on the wire. What is in them was written by strangers: it is shown as text.

import { h } from "./dom.js";
import { pretty } from "./json.js";
import { button, copier, muted } from "./ui.js";

const MAX_SHOWN = 200_000;

export function headerTable(pairs) {
  if (!pairs.length) return h("p", { class: "muted" }, "No headers.");
  return h(
    "dl",
    { class: "headers" },
    pairs.map(([name, value]) =>
      h("div", null, h("dt", null, name), h("dd", { class: value === "[redacted]" ? "muted" : null }, value)),
    ),
  );
}

/** A text in a box of its own, JSON laid out in lines, with a switch to what it is byte for byte. */
export function textBox(text, { key, what = "body", note } = {}) {
  if (text == null || text === "") return h("p", { class: "muted" }, note ?? `No ${what}.`);
  const cut = text.length > MAX_SHOWN ? text.slice(0, MAX_SHOWN) : text;
  const laidOut = cut === text ? pretty(text) : null;
  const box = h("pre", { class: "box", tabindex: "0", "aria-label": what, data: { key: key && `${key} box` } }, laidOut ?? cut);
  let isRaw = laidOut === null;
  const swap = button("Raw", () => {
    isRaw = !isRaw;
    box.textContent = isRaw ? cut : laidOut;
    swap.setAttribute("aria-pressed", String(isRaw));
  });
  swap.className = "quiet";
  swap.setAttribute("aria-pressed", "false");
  const tools = h("div", { class: "tools" }, laidOut !== null && laidOut !== cut && swap, copier(text, what));
  const more = cut === text ? note : `The first ${MAX_SHOWN} characters of ${text.length}.`;
  return h("div", { class: "text-box" }, tools, box, more && h("p", { class: "muted note" }, more));
}

/** One side of an exchange. `head` is its first line; `body` `{text, bytes, isTruncated, isBase64}`. */
export function message(title, head, headers, body, key) {
  return h(
    "div",
    { class: "message" },
    h("h3", null, title),
    h("p", { class: "first-line" }, head),
    headerTable(headers),
    body && textBox(body.text, { key: `${key} ${title}`, what: `${title.toLowerCase()} body`, note: bodyNote(body) }),
  );
}

function bodyNote({ text, bytes, isTruncated, isBase64 }) {
  const notes = [];
  if (isBase64) notes.push("not UTF-8, shown as base64");
  if (isTruncated) notes.push(`the beginning of ${bytes} bytes`);
  if (!notes.length && !text && bytes > 0) notes.push(`${bytes} bytes, not kept`);
  const all = notes.join("; ");
  return all ? `${all[0].toUpperCase()}${all.slice(1)}.` : undefined;
}

export function fromLogged(logged) {
  return {
    headers: logged.headers.map(({ name, value }) => [name, value]),
    body: { text: logged.body, bytes: logged.bodyBytes, isTruncated: logged.bodyTruncated, isBase64: logged.bodyIsBase64 },
  };
}

export function noResponse(text) {
  return h("div", { class: "message" }, h("h3", null, "Response"), h("p", null, muted(text)));
}
