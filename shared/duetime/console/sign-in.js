// Asking for an API key, and finding out for which tenant it acts and what it may.

import { paths, Problem, request } from "./api.js";
import { h } from "./dom.js";
import { field, invalid, showErrors, text } from "./forms.js";
import * as session from "./session.js";
import { problemView } from "./ui.js";

/** True when the API can be used: no key is asked for, or the one in this tab is still good. */
export async function findSession(signal) {
  try {
    await request("GET", paths.namespaces, { query: { limit: 1 }, key: session.key() ?? "", signal });
    return true;
  } catch (error) {
    if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
      session.signOut();
      return false;
    }
    throw error;
  }
}

export function signInView({ problem, signal, done }) {
  const wrong = h("div", { class: "wrong" }, problem && problemView(problem));
  const go = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h(
    "form",
    { class: "card narrow", novalidate: true },
    h("h1", null, "API key"),
    h("p", null, "This server asks for an API key. It is kept in this tab until you sign out or close it."),
    field("key", "API key", { type: "password", placeholder: "dtk_…", required: true }),
    field("tenant", "Tenant", { hint: "Only needed while the tenant has no namespace: otherwise it is found by the key." }),
    wrong,
    h("div", { class: "actions end" }, go),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    wrong.replaceChildren();
    try {
      session.signIn(await examine(form, signal));
      done();
    } catch (error) {
      go.disabled = false;
      if (!signal.aborted && !showErrors(form, error)) wrong.replaceChildren(problemView(error));
    }
  });
  queueMicrotask(() => form.elements.key.focus());
  return form;
}

/** Key, tenant and role; a Problem when the key is no good or is not for the tenant. */
async function examine(form, signal) {
  const key = text(form, "key");
  if (!key) throw invalid({ field: "key", message: "is missing" });
  // Header values have no characters but these.
  if (!/^[\x21-\x7e]+$/.test(key)) throw invalid({ field: "key", message: "is not an API key" });
  const { data } = await asked(request("GET", paths.namespaces, { query: { limit: 1 }, key, signal }), "key");
  const tenant = data.items[0]?.tenantId ?? text(form, "tenant");
  if (!tenant) throw invalid({ field: "tenant", message: "cannot be found by the key: say it here" });
  await asked(request("GET", paths.calls(tenant), { query: { limit: 1 }, key, signal }), "tenant");
  return { key, tenant, role: await roleOf(key, signal) };
}

async function asked(answer, name) {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof Problem) || ![400, 401, 403, 404].includes(error.status)) throw error;
    const message = error.status === 404 ? "the key does not act for this tenant" : error.message || "is not valid";
    throw invalid({ field: name, message });
  }
}

/**
 * The API does not tell a key's role, but what it refuses does. Roles are looked at before anything else, and "-" can be
 * no namespace: a writer is told that it does not exist, a reader that a reader may not.
 */
async function roleOf(key, signal) {
  if (await isAllowed(request("GET", paths.shards, { query: { limit: 1 }, key, signal }))) return "admin";
  return (await isAllowed(request("POST", paths.redrive("-"), { key, signal }))) ? "writer" : "reader";
}

async function isAllowed(answer) {
  try {
    await answer;
    return true;
  } catch (error) {
    if (!(error instanceof Problem) || error.status === 0 || error.status >= 500) throw error;
    return error.status !== 403;
  }
}
