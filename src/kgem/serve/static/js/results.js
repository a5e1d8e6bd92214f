// The answers to a question, how sure the model is of them, and where to go on from there.

import { answerList } from "./answers.js";
import { brief, cut, el } from "./dom.js";
import { icon } from "./icons.js";
import { sentence } from "./question.js";
import { href } from "./router.js";
import { empty } from "./states.js";
import { count, figure, plausible, plural } from "./words.js";

const MEANING = {
  tail: "The probability says which tail it is, given that there is one; not whether there is one.",
  head: "The probability says which head it is, given that there is one; not whether there is one.",
  relation:
    "The probability is that of the tail, given the head and this relation; over relations it need not sum to one.",
};

/** All that is shown of a prediction; `target` is what was asked. */
export function results(found, question, target, page, change) {
  const { answers, entropy, temperature, mode } = found;
  const follow = target === "relation" ? null : (answer) => href("ask", { head: answer.label });
  const list = answers.length
    ? answerList(answers, target, question, { follow })
    : empty(
        "No answers are left",
        el("p", {}, "The graph has all of them already."),
        question.new === "1" &&
          el(
            "button",
            { class: "button", type: "button", onclick: () => change({ new: null }) },
            "Show the known ones",
          ),
      );
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
      held > 0 &&
        el(
          "p",
          { class: "card note-card" },
          el("span", { class: "badge held" }, "held out"),
          held === 1
            ? " One answer is a fact that training did not show: the model found it by itself."
            : ` ${count(held)} answers are facts that training did not show: the model found them by itself.`,
        ),
      goOn(question, target),
      el(
        "p",
        { class: "faint small" },
        `Mode ${mode}, temperature ${figure(temperature)}. `,
        "Whisker, range and rank: how far nine of ten samples of the model move them.",
      ),
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
    links.push(el("a", { class: "chip", href: href("ask", turned) }, icon("swap"), sentence(turned, cut)));
  }
  for (const label of [head, tail].filter(Boolean))
    links.push(el("a", { class: "chip", href: href("entity", { label }) }, icon("entity"), brief(label)));
  if (relation)
    links.push(
      el(
        "a",
        { class: "chip", href: href("review", { relation }) },
        icon("review"),
        el("span", { class: "what" }, "Missing facts: "),
        brief(relation),
      ),
    );
  return el(
    "section",
    { class: "card", "aria-labelledby": "go-on" },
    el("h2", { id: "go-on", class: "small-head" }, "Go on"),
    el(
      "ul",
      { class: "chips stacked" },
      links.map((link) => el("li", {}, link)),
    ),
  );
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
