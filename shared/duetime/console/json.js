// JSON as the text that it is: a payload is shown as it was sent, and numbers of any length stay what they are.

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+)/gy;

/** The tokens of a JSON text with their places; null when it is none. */
function tokens(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const found = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    found.push({ text: match[1], start: TOKEN.lastIndex - match[1].length, end: TOKEN.lastIndex });
  }
  return found;
}

export function isJson(text) {
  return tokens(text) !== null;
}

/** The text laid out in lines, without a value being read or changed; null when it is no JSON. */
export function pretty(text) {
  const all = tokens(text);
  if (all === null) return null;
  const lines = [];
  let line = "";
  let depth = 0;
  const flush = () => {
    lines.push(line);
    line = "  ".repeat(depth);
  };
  all.forEach(({ text: token }, index) => {
    const following = all[index + 1]?.text;
    if (token === "{" || token === "[") {
      line += token;
      depth += 1;
      if (following !== "}" && following !== "]") flush();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = all[index - 1]?.text;
      if (before !== "{" && before !== "[") flush();
      line += token;
    } else if (token === ",") {
      line += token;
      flush();
    } else {
      line += token === ":" ? ": " : token;
    }
  });
  lines.push(line);
  return lines.join("\n");
}

/** The text of the value at `path` (names of members) within the JSON text of an object; undefined if there is none. */
export function rawMember(text, ...path) {
  const all = tokens(text);
  if (all === null) return undefined;
  let at = 0;
  for (const name of path) {
    at = memberAt(all, at, name);
    if (at === undefined) return undefined;
  }
  const end = valueEnd(all, at);
  return text.slice(all[at].start, all[end].end);
}

/** Where the value of the last member of this name begins: of two, JSON.parse takes the last one too. */
function memberAt(all, start, name) {
  if (all[start].text !== "{") return undefined;
  let found;
  let at = start + 1;
  while (all[at].text !== "}") {
    const value = at + 2;
    if (JSON.parse(all[at].text) === name) found = value;
    at = valueEnd(all, value) + 1;
    if (all[at].text === ",") at += 1;
  }
  return found;
}

function valueEnd(all, start) {
  let depth = 0;
  for (let at = start; ; at += 1) {
    if (all[at].text === "{" || all[at].text === "[") depth += 1;
    else if (all[at].text === "}" || all[at].text === "]") depth -= 1;
    if (depth === 0) return at;
  }
}

/** An object as JSON text; members of `raw` are texts that are JSON already. */
export function withRaw(members, raw) {
  const parts = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  const spliced = Object.entries(raw)
    .filter(([, text]) => text !== undefined)
    .map(([name, text]) => `${JSON.stringify(name)}:${text}`);
  return `{${[...parts, ...spliced].join(",")}}`;
}
