// The view of the whole graph: one part at a time, each with its own address.

import { accuracy } from "./accuracy.js";
import { calibration } from "./calibration.js";
import { curves } from "./curves.js";
import { el } from "./dom.js";
import { href } from "./router.js";
import { strengths } from "./strengths.js";

const PARTS = {
  strengths: ["Strengths", strengths],
  learning: ["Learning", curves],
  accuracy: ["Accuracy", accuracy],
  calibration: ["Calibration", calibration],
};

export function graph(root, page) {
  const body = el("div", { class: "stack" });
  const links = Object.entries(PARTS).map(([part, [text]]) =>
    el("a", { href: href(`graph/${part}`), "data-part": part }, text),
  );
  const tabs = el("nav", { class: "tabs", "aria-label": "Parts of this view" }, links);
  root.append(el("h1", {}, "Graph and model"), tabs, body);
  let shown = null;

  async function update(route, signal) {
    const part = PARTS[route.part] ? route.part : "strengths";
    const [title, show] = PARTS[part];
    page.titled(title);
    for (const link of links) {
      if (link.dataset.part === part) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (shown !== part) body.replaceChildren();
    shown = part;
    await show(body, route, page, signal);
  }

  return { body, update };
}
