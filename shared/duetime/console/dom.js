// Elements, and regions of the page that are drawn anew. Text reaches the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `props`: `on` holds listeners, `data` what goes into the dataset, the rest are attributes;
 * null, undefined and false leave an attribute out. Children are nodes, texts, numbers, or lists of them.
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") {
      for (const [key, text] of Object.entries(value)) if (text != null) element.dataset[key] = text;
    } else if (name === "value") {
      element.value = value ?? "";
    } else if (value != null && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  append(element, children);
  return element;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child == null || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** A drawing of one path, for those who see; words stand beside it. */
export function svg(path, name) {
  const element = document.createElementNS(SVG, "svg");
  element.setAttribute("viewBox", "0 0 16 16");
  element.setAttribute("aria-hidden", "true");
  element.setAttribute("class", `icon icon-${name}`);
  const drawn = document.createElementNS(SVG, "path");
  drawn.setAttribute("d", path);
  element.append(drawn);
  return element;
}

/**
 * Puts `nodes` in the place of what `region` holds. What has the focus keeps it, and what is folded out stays so, where
 * elements of the old and of the new content have the same `data-key`.
 */
export function replace(region, ...nodes) {
  const focused = region.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const folds = new Map([...region.querySelectorAll("details[data-key]")].map((fold) => [fold.dataset.key, fold.open]));
  region.replaceChildren();
  append(region, nodes);
  for (const fold of region.querySelectorAll("details[data-key]")) {
    if (folds.has(fold.dataset.key)) fold.open = folds.get(fold.dataset.key);
  }
  if (focused !== undefined) byKey(region, focused)?.focus({ preventScroll: true });
}

export function byKey(region, key) {
  return [...region.querySelectorAll("[data-key]")].find((element) => element.dataset.key === key);
}
