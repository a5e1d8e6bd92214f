// The view that asks: two of head, relation and tail are given, the answers to the third come as bars.

import { get, Refused } from "./api.js";
import { answerList } from "./answers.js";
import { combobox } from "./combobox.js";
import { el, icon, name } from "./dom.js";
import { go, href } from "./router.js";
import { awaited, empty } from "./states.js";
import { count, figure, percent, plausible, plural, score } from "./words.js";

const SLOTS = ["head", "relation", "tail"];
const TOPS = ["10", "25", "50", "100"];
const MODES = {
  point: "point: re-trained",
  mean: "mean: means of q",
  bayes: "bayes: averaged samples",
  blend: "blend: point and mean",
};
const MEANING = {
  tail: "The probability says which tail it is, given that there is one; not whether there is one.",
  head: "The probability says which head it is, given that there is one; not whether there is one.",
  relation: "The probability is that of the tail, given the head and this relation; over relations it need not sum to one.",
};

/** What is asked: the one that is not given; the address may say it while less than two are given. */
function asked({ head, relation, tail, ask: wish }) {
  const given = { head, relation, tail };
  const open = SLOTS.filter((slot) => !given[slot]);
  if (open.length === 1) return open[0];
  if (open.includes(wish)) return wish;
  return ["tail", "head", "relation"].find((slot) => open.includes(slot)) ?? "tail";
}

/** A question in words, with a question mark for what is asked. */
export function sentence({ head, relation, tail }) {
  const part = (label, className) => (label ? name(label, className) : el("b", { class: "unknown" }, "?"));
  return el("span", { class: "sentence" }, part(head, "who"), " ", part(relation, "how"), " ", part(tail, "who"));
}

function words({ head, relation, tail }) {
  return [head, relation, tail].map((label) => label || "?").join(" ");
}

export function ask(root, page) {
  const body = el("div", { class: "ask-body" });
  const intro = el("div", { class: "intro" });
  let params = {};
  const change = (next, options) => go(href("ask", ordered({ ...params, ...next })), options);
  const builder = questionForm(page, () => params, change);
  root.append(intro, builder.root, body);

  async function update(route, signal) {
    params = clean(route.params);
    const target = asked(params);
    const given = SLOTS.filter((slot) => slot !== target);
    const whole = given.every((slot) => params[slot]);
    page.titled(whole ? words({ ...params, [target]: "" }) : "Ask");
    builder.set(params, target);
    intro.replaceChildren(...introduction(page.about, whole));
    root.classList.toggle("asking", whole);
    if (whole) await answer({ ...params, [target]: "" }, target, signal);
    else if (given.some((slot) => params[slot])) await suggest(signal);
    else body.replaceChildren(...welcome(page.about));
  }

  async function answer(question, target, signal) {
    const { head, relation, tail, mode, top, new: fresh } = question;
    const query = { head, relation, tail, mode: mode ?? "auto", top: top ?? 10, new_only: fresh === "1" };
    const found = await awaited(body, get("predict", query, signal), "Asking the model");
    if (signal.aborted) return;
    body.replaceChildren(results(found, question, target, page, change));
    const [best] = found.answers;
    page.announce(best ? `${plural(found.answers.length, "answer")}, first ${best.label}, ${percent(best.probability)}` : "No answers");
  }

  async function suggest(signal) {
    const known = params.head || params.tail;
    if (!known) return body.replaceChildren(oneMore(params.relation));
    const found = await awaited(body, get("entity", { label: known }, signal));
    if (!signal.aborted) body.replaceChildren(questionsAbout(known, found.facts));
  }

  function correct(route, problem) {
    const wrong = problem instanceof Refused && SLOTS.filter((slot) => params[slot]);
    if (!wrong?.length) return null;
    // The message names the label that the graph does not have.
    const slot = wrong.find((each) => problem.message.includes(params[each])) ?? wrong[0];
    return (label) => href("ask", ordered({ ...params, [slot]: label }));
  }

  return { body, update, correct };
}

function clean(params) {
  const kept = Object.fromEntries(Object.entries(params).filter(([key, value]) => [...SLOTS, "ask", "new", "mode", "top"].includes(key) && value));
  if (SLOTS.every((slot) => kept[slot])) delete kept[asked({ ask: kept.ask })];
  return kept;
}

function ordered({ head, relation, tail, ask: wish, new: fresh, mode, top }) {
  const whole = [head, relation, tail].filter(Boolean).length === 2;
  return { head, relation, tail, ask: whole ? null : wish, new: fresh, mode: mode === "auto" ? null : mode, top: top === "10" ? null : top };
}

function introduction(about, whole) {
  if (whole) return [el("h1", { class: "sr" }, "Ask")];
  return [
    el("h1", {}, "Ask the graph"),
    el("p", { class: "lead" }, "Give two parts of a fact; the model says what the third may be, and how sure it is."),
  ];
}

