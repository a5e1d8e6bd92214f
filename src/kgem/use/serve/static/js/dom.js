// Elements without HTML strings: what the graph's authors wrote is text, whatever it looks like.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, number] of Object.entries(value)) node.style.setProperty(`--${key}`, number);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element; `onclick: f` listens, `vars: {share: 0.5}` sets CSS custom properties, children are text or nodes. */
export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** A label of the graph: isolated from the direction of the text around it, never empty to the eye. */
export function name(label, className = "label") {
  const blank = !label.trim();
  return el("bdi", { class: blank ? `${className} blank` : className }, blank ? "(blank)" : breakable(label));
}

/** A long label may be broken after /, _, . and -, rather than anywhere. */
function breakable(label) {
  if (label.length < 24) return label;
  return label.split(/(?<=[/_.-])(?![/_.-])/).flatMap((piece, place) => (place ? [el("wbr"), piece] : [piece]));
}

/** Text for screen readers only. */
export function spoken(text) {
  return el("span", { class: "sr" }, text);
}

const PATHS = {
  ask: "M8.2 8.4a3.8 3.8 0 1 1 5.6 3.3c-1.1.6-1.8 1.4-1.8 2.6M12 17.6v.1M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0Z",
  entity: "M12 12.2a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4.5 20.5c.9-3.6 3.8-5.5 7.5-5.5s6.600 1.900 7.500 5.500",
  graph: "M4 4v16h16M8 15.500v.1M11.500 11v.1M15 12.500v.1M18.500 7v.1",
  review: "M4 6.500h10M4 12h6M4 17.500h6M14 15.500l2.700 2.700L21.500 12.500",
  sun: "M12 16.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9ZM12 2v2M12 20v2M2 12h2M20 12h2M4.900 4.900l1.400 1.400M17.700 17.700l1.400 1.400M4.900 19.100l1.400-1.400M17.700 6.300l1.400-1.400",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500Z",
  auto: "M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0ZM12 3v18M15 3.600v16.800M18 5.300v13.400",
  further: "M5 12h14M13 6l6 6-6 6",
  swap: "M7 4 3.500 7.500 7 11M3.500 7.500h13M17 13l3.500 3.500L17 20M20.500 16.500h-13",
  link: "M10 14a4 4 0 0 0 5.700 0l3.600-3.600a4 4 0 0 0-5.700-5.700L12.500 5.800M14 10a4 4 0 0 0-5.700 0l-3.600 3.600a4 4 0 0 0 5.700 5.700l1.100-1.100",
  close: "M6 6l12 12M18 6 6 18",
  tick: "M5 12.500l4.500 4.500L19 7.500",
  undo: "M8 5 4 9l4 4M4 9h10a5.500 5.500 0 0 1 0 11h-4",
  skip: "M6 5l8 7-8 7ZM18 5v14",
  save: "M12 4v11M7.500 11 12 15.500 16.500 11M4.500 19.500h15",
  search: "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13ZM20 20l-4.800-4.800",
  warn: "M12 4 2.800 19.500h18.400ZM12 10v4.500M12 17v.1",
};

/** A small line drawing beside words; it has no meaning of its own. */
export function icon(what) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[what] }));
}
