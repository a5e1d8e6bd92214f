// The view that reviews: missing or doubtful facts, of the whole graph or of one relation, by buttons and by keys.

import { get, ready } from "./api.js";
import { combobox } from "./combobox.js";
import { KINDS, reviewDesk, settled } from "./desk.js";
import { el } from "./dom.js";
import { go, href } from "./router.js";
import { awaited, working } from "./states.js";

const TOP = 200; // facts of a list
const KEPT = 500; // decisions that can be taken back
const KEYS = { a: "accept", r: "reject", s: "skip", u: "undo" };

export function review(root, page) {
  const body = el("div", { class: "columns" });
  const tabs = el(
    "nav",
    { class: "tabs", "aria-label": "What is reviewed" },
    Object.entries(KINDS).map(([kind, { title }]) => el("a", { "data-kind": kind, href: "#" }, title)),
  );
  const lead = el("p", { class: "lead" });
  const narrow = combobox({
    id: "review-relation",
    label: "Relation",
    kind: "relations",
    placeholder: "Whole graph: narrow to one relation",
    hideLabel: true,
    announce: page.announce,
    choose: (relation) => go(href("review", { kind: kind === "missing" ? null : kind, relation })),
  });
  root.append(el("h1", {}, "Review"), el("div", { class: "review-head" }, tabs, narrow.root), lead, body);
  const keys = el("input", { type: "checkbox", role: "switch", onchange: () => remember(keys.checked) });
  keys.checked = remembered();
  let kind = "missing";
  let desk = null;

  async function update({ params }, signal) {
    kind = KINDS[params.kind] ? params.kind : "missing";
    const { relation } = params;
    page.titled(KINDS[kind].title);
    lead.textContent = KINDS[kind].lead;
    narrow.set(relation ?? "");
    for (const link of tabs.children) {
      link.href = href("review", { kind: link.dataset.kind === "missing" ? null : link.dataset.kind, relation });
      if (link.dataset.kind === kind) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    desk = null;
    body.replaceChildren();
    const progress = working(
      body,
      kind === "missing" ? "Looking for missing facts" : "Looking for doubtful facts",
      "Every question of the graph is asked once; later visits are immediate.",
    );
    await settled();
    signal.throwIfAborted();
    const [found, log] = await awaited(
      body,
      Promise.all([
        ready(KINDS[kind].path, { relation, top: TOP }, signal, progress),
        get("review", { limit: KEPT }, signal),
      ]),
      "Loading the facts",
    );
    if (signal.aborted) return;
    page.reviewed(log.counts);
    desk = reviewDesk(body, found, log, kind, relation, page, keys);
  }

  function pressed(event) {
    const what = KEYS[event.key.toLowerCase()];
    if (!what || !desk || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!keys.checked || event.target.closest("input:not([type=checkbox]), select, textarea")) return;
    event.preventDefault();
    desk.act(what);
  }

  document.addEventListener("keydown", pressed);
  const correct = () => (relation) => href("review", { kind, relation });
  return { body, update, correct, leave: () => document.removeEventListener("keydown", pressed) };
}

/** Single keys can be in the way of those who speak to their computer: they can be turned off, for good. */
function remember(on) {
  try {
    localStorage.setItem("kgem-keys", on ? "on" : "off");
  } catch {
    // It holds until the page is closed.
  }
}

function remembered() {
  try {
    return localStorage.getItem("kgem-keys") !== "off";
  } catch {
    return true;
  }
}
