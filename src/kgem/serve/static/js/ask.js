// The view that asks: two of head, relation and tail are given, the answers to the third come as bars; or all three are, and
// the fact is judged.

import { get, Refused } from "./api.js";
import { el, name } from "./dom.js";
import { said } from "./names.js";
import { icon } from "./icons.js";
import { judgement } from "./judgement.js";
import { asked, clean, FACT, ordered, questionForm, sentence, SLOTS, words } from "./question.js";
import { results } from "./results.js";
import { go, href } from "./router.js";
import { awaited, empty } from "./states.js";
import { count, percent, plural, score } from "./words.js";

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
    if (whole && target === FACT) await judge(signal);
    else if (whole) await answer({ ...params, [target]: "" }, target, signal);
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
    page.announce(
      best
        ? `${plural(found.answers.length, "answer")}, first ${said(best.label)}, ${percent(best.probability)}`
        : "No answers",
    );
  }

  async function judge(signal) {
    const { head, relation, tail, mode } = params;
    const found = await awaited(body, get("judge", { head, relation, tail, mode: mode ?? "auto" }, signal), "Judging");
    if (signal.aborted) return;
    body.replaceChildren(judgement(found));
    page.announce(`${percent(found.chance)} that it is true`);
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

function introduction(about, whole) {
  if (whole) return [el("h1", { class: "sr" }, "Ask")];
  return [
    el("h1", {}, "Ask the graph"),
    el("p", { class: "lead" }, "Give two parts of a fact; the model says what the third may be, and how sure it is. Or give all three."),
  ];
}

function oneMore(relation) {
  return empty(
    "Choose one more part",
    el("p", {}, "Who or what ", name(relation, "how"), "? Choose a head or a tail above."),
    el(
      "a",
      { class: "button", href: href("review", { relation }) },
      icon("review"),
      "Facts of this relation that are missing",
    ),
  );
}

/** The questions that the facts of an entity suggest, each once. */
function questionsAbout(label, facts) {
  const found = new Map();
  for (const fact of facts) {
    const question =
      fact.head === label ? { head: label, relation: fact.relation } : { relation: fact.relation, tail: label };
    found.set(words(question), question);
  }
  if (!found.size)
    return empty(
      "Choose one more part",
      el("p", {}, "Training shows no fact of ", name(label), "; any question about it can still be asked."),
    );
  return el(
    "section",
    { class: "card", "aria-labelledby": "questions" },
    el("h2", { id: "questions" }, "Questions about ", name(label)),
    el("p", { class: "faint" }, "Choose one more part above, or one of these."),
    el(
      "ul",
      { class: "chips" },
      [...found.values()].map((question) =>
        el("li", {}, el("a", { class: "chip", href: href("ask", question) }, sentence(question))),
      ),
    ),
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
    measured?.mrr !== undefined && [
      score(measured.mrr),
      `MRR on ${about.metrics.test ? "test" : "validation"}`,
      href("graph/accuracy"),
    ],
  ].filter(Boolean);
  return [
    about.examples.length > 0 &&
      el(
        "section",
        { "aria-labelledby": "examples" },
        el("h2", { id: "examples", class: "small-head" }, "Try one of these"),
        el(
          "ul",
          { class: "examples" },
          about.examples.map((question) =>
            el(
              "li",
              {},
              el("a", { class: "card example", href: href("ask", question) }, sentence(question), icon("further")),
            ),
          ),
        ),
      ),
    el(
      "section",
      { "aria-labelledby": "size" },
      el("h2", { id: "size", class: "small-head" }, "This graph"),
      el(
        "ul",
        { class: "tiles" },
        tiles.map(([value, text, target]) =>
          el("li", {}, el("a", { class: "tile card", href: target }, el("b", {}, value), el("span", {}, text))),
        ),
      ),
    ),
  ].filter(Boolean);
}
