// A fact that is given as a whole: how credible it is, its rank from both sides, and what speaks against it.

import { why } from "./answers.js";
import { brief, el } from "./dom.js";
import { icon } from "./icons.js";
import { sentence } from "./question.js";
import { href } from "./router.js";
import { count, percent, range } from "./words.js";

const KNOWN = {
  train: "The model was fitted to this fact, and finds it more credible than it would have.",
  valid: "The graph has it, held out for validation.",
  test: "The graph has it, held out for tests.",
};

/** All that is shown of a judgement. */
export function judgement(found) {
  const { head, relation, tail, chance, low, high, against, like, known, mode } = found;
  const ranks = [
    ["tail", { head, relation }, found.rank_tail],
    ["head", { relation, tail }, found.rank_head],
  ];
  return el(
    "div",
    { class: "columns" },
    el(
      "section",
      { class: "card wide judged", "aria-labelledby": "judged-title" },
      el("div", { class: "card-head" }, el("h2", { id: "judged-title" }, sentence({ head, relation, tail }))),
      el("p", { class: "meaning" }, "How probable it is that this is a fact, and not a mistake that looks like one."),
      el("p", { class: "big" }, percent(chance)),
      el("div", { class: "meter", "aria-hidden": "true", vars: { share: `${(100 * chance).toFixed(1)}%` } }, el("i", {})),
      el("p", { class: "faint" }, "Nine of ten samples of the model say ", el("span", { class: "whole" }, range(low, high)), "."),
      known && el("p", {}, el("span", { class: "badge" }, known), ` ${KNOWN[known]}`),
      like.length > 0 && el("h3", { class: "small-head" }, "Known facts that are most like it"),
      like.length > 0 &&
        el(
          "ul",
          { class: "plain like" },
          like.map(([h, r, t]) => el("li", {}, sentence({ head: h, relation: r, tail: t }), " ", why({ head: h, relation: r, tail: t }))),
        ),
      el("h3", { class: "small-head" }, against.length ? "What speaks against it" : "Nothing speaks against it"),
      against.length > 0 &&
        el(
          "ul",
          { class: "against" },
          against.map((reason) => el("li", {}, reason)),
        ),
    ),
    el(
      "aside",
      { class: "aside", "aria-label": "From both sides" },
      el(
        "section",
        { class: "card", "aria-labelledby": "ranks" },
        el("h2", { id: "ranks", class: "small-head" }, "Its rank among answers that are not known"),
        el(
          "ul",
          { class: "chips stacked" },
          ranks.map(([side, question, rank]) =>
            el(
              "li",
              {},
              el("a", { class: "chip", href: href("ask", question) }, `Rank of the ${side}: ${count(rank)}`),
            ),
          ),
          [head, tail].map((label) =>
            el("li", {}, el("a", { class: "chip", href: href("entity", { label }) }, icon("entity"), brief(label))),
          ),
        ),
      ),
      el("p", { class: "faint small" }, `Mode ${mode}. 50\u00a0% is as much like facts that were held out as like plausible mistakes.`),
    ),
  );
}
