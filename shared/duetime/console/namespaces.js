// Namespaces: their table, the choice of one, and making one.

import { paths, readAll, request } from "./api.js";
import { h } from "./dom.js";
import { field, number, showErrors, text } from "./forms.js";
import { namespaceButtons } from "./namespace-actions.js";
import * as session from "./session.js";
import { localTime, nearly, now, when } from "./times.js";
import { badge, code, dialog, link, muted, place, retryWords, table, toast } from "./ui.js";

export function readNamespaces(signal) {
  return readAll(paths.namespaces, { signal });
}

/** A select of all namespaces, which leads to the same list of another one. It fills when they are known. */
export function namespaceChoice(page, name) {
  const select = h("select", { data: { key: "namespace" } }, h("option", { value: name, selected: true }, name));
  select.addEventListener("change", () => page.go(place(page.area, select.value)));
  readNamespaces(page.signal).then(
    ({ items }) => {
      const names = items.map((one) => one.name);
      if (!names.includes(name)) names.unshift(name);
      select.replaceChildren(...names.map((one) => h("option", { value: one, selected: one === name }, one)));
    },
    () => {},
  );
  return h("label", { class: "inline" }, "Namespace ", select);
}

export function namespaceTable(page, items, changed) {
  const withTenants = !session.isSignedIn();
  return table(
    "Namespaces",
    [
      { label: "Namespace", class: "main-cell", cell: pages },
      withTenants && { label: "Tenant", cell: (one) => code(one.tenantId) },
      { label: "State", class: "fit", cell: state },
      { label: "Shards", class: "fit", cell: shards },
      { label: "Max in flight", class: "fit", cell: (one) => one.maxInFlight ?? muted("no limit") },
      { label: "Rate", class: "fit", cell: (one) => (one.rateLimit === null ? muted("no limit") : `${one.rateLimit}/s`) },
      { label: "Retries", cell: retries },
      { label: "Created", class: "fit time", cell: (one) => when(one.createdAt, { near: false }) },
      {
        label: "More",
        hidden: true,
        class: "fit end",
        cell: (one) => h("div", { class: "actions of-row" }, namespaceButtons(page, one, changed)),
      },
    ].filter(Boolean),
    items,
  );
}

function pages({ name }) {
  return [link(place("timers", name), name), h("div", { class: "sub" }, link(place("schedules", name), "Schedules"), " · ", link(place("dead-letters", name), "Dead letters"))];
}

function state(one) {
  const title = one.state === "Paused" ? `since ${one.pausedAt}${one.pauseReason ? `: ${one.pauseReason}` : ""}` : undefined;
  return h("span", { title }, badge(one.state));
}

/** Those that it has, and had: timers may be on these, too. Until the last switch new ones still go there. */
function shards(one) {
  const range = ({ firstShard, numShards }) => `${firstShard} to ${firstShard + numShards - 1}`;
  const earlier = one.earlierShards.map((each) => `${range(each)} until ${localTime(each.until)}`);
  const last = one.earlierShards.at(-1);
  const isSwitching = last && Date.parse(last.until) > now();
  return h(
    "span",
    { title: [`shards ${range(one)}`, ...earlier.reverse()].join("; ") },
    one.numShards,
    one.dedicated && muted(" dedicated"),
    last && h("div", { class: "sub" }, isSwitching ? [`${last.numShards}, switches `, nearly(last.until)] : `earlier ${one.earlierShards.map((each) => each.numShards).join(", ")}`),
  );
}

function retries(one) {
  return one.retryPolicy === null ? muted("default") : retryWords(one.retryPolicy);
}

export function createNamespace(changed) {
  dialog({
    title: "Create a namespace",
    content: h(
      "div",
      { class: "fields" },
      field("namespace", "Name", { wide: true, hint: "lower case letters, digits, . _ -", autofocus: true }),
      field("numShards", "Shards", { inputmode: "numeric", hint: "1 to 4096; empty for the default" }),
      field("dedicated", "Shards of its own", { type: "checkbox" }),
    ),
    label: "Create",
    onProblem: showErrors,
    act: async (form) => {
      const name = text(form, "namespace") ?? "-";
      const body = { numShards: number(form, "numShards"), dedicated: form.elements.dedicated.checked || undefined };
      const { status } = await request("PUT", paths.namespace(name), { body });
      toast(status === 201 ? `Namespace ${name} is created.` : `Namespace ${name} exists like this.`);
      changed();
    },
  });
}
