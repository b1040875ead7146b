// Timers that failed for good: why, and putting them back.

import { paths, request } from "./api.js";
import { h } from "./dom.js";
import { destination } from "./field-lists.js";
import { filters, pagedList } from "./lists.js";
import { many, skippedWords } from "./many.js";
import { namespaceChoice } from "./namespaces.js";
import * as session from "./session.js";
import { REASONS } from "./timer-list.js";
import { when } from "./times.js";
import { button, confirm, empty, httpStatus, link, muted, place, problemView, table, tags, toast } from "./ui.js";

const FILTERS = [
  { name: "reason", label: "Reason", type: "select", options: REASONS },
  { name: "tag", label: "Tag" },
  { name: "correlationId", label: "Correlation id" },
  { name: "dueFrom", label: "Due from", type: "datetime-local" },
  { name: "dueTo", label: "Due before", type: "datetime-local" },
];
const NAMES = FILTERS.map(({ name }) => name);

export function deadLetters(page, { namespace }) {
  page.title(`Dead letters of ${namespace}`);
  const base = place("dead-letters", namespace);
  const given = Object.fromEntries(NAMES.map((name) => [name, page.query.get(name)]).filter(([, value]) => value));
  const selection = new Selection();
  const list = pagedList(page, {
    path: paths.timers(namespace),
    query: { state: "Failed", ...given },
    base,
    draw: (items) => letterTable(items, selection),
    none: ({ isLater, isFiltered, hasMore }) => {
      selection.keep([]);
      if (hasMore) return empty("Nothing on this page.", "The next page may have some.");
      if (isLater) return empty("No more dead letters.");
      return isFiltered ? empty("No dead letter matches these filters.") : empty("No dead letters.", "Every timer that was tried has fired, or is still being tried.");
    },
  });
  const outcome = h("div", { role: "status" });
  const done = () => {
    selection.clear();
    return list.redraw();
  };
  return h(
    "div",
    null,
    h("div", { class: "head" }, h("div", null, h("h1", null, "Dead letters"), namespaceChoice(page, namespace))),
    filters(page, base, FILTERS),
    session.may("writer") && toolbar(page, namespace, given, selection, outcome, done),
    outcome,
    list.element,
  );
}

/** The ids that are chosen, whatever is drawn anew meanwhile. */
class Selection {
  constructor() {
    this.ids = new Set();
    this.shown = [];
    this.listeners = [];
  }

  toggle(id, isChosen) {
    if (isChosen) this.ids.add(id);
    else this.ids.delete(id);
    this.tell();
  }

  /** Of what is shown now: what is gone cannot be chosen any more. */
  keep(shown) {
    this.shown = shown;
    this.ids = new Set(shown.filter((id) => this.ids.has(id)));
    this.tell();
  }

  clear() {
    this.ids.clear();
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

function letterTable(items, selection) {
  selection.keep(items.map(({ id }) => id));
  const boxes = new Map();
  const all = h("input", { type: "checkbox", "aria-label": "Select all on this page", data: { key: "select all" } });
  const show = () => {
    for (const [id, box] of boxes) box.checked = selection.ids.has(id);
    all.checked = selection.ids.size === items.length;
    all.indeterminate = selection.ids.size > 0 && !all.checked;
  };
  all.addEventListener("change", () => {
    for (const { id } of items) selection.toggle(id, all.checked);
  });
  const choice = (timer) => {
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Select ${timer.id}`,
      data: { key: `select ${timer.id}` },
      on: { change: (event) => selection.toggle(timer.id, event.target.checked) },
    });
    boxes.set(timer.id, box);
    return box;
  };
  const drawn = table(
    "Dead letters",
    [
      session.may("writer") && { label: "Select", hidden: true, head: all, class: "fit check-cell", cell: choice },
      {
        label: "Timer",
        class: "main-cell",
        cell: (timer) => [
          link(place("timers", timer.namespace, "timer", timer.id), timer.id),
          h("div", { class: "sub" }, destination(timer)),
          tags(timer.tags),
        ],
      },
      { label: "Reason", class: "result wide", cell: reason },
      { label: "Failed", class: "fit time", cell: (timer) => when(timer.failure?.at ?? timer.updatedAt) },
      { label: "Due", class: "fit time", cell: (timer) => when(timer.executeAt) },
      { label: "Attempts", class: "fit number", cell: (timer) => timer.attempts },
    ].filter(Boolean),
    items,
  );
  selection.listeners = [...selection.listeners.filter((one) => one.isToolbar), show];
  show();
  return drawn;
}

function reason({ failure }) {
  if (!failure) return muted("not known");
  return h("div", null, h("b", null, failure.reason), failure.status !== null && [" ", httpStatus(failure.status)], h("div", { class: "sub" }, failure.message));
}

function toolbar(page, namespace, given, selection, outcome, done) {
  const chosen = button("Redrive selected", () => redriveChosen(namespace, selection, outcome, done), { kind: "primary", key: "redrive chosen", disabled: true });
  const remove = button("Remove selected", () => removeChosen(namespace, selection, outcome, done), { kind: "danger", key: "remove chosen", disabled: true });
  const matching = Object.keys(given).length ? "Redrive all that match" : "Redrive all";
  const all = button(matching, () =>
    redriveAll(page, namespace, given, async () => {
      outcome.replaceChildren();
      await done();
    }), { key: "redrive all" });
  const count = muted("");
  const show = () => {
    const { size } = selection.ids;
    chosen.disabled = remove.disabled = size === 0;
    count.textContent = size ? `${size} selected` : "";
    all.disabled = selection.shown.length === 0;
  };
  show.isToolbar = true;
  selection.listeners.push(show);
  return h("div", { class: "actions bar" }, chosen, remove, all, count);
}

async function redriveChosen(namespace, selection, outcome, done) {
  try {
    const { data } = await request("POST", paths.redrive(namespace), { body: { ids: [...selection.ids] } });
    tellItems(outcome, data.items, `${data.redriven} redriven.`);
  } catch (error) {
    outcome.replaceChildren(problemView(error));
  }
  await done();
}

function removeChosen(namespace, selection, outcome, done) {
  const ids = [...selection.ids];
  confirm("Remove the selected dead letters?", `${ids.length} dead letters are removed for good, with their attempts.`, "Remove", async () => {
    const { data } = await request("POST", `${paths.timers(namespace)}/batch-delete`, { body: { timers: ids.map((id) => ({ id })) } });
    const removed = data.items.filter(({ status }) => status < 300).length;
    tellItems(outcome, data.items, `${removed} removed.`);
    await done();
  });
}

function tellItems(outcome, items, words) {
  const refused = items.filter(({ problem }) => problem);
  toast(words, refused.length ? "bad" : "good");
  outcome.replaceChildren(
    ...(refused.length
      ? [h("div", { class: "state problem", role: "alert" }, h("p", { class: "state-title" }, `${refused.length} refused`), h("ul", null, refused.map((item) => h("li", null, h("code", null, item.id), " ", item.problem.detail))))]
      : []),
  );
}

function redriveAll(page, namespace, given, done) {
  const words = Object.entries(given).map(([name, value]) => `${name} ${value}`).join(", ");
  many(page, {
    title: "Redrive many",
    content: h("p", null, words ? `All dead letters with ${words} are scheduled again, due now.` : "All dead letters of this namespace are scheduled again, due now."),
    label: "Redrive",
    path: paths.redrive(namespace),
    body: () => given,
    counted: (sums) => `${sums.redriven} of them${skippedWords(sums)}`,
    words: (sums) => `${sums.redriven} redriven${skippedWords(sums)}`,
    done,
  });
}
