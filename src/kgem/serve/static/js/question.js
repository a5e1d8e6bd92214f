// A question: which part of a fact is asked, how that is written in an address and in words, and the form for it.

import { combobox } from "./combobox.js";
import { el, name } from "./dom.js";
import { said } from "./names.js";

export const SLOTS = ["head", "relation", "tail"];
export const FACT = "fact"; // is asked when all three are given: whether it is true
const TOPS = ["10", "25", "50", "100"];

/** What is asked: the one that is not given, or the fact; the address may say it while too few are given to tell. */
export function asked({ head, relation, tail, ask: wish }) {
  const given = { head, relation, tail };
  const open = SLOTS.filter((slot) => !given[slot]);
  if (!open.length || wish === FACT) return FACT;
  if (open.length === 1) return open[0];
  if (open.includes(wish)) return wish;
  return ["tail", "head", "relation"].find((slot) => open.includes(slot)) ?? "tail";
}

/** A question in words, with a question mark for what is asked. */
export function sentence({ head, relation, tail }, shown) {
  const part = (label, className) => (label ? name(label, className, shown) : el("b", { class: "unknown" }, "?"));
  return el("span", { class: "sentence" }, part(head, "who"), " ", part(relation, "how"), " ", part(tail, "who"));
}

/** The same as plain text. */
export function words({ head, relation, tail }) {
  return [head, relation, tail].map((label) => (label ? said(label) : "?")).join(" ");
}

/** What an address may say about a question. */
export function clean(params) {
  return Object.fromEntries(
    Object.entries(params).filter(([key, value]) => [...SLOTS, "ask", "new", "mode", "top"].includes(key) && value),
  );
}

/** The parameters of a question in one order, those that say nothing left out. */
export function ordered({ head, relation, tail, ask: wish, new: fresh, mode, top }) {
  const whole = [head, relation, tail].filter(Boolean).length >= (wish === FACT ? 3 : 2);
  return {
    head,
    relation,
    tail,
    ask: whole ? null : wish,
    new: fresh,
    mode: mode === "auto" ? null : mode,
    top: top === "10" ? null : top,
  };
}

/** The form: `params()` is what is asked now, `change(next)` goes on to another question; `set` shows one. */
export function questionForm(page, params, change) {
  const fields = {};
  const radios = {};
  const slots = SLOTS.map((slot) => {
    const field = combobox({
      id: `ask-${slot}`,
      label: slot[0].toUpperCase() + slot.slice(1),
      kind: slot === "relation" ? "relations" : "entities",
      placeholder: slot === "relation" ? "any relation" : "any entity",
      announce: page.announce,
      choose: (label, found) => chosen(slot, label, found),
    });
    fields[slot] = field;
    radios[slot] = el("input", { type: "radio", name: "asked", value: slot, onchange: () => turned(slot) });
    const pill = el(
      "label",
      { class: "pill", title: `Ask for the ${slot}` },
      radios[slot],
      el("span", { "aria-hidden": "true" }),
      el("span", { class: "sr" }, `Ask for the ${slot}`),
    );
    const unknown = el("div", { class: "asked", "aria-hidden": "true" }, "?");
    return el("div", { class: "slot", "data-slot": slot }, field.root, unknown, pill);
  });
  const fresh = el("input", {
    type: "checkbox",
    role: "switch",
    onchange: () => change({ new: fresh.checked ? "1" : null }),
  });
  const truth = el("input", {
    type: "checkbox",
    role: "switch",
    onchange: () => (truth.checked ? judged() : turned("tail")),
  });
  const mode = select("Mode", [], (value) => change({ mode: value }));
  const top = select(
    "Answers",
    TOPS.map((n) => [n, n]),
    (value) => change({ top: value }),
  );
  const known = ["auto", ...page.about.modes.filter((each) => each !== "auto")];
  mode.input.append(
    ...known.map((each) =>
      el("option", { value: each }, each === "auto" ? `auto (${page.about.mode})` : `${each}: ${page.about.mode_meanings[each]}`),
    ),
  );
  const root = el(
    "form",
    { class: "question card", role: "search", "aria-label": "Question", onsubmit: (event) => event.preventDefault() },
    el(
      "fieldset",
      {},
      el("legend", { class: "sr" }, "Two parts of a fact, and which part is asked; or all three, to have it judged"),
      el("div", { class: "slots" }, slots),
    ),
    el(
      "div",
      { class: "knobs" },
      el("label", { class: "switch" }, truth, el("span", {}, "Is it true?")),
      el("label", { class: "switch" }, fresh, el("span", {}, "New answers only")),
      mode.root,
      top.root,
    ),
  );

  /** To the field that is still to be filled in, with what could be in it. */
  function guide(slot) {
    fields[slot].input.focus();
    fields[slot].open();
  }

  function chosen(slot, label, found) {
    const next = { ...params(), [slot]: label };
    change({ [slot]: label, ask: asked(params()) });
    const target = asked(next);
    const missing = SLOTS.find((each) => each !== target && !next[each]);
    if (label && found && missing) guide(missing); // what the graph does not have is told first
  }

  /** Another part is asked: what it was given becomes what the other end is given, so that the question turns round. */
  function turned(slot) {
    const now = params();
    const before = asked(now);
    const ends = slot !== "relation" && before !== "relation" && before !== FACT;
    const moved = ends ? { [before]: now[slot] ?? null } : {};
    change({ ...moved, [slot]: null, ask: slot });
    const next = { ...now, ...moved, [slot]: null };
    const missing = SLOTS.find((each) => each !== slot && !next[each]);
    if (missing) setTimeout(() => guide(missing), 0);
  }

  /** All three are to be given. */
  function judged() {
    const now = params();
    change({ ask: FACT });
    const missing = SLOTS.find((each) => !now[each]);
    if (missing) setTimeout(() => guide(missing), 0);
  }

  function set(now, target) {
    for (const slot of SLOTS) {
      if (document.activeElement !== fields[slot].input || now[slot])
        fields[slot].set(slot === target ? "" : now[slot]);
      radios[slot].checked = slot === target;
      root.querySelector(`[data-slot=${slot}]`).classList.toggle("is-asked", slot === target);
      fields[slot].input.disabled = slot === target;
    }
    truth.checked = target === FACT;
    fresh.checked = now.new === "1";
    for (const knob of [fresh, top.input]) knob.disabled = target === FACT;
    mode.input.value = now.mode ?? "auto";
    if (now.top && ![...top.input.options].some((option) => option.value === now.top))
      top.input.append(el("option", { value: now.top }, now.top));
    top.input.value = now.top ?? "10";
  }

  return { root, set };
}

function select(text, pairs, choose) {
  const id = `ask-${text.toLowerCase()}`;
  const input = el(
    "select",
    { id, onchange: () => choose(input.value) },
    pairs.map(([value, label]) => el("option", { value }, label)),
  );
  return { input, root: el("div", { class: "select" }, el("label", { for: id }, text), input) };
}
