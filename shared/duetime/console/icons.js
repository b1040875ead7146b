// Drawings, each one path on a grid of 16. Those of states differ in form, not only in colour.

import { svg } from "./dom.js";

const PATHS = {
  waiting: "M8 1.75a6.25 6.25 0 1 1 0 12.5a6.25 6.25 0 0 1 0-12.5M8 4.5V8l2.25 1.75",
  running: "M8 1.75A6.25 6.25 0 1 1 1.75 8M6.5 5.25L10.75 8L6.5 10.75z",
  good: "M3 8.5l3.25 3.25L13 4.75",
  bad: "M4 4l8 8M12 4l-8 8",
  unknown: "M3.5 8h9",
  star: "M8 1.9l1.85 3.9 4.25.55-3.1 2.95.8 4.2L8 11.45 4.2 13.5l.8-4.2L1.9 6.35l4.25-.55z",
  pause: "M5.25 3.5v9M10.75 3.5v9",
  play: "M5 3.25L12.5 8L5 12.75z",
  refresh: "M13.25 8a5.25 5.25 0 1 1-1.5-3.7M12.5 1.75v3h-3",
  plus: "M8 3v10M3 8h10",
  copy: "M5.75 5.75h7.5v7.5h-7.5zM10.25 5.75v-3h-7.5v7.5h3",
  next: "M6 3.5L10.5 8L6 12.5",
};

export function icon(name) {
  return svg(PATHS[name], name);
}
