// A due time by the clocks of a time zone, and what that means, asked while it is written.

import { paths, request } from "./api.js";
import { h, replace } from "./dom.js";
import { field, zones } from "./forms.js";
import { sleep } from "./live.js";
import { clockTime, nearly, zone } from "./times.js";

const REST_MS = 400;
const DAY_MS = 86400000;

/** `timer`: the one whose due time it is. */
export function localFields(page, timer) {
  const words = h("p", { class: "hint", role: "status" });
  const time = field("localTime", "Local time", { type: "datetime-local", value: timer?.localTime ?? "", hint: "it is kept when the rules of the zone change" });
  const place = field("timeZone", "Time zone", { list: "zones", value: timer?.timeZone ?? zone(), hint: "such as Europe/Berlin" });
  const box = h("div", { class: "local-due" }, time, place, zones(), words);
  let current = new AbortController();
  const show = async () => {
    current.abort();
    current = new AbortController();
    const signal = AbortSignal.any([page.signal, current.signal]);
    const [local, timeZone] = [time, place].map((each) => each.querySelector("input").value.trim());
    if (!local || !timeZone) return replace(words);
    await sleep(REST_MS, signal);
    if (signal.aborted) return null;
    try {
      const { data } = await request("POST", paths.preview, { body: question(local, timeZone), signal });
      return replace(words, answer(local, data.items));
    } catch (error) {
      return signal.aborted || replace(words, error.message);
    }
  };
  box.addEventListener("input", show);
  show();
  return box;
}

/** A schedule of that time of that day: it has the same rules where clocks are changed. */
function question(local, timeZone) {
  const [, month, day, hour, minute, second = "0"] = local.split(/[-T:]/).map((each) => String(Number(each)));
  const from = new Date(Date.parse(`${local}Z`) - 2 * DAY_MS).toISOString();
  return JSON.stringify({ cron: `${second} ${minute} ${hour} ${day} ${month} *`, timeZone, dst: "both", from, count: 2 });
}

function answer(local, [first, second]) {
  if (!first) return null;
  const { day, date, time, offset } = clockTime(first.localTime);
  const due = [`${day} ${date} ${time} ${offset}, `, nearly(first.scheduledAt), "."];
  if (!`${date}T${time}`.startsWith(local)) return ["This time does not exist: clocks are set forward. It fires right after the gap, ", due];
  const isTwice = second && Date.parse(second.scheduledAt) - Date.parse(first.scheduledAt) < DAY_MS;
  return isTwice ? ["This time happens twice: clocks are set back. It fires at the first, ", due] : due;
}
