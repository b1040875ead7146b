// Acting on many at once: counted first, then page by page, telling how far it is, until there are no more or it is stopped.

import { request } from "./api.js";
import { h } from "./dom.js";
import { showErrors } from "./forms.js";
import { dialog, toast } from "./ui.js";

/**
 * A dialog about all that `body(form)` names. `words(sums)` say what was done, by the sums of the numbers that the pages
 * of `path` tell; `counted(sums)` what would be. Closing it stops.
 */
export function many(page, { title, content, label, kind, path, body, counted, words, done }) {
  const progress = h("p", { class: "muted", role: "status" }, "Counting…");
  const closed = new AbortController();
  const counting = new AbortController();
  const element = dialog({
    title,
    content: [content, progress],
    label,
    kind,
    onProblem: showErrors,
    act: async (form) => {
      counting.abort();
      const { sums, isAll } = await pages(path, body(form), { signal: page.signal, stop: closed.signal, tell: (now) => (progress.textContent = `${words(now)}…`) });
      toast(`${words(sums)}${isAll ? "" : ", then stopped"}.`);
      await done();
    },
  });
  element.addEventListener("close", () => {
    closed.abort();
    counting.abort();
  });
  const count = async () => {
    const given = { ...body(element.querySelector("form")), dryRun: true };
    const { sums } = await pages(path, given, { signal: AbortSignal.any([page.signal, counting.signal]), stop: closed.signal, tell: (now) => (progress.textContent = `${counted(now)}…`) });
    progress.textContent = `${counted(sums)}.`;
  };
  count().catch((error) => counting.signal.aborted || page.signal.aborted || (progress.textContent = error.message));
}

async function pages(path, body, { signal, stop, tell }) {
  const sums = {};
  let cursor;
  do {
    const { data } = await request("POST", path, { body: { ...body, cursor }, signal });
    for (const [name, value] of Object.entries(data)) if (typeof value === "number") sums[name] = (sums[name] ?? 0) + value;
    sums.last = data;
    cursor = data.nextCursor;
    tell(sums);
  } while (cursor !== null && !stop.aborted);
  return { sums, isAll: cursor === null };
}

export function skippedWords({ skipped }) {
  return skipped ? `, ${skipped} skipped` : "";
}
