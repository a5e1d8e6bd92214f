// The part of the graph view about accuracy: filtered ranks of held-out facts, by relation, frequency, category, side.

import { ready } from "./api.js";
import { el } from "./dom.js";
import { href } from "./router.js";
import { awaited, empty, working } from "./states.js";
import { table } from "./tables.js";
import { count, figure, percent, score } from "./words.js";

const FIGURES = [
  { key: "n", title: "Ranks", kind: "count" },
  { key: "mrr", title: "MRR", kind: "share" },
  { key: "hits_at_1", title: "Hits@1", kind: "share" },
  { key: "hits_at_10", title: "Hits@10", kind: "share" },
  { key: "mean_rank", title: "Mean rank", kind: "number" },
];

const FEW = FIGURES.filter(({ key }) => ["n", "mrr", "hits_at_10"].includes(key));

/** The split that is asked for, if the graph has facts in it, else one that it has. */
export function chosenSplit(params, about) {
  const there = ["test", "valid", "train"].filter((split) => about.graph.facts[split] > 0);
  return there.includes(params.split) ? params.split : (there[0] ?? "train");
}

/** Links to the splits that have facts. */
export function splits(part, chosen, about) {
  const there = ["test", "valid"].filter((split) => about.graph.facts[split] > 0);
  if (there.length < 2) return null;
  const links = there.map((split) =>
    el(
      "a",
      {
        href: href(`graph/${part}`, { split: split === "test" ? null : split }),
        "aria-current": split === chosen ? "true" : null,
      },
      split,
    ),
  );
  return el("nav", { class: "segments", "aria-label": "Split" }, links);
}

export async function accuracy(region, { params }, page, signal) {
  const split = chosenSplit(params, page.about);
  const progress = working(region, "Ranking held-out facts", "Done once; later visits are immediate.");
  const found = await awaited(region, ready("metrics", { split }, signal, progress));
  if (signal.aborted) return;
  if (!found.overall)
    return region.replaceChildren(empty("Nothing was measured", el("p", {}, `The graph has no facts in ${split}.`)));
  const { overall } = found;
  const tiles = [
    [score(overall.mrr), "MRR"],
    [percent(overall.hits_at_1), "Hits@1"],
    [percent(overall.hits_at_3), "Hits@3"],
    [percent(overall.hits_at_10), "Hits@10"],
    [figure(overall.mean_rank), "mean rank"],
  ];
  region.replaceChildren(
    el(
      "section",
      { class: "card", "aria-labelledby": "accuracy-title" },
      el(
        "div",
        { class: "card-head" },
        el("h2", { id: "accuracy-title" }, "Accuracy on ", split),
        splits("accuracy", split, page.about),
      ),
      el(
        "p",
        { class: "meaning" },
        `${count(overall.n)} ranks of held-out facts, asked from both sides; the other known answers are left out. `,
        "Ties count against the model.",
      ),
      el(
        "ul",
        { class: "tiles" },
        tiles.map(([value, text]) => el("li", { class: "tile" }, el("b", {}, value), el("span", {}, text))),
      ),
    ),
    broken("By relation", found.by_relation, "Relation", page, {
      sort: "-n",
      target: ({ label }) => href("ask", { relation: label }),
    }),
    broken("By frequency of the answer", found.by_frequency, "Training facts", page, {
      note: "How well rare and frequent entities are found.",
    }),
    el(
      "div",
      { class: "halves" },
      broken("By kind of relation", found.by_category, "Kind", page, { columns: FEW }),
      broken(
        "By side and rule for ties",
        { ...prefixed(found.by_side, "asked: "), ...prefixed(found.by_ties, "ties: ") },
        "Which",
        page,
        { columns: FEW },
      ),
    ),
  );
}

function prefixed(groups, text) {
  return Object.fromEntries(Object.entries(groups ?? {}).map(([key, value]) => [text + key, value]));
}

function broken(
  title,
  groups,
  first,
  page,
  { sort = null, target = null, note = null, columns: shown = FIGURES } = {},
) {
  const rows = Object.entries(groups ?? {}).map(([label, values]) => ({ label, ...values }));
  if (!rows.length) return null;
  const columns = [{ key: "label", title: first, kind: "label", href: target }, ...shown];
  return el(
    "section",
    { class: "card" },
    el("h2", { class: "small-head" }, title),
    note && el("p", { class: "meaning" }, note),
    table({ caption: title, columns, rows, sort, announce: page.announce }),
  );
}