function questionForm(page, params, change) {
  const fields = {};
  const radios = {};
  const slots = SLOTS.map((slot) => {
    const field = combobox({
      id: `ask-${slot}`, label: slot[0].toUpperCase() + slot.slice(1), kind: slot === "relation" ? "relations" : "entities",
      placeholder: slot === "relation" ? "any relation" : "any entity", announce: page.announce,
      choose: (label) => chosen(slot, label),
    });
    fields[slot] = field;
    radios[slot] = el("input", { type: "radio", name: "asked", value: slot, onchange: () => turned(slot) });
    const pill = el("label", { class: "pill", title: `Ask for the ${slot}` }, radios[slot], el("span", { "aria-hidden": "true" }), el("span", { class: "sr" }, `Ask for the ${slot}`));
    const unknown = el("div", { class: "asked", "aria-hidden": "true" }, "?");
    return el("div", { class: "slot", "data-slot": slot }, field.root, unknown, pill);
  });
  const fresh = el("input", { type: "checkbox", role: "switch", onchange: () => change({ new: fresh.checked ? "1" : null }) });
  const mode = select("Mode", [], (value) => change({ mode: value }));
  const top = select("Answers", TOPS.map((n) => [n, n]), (value) => change({ top: value }));
  const known = ["auto", ...page.about.modes.filter((each) => each !== "auto")];
  mode.input.append(...known.map((each) => el("option", { value: each }, each === "auto" ? `auto (${page.about.mode})` : MODES[each] ?? each)));
  const root = el(
    "form",
    { class: "question card", role: "search", "aria-label": "Question", onsubmit: (event) => event.preventDefault() },
    el("fieldset", {}, el("legend", { class: "sr" }, "Two parts of a fact, and which part is asked"), el("div", { class: "slots" }, slots)),
    el("div", { class: "knobs" }, el("label", { class: "switch" }, fresh, el("span", {}, "New answers only")), mode.root, top.root),
  );

  /** To the field that is still to be filled in, with what could be in it. */
  function guide(slot) {
    fields[slot].input.focus();
    fields[slot].open();
  }

  function chosen(slot, label) {
    const next = { ...params(), [slot]: label };
    change({ [slot]: label, ask: asked(params()) });
    const target = asked(next);
    const missing = SLOTS.find((each) => each !== target && !next[each]);
    if (label && missing) guide(missing);
  }

  /** Another part is asked: what it was given becomes what the other end is given, so that the question turns round. */
  function turned(slot) {
    const now = params();
    const before = asked(now);
    const moved = slot !== "relation" && before !== "relation" ? { [before]: now[slot] ?? null } : {};
    change({ ...moved, [slot]: null, ask: slot });
    const next = { ...now, ...moved, [slot]: null };
    const missing = SLOTS.find((each) => each !== slot && !next[each]);
    if (missing) setTimeout(() => guide(missing), 0);
  }

  function set(now, target) {
    for (const slot of SLOTS) {
      if (document.activeElement !== fields[slot].input || now[slot]) fields[slot].set(slot === target ? "" : now[slot]);
      radios[slot].checked = slot === target;
      root.querySelector(`[data-slot=${slot}]`).classList.toggle("is-asked", slot === target);
      fields[slot].input.disabled = slot === target;
    }
    fresh.checked = now.new === "1";
    mode.input.value = now.mode ?? "auto";
    if (now.top && ![...top.input.options].some((option) => option.value === now.top)) top.input.append(el("option", { value: now.top }, now.top));
    top.input.value = now.top ?? "10";
  }

  return { root, set };
}

function select(text, pairs, choose) {
  const id = `ask-${text.toLowerCase()}`;
  const input = el("select", { id, onchange: () => choose(input.value) }, pairs.map(([value, label]) => el("option", { value }, label)));
  return { input, root: el("div", { class: "select" }, el("label", { for: id }, text), input) };
}

function results(found, question, target, page, change) {
  const { answers, entropy, temperature, mode } = found;
  const follow = target === "relation" ? null : (answer) => href("ask", { head: answer.label });
  const list = answers.length
    ? answerList(answers, target, { follow })
    : empty("No answers are left", el("p", {}, "The graph has all of them already."), question.new === "1" && el("button", { class: "button", type: "button", onclick: () => change({ new: null }) }, "Show the known ones"));
  const held = answers.filter((answer) => answer.known && answer.known !== "train").length;
  return el(
    "div",
    { class: "columns" },
    el(
      "section",
      { class: "card wide", "aria-labelledby": "asked-title" },
      el("div", { class: "card-head" }, el("h2", { id: "asked-title" }, sentence(question)), copyLink(page)),
      el("p", { class: "meaning" }, MEANING[target] ?? found.meaning),
      list,
    ),
    el(
      "aside",
      { class: "aside", "aria-label": "About these answers" },
      entropy !== null && certainty(entropy, page.about.graph.entities),
      held > 0 && el("p", { class: "card note-card" }, el("span", { class: "badge held" }, "held out"), ` ${held === 1 ? "One answer is a fact" : `${count(held)} answers are facts`} that training did not show: the model found ${held === 1 ? "it" : "them"} by itself.`),
      goOn(question, target),
      el("p", { class: "faint small" }, `Mode ${mode}, temperature ${figure(temperature)}. Whisker, range and rank: where nine of ten samples of the model have the answer.`),
    ),
  );
}

