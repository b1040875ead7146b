// The events of a service call as they happen: as server-sent events where the server streams them, else asked for.

import { Problem, request, send, toProblem } from "./api.js";
import { liveSignal, sleep, whenLive } from "./live.js";

const POLL_MS = 2000;
const AGAIN_MS = 5000;
const RECONNECT_MS = 500;

/**
 * Tells `onEvents` of all events behind the sequence number `after`, the stored ones first, until the call has ended or
 * `signal` does. `onState` is told `streaming`, `polling`, `complete`, or a Problem. A stream that breaks off is taken up
 * where it was.
 */
export async function follow(path, { after, onEvents, onState, signal }) {
  const place = { after };
  let mayStream = true;
  while (!signal.aborted) {
    await whenLive(signal);
    const live = liveSignal(signal);
    try {
      const how = mayStream ? await stream(path, place, onEvents, onState, live) : "poll";
      const isComplete = how === "poll" ? await poll(path, place, onEvents, onState, live) : how === "complete";
      if (isComplete) {
        onState("complete");
        return;
      }
      await sleep(how === "poll" ? POLL_MS : RECONNECT_MS, live);
    } catch (error) {
      if (signal.aborted) return;
      if (live.aborted) continue;
      if (error instanceof Problem && error.code === "too_many_streams") {
        mayStream = false;
        continue;
      }
      onState(error);
      if (error instanceof Problem && [401, 403, 404].includes(error.status)) return;
      await sleep(AGAIN_MS, live);
    }
  }
}

async function poll(path, place, onEvents, onState, signal) {
  onState("polling");
  let page;
  do {
    ({ data: page } = await request("GET", path, { query: { after: place.after, limit: 100 }, signal }));
    if (page.items.length) onEvents(page.items);
    place.after = page.nextAfter;
  } while (page.items.length === 100);
  return page.complete;
}

/** `complete`, `again` when the stream ended before the call did, `poll` when the server does not stream. */
async function stream(path, place, onEvents, onState, signal) {
  const headers = { accept: "text/event-stream, application/json;q=0.5" };
  const response = await send("GET", path, { query: { after: place.after }, headers, signal, timeout: 0 });
  if (response.status === 204) return "complete";
  if (!response.ok) throw await toProblem(response, await response.text());
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    await response.body?.cancel();
    return "poll";
  }
  onState("streaming");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return "again";
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    const messages = blocks.map(readMessage).filter((message) => message.data);
    const events = messages.filter((message) => message.event !== "end").map((message) => JSON.parse(message.data));
    if (events.length) {
      place.after = events.at(-1).sequence;
      onEvents(events);
    }
    if (messages.some((message) => message.event === "end")) {
      reader.cancel().catch(() => {});
      return "complete";
    }
  }
}

function readMessage(block) {
  const message = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
    if (name === "event") message.event = value;
    else if (name === "data") message.data += value;
  }
  return message;
}
