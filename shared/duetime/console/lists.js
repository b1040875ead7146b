// Lists that are filtered by the address, read by the page and refreshed.

import { readPage } from "./api.js";
import { h, replace } from "./dom.js";
import { fromInput, now, toInput } from "./times.js";
import { link, loading, muted, placeWith, problemView } from "./ui.js";

const REFRESH_MS = 5000;
const SOON_MS = 1500;
const NEAR_MS = 60000;
const LIMIT = 50;

/**
 * A region that shows what `read` finds, again and again. When a refresh fails, what was found before stays.
 * `draw(found)` is called only when something has changed. What is due near `dueAt()` is looked at more often.
 */
export function region(page, { read, draw, what, dueAt }) {
  const notice = h("div", { class: "notice-box" });
  const content = h("div", null, loading(what));
  const element = h("div", { class: "region", "aria-busy": "true" }, notice, content);
  let shown = null;
  const refresh = async () => {
    try {
      const found = await read(page.signal);
      notice.replaceChildren();
      const text = JSON.stringify(found);
      if (text !== shown) {
        replace(content, draw(found));
        shown = text;
      }
    } catch (error) {
      if (page.signal.aborted) return;
      if (shown === null || error.status === 404 || error.status === 400) {
        shown = null;
        replace(content, problemView(error, { again: refresh }));
      } else if (!notice.hasChildNodes()) {
        notice.replaceChildren(h("p", { class: "notice", role: "status" }, `Not refreshed: ${error.message}`));
      }
    } finally {
      element.setAttribute("aria-busy", "false");
    }
  };
  const redraw = () => {
    shown = null;
    return refresh();
  };
  refresh();
  let turn = 0;
  page.every(dueAt ? SOON_MS : REFRESH_MS, async () => {
    turn += 1;
    const isNear = dueAt?.() && Math.abs(Date.parse(dueAt()) - now()) < NEAR_MS;
    if (!dueAt || isNear || turn % Math.ceil(REFRESH_MS / SOON_MS) === 0) await refresh();
  });
  return { element, refresh, redraw };
}

/** A page of a list, with the way to the next one. */
export function pagedList(page, { path, query, base, draw, none, limit = LIMIT }) {
  const cursor = page.query.get("cursor");
  const shownQuery = Object.fromEntries([...new Set(page.query.keys())].map((name) => [name, page.query.getAll(name)]));
  return region(page, {
    read: (signal) => readPage(path, { query, limit, cursor, signal }),
    draw: ({ items, nextCursor }) => [
      items.length ? draw(items) : none({ isLater: Boolean(cursor), isFiltered: isFiltered(page.query), hasMore: nextCursor !== null }),
      pager({ base, shownQuery, cursor, nextCursor, count: items.length }),
    ],
  });
}

function isFiltered(query) {
  return [...query.keys()].some((name) => name !== "cursor");
}

function pager({ base, shownQuery, cursor, nextCursor, count }) {
  if (!cursor && nextCursor === null) return count ? h("p", { class: "pager" }, muted(`${count} shown, no more`)) : null;
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    cursor && link(placeWith(base, { ...shownQuery, cursor: null }), "First page"),
    muted(`${count} shown${nextCursor === null ? ", the last page" : ""}`),
    nextCursor !== null && link(placeWith(base, { ...shownQuery, cursor: nextCursor }), "Next page"),
  );
}

/**
 * The form of a list's filters. `fields`: `{name, label, type?, options?, placeholder?}`; times are `datetime-local` here
 * and UTC in the address. `kept` are names of the query that have no field.
 */
export function filters(page, base, fields, { kept = [] } = {}) {
  const controls = fields.map((one) => ({ ...one, control: control(page, one) }));
  const apply = () => {
    const given = Object.fromEntries(kept.map((name) => [name, page.query.getAll(name)]));
    for (const { name, type, control: input } of controls) {
      if (type === "datetime-local") given[name] = fromInput(input.value);
      else if (type === "words") given[name] = input.value.split(/[\s,]+/).filter(Boolean);
      else given[name] = input.value.trim();
    }
    page.go(placeWith(base, given));
  };
  const form = h(
    "form",
    { class: "filters", role: "search", "aria-label": "Filters" },
    controls.map(({ label, control: input }) => h("label", null, h("span", null, label), input)),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", data: { key: "apply" } }, "Apply"),
      isFiltered(page.query) && link(base, "Clear"),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  for (const { control: input } of controls) if (input.tagName === "SELECT") input.addEventListener("change", apply);
  return form;
}

function control(page, { name, label, type = "text", options, placeholder }) {
  const given = page.query.get(name) ?? "";
  const attributes = { name, data: { key: `filter ${name}` }, placeholder, autocomplete: "off", "aria-label": label };
  if (type === "select") {
    return h("select", attributes, options.map(([value, text]) => h("option", { value, selected: value === given }, text)));
  }
  const value = type === "datetime-local" ? toInput(given) : type === "words" ? page.query.getAll(name).join(" ") : given;
  const step = type === "datetime-local" ? { step: 1 } : {};
  return h("input", { ...attributes, ...step, type: type === "words" ? "text" : type, value });
}

/** Links that set one filter, for the choices that are made most. */
export function tabs(page, base, name, choices) {
  const given = page.query.get(name) ?? "";
  const others = Object.fromEntries(
    [...new Set(page.query.keys())].filter((one) => one !== name && one !== "cursor" && one !== "order").map((one) => [one, page.query.getAll(one)]),
  );
  return h(
    "nav",
    { class: "tabs", "aria-label": "States" },
    choices.map(([value, label]) =>
      h(
        "a",
        { href: placeWith(base, { ...others, [name]: value }), "aria-current": value === given ? "true" : null, data: { key: `tab ${value}` } },
        label,
      ),
    ),
  );
}
