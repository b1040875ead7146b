// Asking for an API key, and for which tenant it acts and what it may.

import { paths, Problem, request } from "./api.js";
import { h } from "./dom.js";
import { field, invalid, showErrors, text } from "./forms.js";
import * as session from "./session.js";
import { problemView } from "./ui.js";

/** True when the API can be used: no key is asked for, or the one in this tab is still good. */
export async function findSession(signal) {
  try {
    await request("GET", paths.principal, { key: session.key() ?? "", signal });
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
    h("p", null, "This server requires an API key. It stays in this tab until you sign out or close the tab."),
    field("key", "API key", { type: "password", placeholder: "dtk_…", required: true }),
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

/** Key, tenant and role; a Problem when the key is no good. */
async function examine(form, signal) {
  const key = text(form, "key");
  if (!key) throw invalid({ field: "key", message: "is missing" });
  // Header values have no characters but these.
  if (!/^[\x21-\x7e]+$/.test(key)) throw invalid({ field: "key", message: "is not an API key" });
  try {
    const { data } = await request("GET", paths.principal, { key, signal });
    return { key, tenant: data.tenantId, role: data.role };
  } catch (error) {
    if (!(error instanceof Problem) || ![400, 401].includes(error.status)) throw error;
    throw invalid({ field: "key", message: error.message || "is not valid" });
  }
}
