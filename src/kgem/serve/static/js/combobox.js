// A text field that finds labels while one types: the combobox pattern with a list of options below it.

import { get, Offline } from "./api.js";
import { brief, cut, el } from "./dom.js";
import { icon } from "./icons.js";
import { beside, named, said } from "./names.js";
import { count, plural } from "./words.js";

const PAUSE = 90; // milliseconds after the last key before the server is asked
const SHOWN = 12;
const LONGEST = 256; // characters that the server looks for

/** How to look for labels: what the server is asked, and what is said beside a label. */
const KINDS = {
  entities: { hint: (item) => plural(item.frequency, "fact"), one: "entity", many: "entities" },
  relations: {
    hint: (item) => [plural(item.frequency, "fact"), item.category].filter(Boolean).join(" · "),
    one: "relation",
    many: "relations",
  },
};

/** A field for one entity or relation; `choose` hears the label, or "" when it is taken away, and whether it was found. */
export function combobox({ id, label, kind, placeholder, choose, announce, hideLabel = false }) {
  let value = ""; // what was chosen
  let options = [];
  let active = -1;
  let loaded = null; // the text that the options belong to
  let timer = 0;
  let asking = null;

  const list = el("ul", { role: "listbox", id: `${id}-list`, class: "options", "aria-label": label, hidden: true });
  const input = el("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    dir: "auto",
    maxlength: LONGEST,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    oninput: typed,
    onkeydown: pressed,
    onfocus: () => input.select(),
    onclick: open,
    onblur: () => setTimeout(left, 0),
  });
  const clear = el(
    "button",
    { class: "clear", type: "button", "aria-label": `Clear ${label.toLowerCase()}`, hidden: true, onclick: cleared },
    icon("close"),
  );
  const field = el("div", { class: "field" }, icon("search"), input, clear, list);
  const root = el("div", { class: "combobox" }, el("label", { for: id, class: hideLabel ? "sr" : "" }, label), field);

  named.addEventListener("more", () => {
    if (value && document.activeElement !== input) input.value = said(value);
  });

  function set(next) {
    value = next ?? "";
    input.value = said(value);
    input.title = value;
    clear.hidden = !value;
    loaded = null;
    close();
  }

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  async function load() {
    clearTimeout(timer);
    asking?.abort();
    const mine = (asking = new AbortController());
    const asked = input.value; // it may be another by the time the answer is here
    const text = asked === said(value) ? "" : asked.trim(); // what is chosen already need not be found again
    try {
      const found = await get(kind, { q: text, limit: SHOWN }, mine.signal);
      if (mine.signal.aborted) return false;
      loaded = asked;
      draw(found, text);
      return true;
    } catch (problem) {
      if (mine.signal.aborted || problem instanceof Offline) return false;
      options = [];
      list.replaceChildren(el("li", { class: "none", role: "presentation" }, problem.message));
      return true;
    }
  }

  function draw({ items, total }, text) {
    options = items;
    const { one, many, hint } = KINDS[kind];
    const rows = items.map((item, place) =>
      el(
        "li",
        {
          role: "option",
          id: `${id}-${place}`,
          "aria-selected": "false",
          onmousedown: (event) => event.preventDefault(),
          onclick: () => pick(item.label),
        },
        marked(item.label, text),
        el("small", {}, hint(item)),
      ),
    );
    const rest = total > items.length ? `${count(total - items.length)} more: type to narrow` : null;
    const none = items.length ? null : `No ${one} has “${text}” in its name`;
    list.replaceChildren(
      ...rows,
      ...[rest, none].filter(Boolean).map((note) => el("li", { class: "none", role: "presentation" }, note)),
    );
    list.scrollTop = 0;
    activate(text ? likeliest(items, text) : -1);
    announce(none ?? `${plural(total, one, many)}${text ? " found" : ""}`);
  }

  function activate(place) {
    active = place;
    for (const [i, row] of [...list.querySelectorAll("[role=option]")].entries()) {
      row.setAttribute("aria-selected", String(i === place));
      if (i === place) row.scrollIntoView({ block: "nearest" });
    }
    if (place < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", `${id}-${place}`);
  }

  async function open() {
    if (loaded !== input.value && !(await load())) return;
    if (document.activeElement !== input) return;
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  function typed() {
    clear.hidden = !input.value;
    clearTimeout(timer);
    timer = setTimeout(open, PAUSE);
  }

  async function pressed(event) {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) await open();
      else if (options.length)
        activate((active + (key === "ArrowDown" ? 1 : active < 0 ? 0 : -1) + options.length) % options.length);
      if (active < 0 && options.length) activate(key === "ArrowDown" ? 0 : options.length - 1);
    } else if (key === "Escape") {
      if (!list.hidden) event.preventDefault();
      else set(value);
      close();
    } else if (key === "Enter") {
      event.preventDefault();
      await entered();
    }
  }

  /** The option that is marked; without one what was typed, for the server to say what it makes of it. */
  async function entered() {
    const text = input.value.trim();
    if (text === said(value) && active < 0) return close();
    if (!text && active < 0) return cleared();
    if (loaded !== input.value) await load();
    const found = options[active] ?? options.find((item) => item.label === text);
    pick(found?.label ?? text, Boolean(found));
  }

  function pick(label, found = true) {
    set(label);
    choose(label, found);
  }

  function cleared() {
    set("");
    input.focus();
    choose("");
  }

  function left() {
    if (document.activeElement === input) return;
    clearTimeout(timer);
    asking?.abort();
    if (!input.value.trim() && value) {
      set("");
      choose("");
    } else set(value);
  }

  return { root, input, set, open };
}

/** The place of the label that was typed, or else of the most frequent one: what Enter takes; -1 if there is none. */
function likeliest(items, text) {
  const same = items.findIndex(({ label }) => label.toLowerCase() === text.toLowerCase());
  return same >= 0 ? same : items.findIndex(({ frequency }) => frequency === Math.max(...items.map((item) => item.frequency)));
}

/** A label with the part that was typed in bold, where that is plain to see. */
function marked(label, text) {
  const shown = said(label);
  const start = text ? shown.toLowerCase().indexOf(text.toLowerCase()) : -1;
  if (start < 0 || shown.toLowerCase().length !== shown.length) return brief(label);
  const end = start + text.length;
  const short = beside(label);
  return el(
    "bdi",
    { class: "label" },
    cut(shown.slice(0, start), 10, 14),
    el("mark", {}, shown.slice(start, end)),
    cut(shown.slice(end), 10, 40),
    short && el("small", { class: "iri" }, " ", cut(short)),
  );
}