function certainty(entropy, entities) {
  const { number, text } = plausible(entropy);
  const doubt = Math.min(1, entropy / Math.log(Math.max(2, entities)));
  return el(
    "section",
    { class: "card certainty", "aria-label": "How sure the model is" },
    el("p", { class: "big" }, number),
    el("p", {}, `${text}, of ${plural(entities, "entity", "entities")}.`),
    el("div", { class: "meter", "aria-hidden": "true", vars: { share: `${(100 * doubt).toFixed(1)}%` } }, el("i", {})),
    el("div", { class: "ends", "aria-hidden": "true" }, el("span", {}, "sure"), el("span", {}, "a guess")),
  );
}

function goOn(question, target) {
  const { head, relation, tail } = question;
  const entity = head || tail;
  const links = [];
  if (target !== "relation") {
    const turned = target === "tail" ? { relation, tail: entity } : { head: entity, relation };
    links.push(el("a", { class: "chip", href: href("ask", turned) }, icon("swap"), sentence(turned)));
  }
  for (const label of [head, tail].filter(Boolean)) links.push(el("a", { class: "chip", href: href("entity", { label }) }, icon("entity"), name(label)));
  if (relation) links.push(el("a", { class: "chip", href: href("review", { relation }) }, icon("review"), "Missing facts: ", name(relation)));
  return el("section", { class: "card", "aria-labelledby": "go-on" }, el("h2", { id: "go-on", class: "small-head" }, "Go on"), el("ul", { class: "chips stacked" }, links.map((link) => el("li", {}, link))));
}

function copyLink(page) {
  const text = el("span", {}, "Copy link");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      text.textContent = "Copied";
      page.announce("The address is on the clipboard");
    } catch {
      text.textContent = "Copy it from the address bar";
    }
    setTimeout(() => (text.textContent = "Copy link"), 2500);
  };
  return el("button", { class: "button quiet", type: "button", onclick: copy }, icon("link"), text);
}

function oneMore(relation) {
  return empty(
    "Choose one more part",
    el("p", {}, "Who or what ", name(relation, "how"), "? Choose a head or a tail above."),
    el("a", { class: "button", href: href("review", { relation }) }, icon("review"), "Facts of this relation that are missing"),
  );
}

/** The questions that the facts of an entity suggest, each once. */
export function questionsAbout(label, facts) {
  const found = new Map();
  for (const fact of facts) {
    const question = fact.head === label ? { head: label, relation: fact.relation } : { relation: fact.relation, tail: label };
    found.set(words(question), question);
  }
  if (!found.size) return empty("Choose one more part", el("p", {}, "Training shows no fact of ", name(label), "; any question about it can still be asked."));
  return el(
    "section",
    { class: "card", "aria-labelledby": "questions" },
    el("h2", { id: "questions" }, "Questions about ", name(label)),
    el("p", { class: "faint" }, "Choose one more part above, or one of these."),
    el("ul", { class: "chips" }, [...found.values()].map((question) => el("li", {}, el("a", { class: "chip", href: href("ask", question) }, sentence(question))))),
  );
}

function welcome(about) {
  const { entities, relations, facts } = about.graph;
  const total = Object.values(facts).reduce((sum, n) => sum + n, 0);
  const measured = about.metrics?.test ?? about.metrics?.valid;
  const tiles = [
    [count(entities), "entities", href("entity")],
    [count(relations), "relations", href("graph/accuracy")],
    [count(total), "facts", href("review")],
    measured?.mrr !== undefined && [score(measured.mrr), `MRR on ${about.metrics.test ? "test" : "validation"}`, href("graph/accuracy")],
  ].filter(Boolean);
  return [
    about.examples.length > 0 &&
      el(
        "section",
        { "aria-labelledby": "examples" },
        el("h2", { id: "examples", class: "small-head" }, "Try one of these"),
        el("ul", { class: "examples" }, about.examples.map((question) => el("li", {}, el("a", { class: "card example", href: href("ask", question) }, sentence(question), icon("further"))))),
      ),
    el("section", { "aria-labelledby": "size" }, el("h2", { id: "size", class: "small-head" }, "This graph"), el("ul", { class: "tiles" }, tiles.map(([value, text, target]) => el("li", {}, el("a", { class: "tile card", href: target }, el("b", {}, value), el("span", {}, text)))))),
  ].filter(Boolean);
}
