// Answers as bars: probability, its range as a whisker, the interval of the rank, what is known already.

import { brief, el, spoken } from "./dom.js";
import { icon } from "./icons.js";
import { said } from "./names.js";
import { href } from "./router.js";
import { percent, plural, range, roundUp } from "./words.js";

const KNOWN = {
  train: ["known", "The graph has this fact, and the model was trained on it"],
  valid: ["held out: valid", "The graph has this fact; training did not show it to the model"],
  test: ["held out: test", "The graph has this fact; training did not show it to the model"],
};

/** A badge for a fact that the graph has; null for one that it does not have. */
export function badge(split) {
  if (!split) return null;
  const [text, title] = KNOWN[split] ?? [split, `The graph has this fact, in ${split}`];
  return el("span", { class: `badge ${split === "train" ? "seen" : "held"}`, title }, text);
}

/** A link from a fact to what speaks for and against it. */
export function why({ head, relation, tail }) {
  const about = { class: "why", title: "What speaks for and against it", "aria-label": `Why ${head} ${relation} ${tail}` };
  return el("a", { ...about, href: href("ask", { head, relation, tail }) }, "why?");
}

/** A bar up to `most`, with a whisker over the range of the probability where that is known. */
export function bar({ probability, low, high }, most = 1) {
  const place = (value) => `${(100 * Math.min(1, Math.max(0, value / most))).toFixed(2)}%`;
  const kind = high > most ? "whisker beyond" : "whisker"; // it goes on where the bar ends
  const whisker = high > 0 && el("i", { class: kind, vars: { from: place(low), to: place(high) } });
  return el(
    "span",
    { class: "bar", "aria-hidden": "true", vars: { share: place(probability) } },
    el("i", { class: "fill" }),
    whisker,
  );
}

/** The probability in figures, with its range. */
export function figures({ probability, low, high }) {
  return el(
    "span",
    { class: "figures" },
    el("b", {}, percent(probability)),
    high !== null &&
      high !== undefined &&
      el("small", { title: "Nine of ten samples of the model move the probability within this range" }, spoken("range "), range(low, high)),
  );
}

/** Up to where the bars of some answers go: a round number above the highest probability, and most of the ranges. */
function scale(answers) {
  const highest = Math.max(1e-6, ...answers.map((answer) => answer.probability));
  const ranges = Math.max(0, ...answers.map((answer) => answer.high ?? 0));
  return Math.min(1, roundUp(Math.min(Math.max(highest, ranges), 3 * highest)));
}

/**
 * The first answers to a question, or `shown` of them; `follow` makes the address that goes on from one. The one that is
 * `mine` is told, and shown in place of the last one if it comes after it.
 */
export function answerList(answers, asked, question, { follow = null, mine = null, shown = answers.length, label = "Answers" } = {}) {
  const places = answers.slice(0, shown).map((_, place) => place);
  const own = answers.findIndex((answer) => answer.label === mine);
  if (own >= shown) places[shown - 1] = own;
  const most = scale(places.map((place) => answers[place]));
  const rows = places.map((place) => row(answers[place], place, asked, question, most, follow, place === own));
  const axis = el(
    "div",
    { class: "axis", "aria-hidden": "true" },
    el("span", {}, "0"),
    el("span", {}, percent(most / 2)),
    el("span", {}, percent(most)),
  );
  return el("div", { class: "answers" }, axis, el("ol", { "aria-label": label }, rows));
}

function row(answer, place, asked, question, most, follow, mine) {
  const { label, rank_low: low, rank_high: high, frequency, known } = answer;
  const target = asked === "relation" ? href("ask", { relation: label }) : href("entity", { label });
  const rank = low === null || low === undefined ? null : low === high ? `rank ${low}` : `rank ${low}–${high}`;
  const notes = [rank, plural(frequency, "fact")].filter(Boolean).join(" · ");
  return el(
    "li",
    { class: `answer ${known ? "is-known" : "is-new"}${mine ? " mine" : ""}` },
    el("span", { class: "place", "aria-hidden": "true" }, place + 1),
    el(
      "span",
      { class: "what" },
      el("a", { class: "go", href: target, title: label }, brief(label)),
      badge(known),
      mine && el("span", { class: "badge this" }, "this fact"),
      el(
        "small",
        {
          class: "notes",
          title: "Rank: nine of ten samples of the model place it here. Facts: how often training shows it",
        },
        notes,
        " · ",
        why({ ...question, [asked]: label }),
      ),
    ),
    bar(answer, most),
    figures(answer),
    follow &&
      el(
        "a",
        { class: "further", href: follow(answer), "aria-label": `Ask further about ${said(label)}`, title: "Ask further" },
        el("span", {}, "Ask further"),
        icon("further"),
      ),
  );
}
