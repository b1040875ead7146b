// What happens by itself: refreshing, and following. It rests while it is paused and while nobody looks.

const PAUSED = "duetime.paused";
const listeners = new Set();

let paused = sessionStorage.getItem(PAUSED) === "yes";

export const isPaused = () => paused;
export const isLive = () => !paused && !document.hidden;

export function setPaused(value) {
  paused = value;
  sessionStorage.setItem(PAUSED, value ? "yes" : "no");
  tell();
}

function tell() {
  for (const listener of [...listeners]) listener();
}

document.addEventListener("visibilitychange", tell);

function onChange(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
}

/** Resolves as soon as the page is live; never when `signal` ends before. */
export function whenLive(signal) {
  return new Promise((resolve) => {
    if (isLive()) {
      resolve();
      return;
    }
    const stop = new AbortController();
    onChange(() => {
      if (isLive()) {
        stop.abort();
        resolve();
      }
    }, AbortSignal.any([signal, stop.signal]));
  });
}

/** A signal that ends with `signal`, and when the page is live no more. */
export function liveSignal(signal) {
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  onChange(() => {
    if (!isLive()) stop.abort();
  }, both);
  return both;
}

export function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** Calls `work` again and again, `ms` after it ended, while the page is live and until `signal` ends. */
export async function every(ms, work, signal) {
  while (!signal.aborted) {
    await sleep(ms, signal);
    if (signal.aborted) return;
    await whenLive(signal);
    await work();
  }
}
