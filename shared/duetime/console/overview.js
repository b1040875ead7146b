// Is it well: the service, who polls which shards, namespaces, what comes next and what failed last.

import { paths, readAll, readPage, request } from "./api.js";
import { callTable } from "./call-list.js";
import { h } from "./dom.js";
import { region } from "./lists.js";
import { createNamespace, namespaceTable, readNamespaces } from "./namespaces.js";
import * as session from "./session.js";
import { nearly, when } from "./times.js";
import { badge, button, code, empty, link, muted, nothing, place, placeWith, section, table } from "./ui.js";

const FEW = 5;

export function overview(page) {
  page.title("Overview");
  const tenant = session.tenant();
  const base = place("calls", tenant);
  const next = region(page, {
    read: (signal) => readPage(paths.calls(tenant), { query: { status: "Scheduled", order: "dueAt" }, limit: FEW, signal }),
    draw: ({ items }) => (items.length ? callTable(items, { caption: "Next service calls", onChange: () => next.redraw() }) : empty("No service call is scheduled.")),
  });
  const failed = region(page, {
    read: (signal) => readPage(paths.calls(tenant), { query: { status: "Failed" }, limit: FEW, signal }),
    draw: ({ items }) => (items.length ? callTable(items, { caption: "Last failed service calls", onChange: () => failed.redraw() }) : empty("No service call has failed.")),
  });
  const namespaces = region(page, {
    read: readNamespaces,
    draw: ({ items }) => (items.length ? namespaceTable(page, items, () => namespaces.redraw()) : empty("No namespaces yet.")),
  });
  const create = session.may("admin") && button("Create", () => createNamespace(() => namespaces.redraw()), { glyph: "plus", key: "create-namespace" });
  return h(
    "div",
    null,
    h("div", { class: "head" }, h("h1", null, "Overview")),
    health(page),
    section("Shards", {}, shards(page)),
    section("Namespaces", { aside: create }, namespaces.element),
    section("Next service calls", { aside: link(placeWith(base, { status: "Scheduled", order: "dueAt" }), "All scheduled") }, next.element),
    section("Last failed service calls", { aside: link(placeWith(base, { status: "Failed" }), "All failed") }, failed.element),
  );
}

function health(page) {
  return region(page, {
    what: "Loading the health…",
    read: async (signal) => {
      try {
        return (await request("GET", paths.health, { signal })).data;
      } catch (error) {
        // A store that does not answer is what this is here to tell.
        if (error.status === 503) return { status: "unavailable", version: null, store: "unavailable" };
        throw error;
      }
    },
    draw: ({ status, version, store }) =>
      h(
        "div",
        { class: `health ${status === "ok" ? "good" : "bad"}`, role: "status" },
        badge(status === "ok" ? "Healthy" : "Unavailable", status === "ok" ? "good" : "bad"),
        h("span", null, "Store ", h("b", null, store)),
        version && h("span", null, "Version ", h("b", null, version)),
        session.isSignedIn() && h("span", null, "Tenant ", h("b", null, session.tenant())),
        h("a", { href: "docs" }, "API documentation"),
      ),
  }).element;
}

function shards(page) {
  if (!session.may("admin")) return empty("Shards are shown to admins.");
  return region(page, {
    read: (signal) => readAll(paths.shards, { most: 5000, signal }),
    draw: ({ items }) => (items.length ? [summary(items), each(items)] : empty("No shards: there is no namespace.")),
  }).element;
}

/** Owners with their shards, and shards that nobody polls, which is what should not be. */
function summary(items) {
  const owners = new Map();
  for (const shard of items) {
    const owner = shard.live ? shard.ownerId : "";
    owners.set(owner, [...(owners.get(owner) ?? []), shard]);
  }
  const rows = [...owners].sort(([one], [other]) => one.localeCompare(other)).map(([owner, own]) => ({ owner, own }));
  return table(
    "Owners of shards",
    [
      { label: "State", class: "fit", cell: ({ owner }) => (owner ? badge("Polled", "good") : badge("Not polled", "bad")) },
      { label: "Owner", class: "main-cell", cell: ({ owner }) => (owner ? code(owner) : muted("nobody: their timers wait")) },
      { label: "Shards", cell: ({ own }) => h("span", null, h("b", null, own.length), muted(` of ${items.length} · ${ranges(own)}`)) },
      { label: "Next lease ends", class: "fit time", cell: ({ owner, own }) => (owner ? nearly(own.map((one) => one.leaseExpiresAt).sort()[0]) : nothing()) },
    ],
    rows,
  );
}

function ranges(own) {
  const parts = [];
  for (const { shardId } of own) {
    const last = parts.at(-1);
    if (last && last[1] === shardId - 1) last[1] = shardId;
    else parts.push([shardId, shardId]);
  }
  const texts = parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return texts.length > 8 ? `${texts.slice(0, 8).join(", ")}…` : texts.join(", ");
}

function each(items) {
  return h(
    "details",
    { class: "fold", data: { key: "shards" } },
    h("summary", { data: { key: "shards summary" } }, "Each shard"),
    table(
      "Shards",
      [
        { label: "Shard", class: "fit", cell: (one) => one.shardId },
        { label: "State", class: "fit", cell: (one) => (one.live ? badge("Polled", "good") : badge("Not polled", "bad")) },
        { label: "Owner", class: "main-cell", cell: (one) => (one.ownerId ? code(one.ownerId) : nothing()) },
        { label: "Version", class: "fit", cell: (one) => one.version },
        { label: "Claimed", class: "fit time", cell: (one) => when(one.claimedAt) },
      ],
      items.slice(0, 512),
    ),
    items.length > 512 && muted(`The first 512 of ${items.length}.`),
  );
}
