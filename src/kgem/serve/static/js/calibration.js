// The part of the graph view about calibration: how often answers are right against how probable they are said to be.

import { ready } from "./api.js";
import { chosenSplit, splits } from "./accuracy.js";
import { el, svg } from "./dom.js";
import { legend, path, plot, responsive } from "./plot.js";
import { awaited, working } from "./states.js";
import { table } from "./tables.js";
import { figure, percent, plural } from "./words.js";

export async function calibration(region, { params }, page, signal) {
  const split = chosenSplit(params, page.about);
  const progress = working(region, "Measuring calibration", "Done once; later visits are immediate.");
  const found = await awaited(region, ready("calibration", { split }, signal, progress));
  if (signal.aborted) return;
  const after = bins(found.curve);
  const before = bins(found.curve_before);
  const tiles = [
    [percent(found.ece), "calibration error"],
    [percent(found.ece_before), "before the temperature"],
    [figure(found.temperature), "temperature"],
    [figure(found.log_loss), "log loss, nats"],
  ];
  region.replaceChildren(
    el(
      "section",
      { class: "card", "aria-labelledby": "calibration-title" },
      el(
        "div",
        { class: "card-head" },
        el("h2", { id: "calibration-title" }, "Calibration on ", split),
        splits("calibration", split, page.about),
      ),
      el(
        "p",
        { class: "meaning" },
        "Of the first answers that are said to be 70\u00a0% probable, about 70\u00a0% should be right. ",
        `Measured on ${plural(found.n, "question")}; a larger dot stands for more of them.`,
      ),
      el(
        "ul",
        { class: "tiles" },
        tiles.map(([value, text]) => el("li", { class: "tile" }, el("b", {}, value), el("span", {}, text))),
      ),
      responsive("square", (width) => curve(width, after, before)),
      legend([
        ["line perfect", "perfectly calibrated"],
        ["line after", "with the fitted temperature"],
        ["line before", "as trained"],
      ]),
    ),
    el(
      "section",
      { class: "card" },
      el("h2", { class: "small-head" }, "In figures"),
      table({
        caption: "Reliability by probability",
        rows: after,
        announce: page.announce,
        columns: [
          { key: "range", title: "Said", kind: "text" },
          { key: "count", title: "Answers", kind: "count" },
          { key: "confidence", title: "Mean said", kind: "share" },
          { key: "accuracy", title: "Right", kind: "share" },
        ],
      }),
    ),
  );
}

function bins(reliability) {
  if (!reliability) return [];
  const { edges, counts, confidence, accuracy } = reliability;
  return counts
    .map((count, i) => ({
      count,
      confidence: confidence[i],
      accuracy: accuracy[i],
      range: `${Math.round(100 * edges[i])}–\u2060${Math.round(100 * edges[i + 1])}\u00a0%`,
    }))
    .filter((bin) => bin.count > 0);
}

function curve(width, after, before) {
  const ends = {
    low: 0,
    high: 1,
    ticks: [0, 0.2, 0.4, 0.6, 0.8, 1],
    format: (value) => `${Math.round(100 * value)} %`,
  };
  const ground = plot({
    width,
    height: Math.round(Math.min(460, Math.max(300, width * 0.62))),
    x: { ...ends, title: "said: probability of the first answer" },
    y: ends,
    label: "Reliability curve: share of right answers against what was said; the table below has the figures",
  });
  const most = Math.max(1, ...after.map((bin) => bin.count));
  ground.layer.append(
    svg("path", {
      class: "perfect",
      d: path([
        [ground.x(0), ground.y(0)],
        [ground.x(1), ground.y(1)],
      ]),
    }),
  );
  for (const [list, className] of [
    [before, "before"],
    [after, "after"],
  ]) {
    const places = list.map((bin) => [ground.x(bin.confidence), ground.y(bin.accuracy)]);
    ground.layer.append(svg("path", { class: `curve ${className}`, d: path(places) }));
    for (const [i, [cx, cy]] of places.entries()) {
      ground.layer.append(
        svg(
          "circle",
          { class: `dot ${className}`, cx, cy, r: 2.5 + 7 * Math.sqrt(list[i].count / most) },
          svg("title", {}, said(list[i])),
        ),
      );
    }
  }
  return ground.root;
}

function said({ confidence, accuracy, count }) {
  return `said ${percent(confidence)}, right ${percent(accuracy)}, ${plural(count, "answer")}`;
}
