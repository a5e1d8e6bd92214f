// Elements without HTML strings: what the graph's authors wrote is text, whatever it looks like.

import { beside, said } from "./names.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "vars")
      for (const [key, number] of Object.entries(value)) node.style.setProperty(`--${key}`, number);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element: `onclick: f` listens, `vars: {share: 0.5}` sets custom properties; children are text or nodes. */
export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** A label of the graph: isolated from the direction of the text around it, never empty to the eye. */
export function name(label, className = "label", shown = (text) => text) {
  const blank = !label.trim();
  const short = beside(label);
  const text = shown(said(label));
  return el(
    "bdi",
    { class: blank ? `${className} blank` : className, title: text === label ? null : label },
    blank ? "(blank)" : breakable(text),
    short && el("small", { class: "iri" }, " ", breakable(shown(short))),
  );
}

/** A label in a list, where it has little room: a long one loses its middle, as addresses differ at their ends. */
export function brief(label) {
  return name(label, "label", cut);
}

/** A long text without its middle. */
export function cut(text, start = 24, end = 48) {
  const signs = [...text];
  return signs.length <= start + end + 8 ? text : `${signs.slice(0, start).join("")}…${signs.slice(-end).join("")}`;
}

/** A long label may be broken after the marks of an address or between its words, rather than anywhere. */
function breakable(label) {
  if (label.length < 24) return label;
  return label.split(/(?<=[/_.:#?=&-])(?![/_.:#?=&-])|(?<=[a-z])(?=[A-Z])/).flatMap((piece, place) => (place ? [el("wbr"), piece] : [piece]));
}

/** Text for screen readers only. */
export function spoken(text) {
  return el("span", { class: "sr" }, text);
}
