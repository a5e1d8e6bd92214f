// The part of the graph view about strengths: the scatter, its search, and the extremes as tables.

import { get } from "./api.js";
import { combobox } from "./combobox.js";
import { el } from "./dom.js";
import { legend } from "./plot.js";
import { go, href } from "./router.js";
import { scatter } from "./scatter.js";
import { awaited } from "./states.js";
import { table } from "./tables.js";
import { count, figure } from "./words.js";

const EXTREMES = 12;
const WHAT = { entities: "entity", relations: "relation" };

export async function strengths(region, { params }, page, signal) {
  const kind = params.kind === "relations" ? "relations" : "entities";
  const data = await awaited(region, get("strengths", { limit: 5000 }, signal), "Loading the strengths");
  const points = data[kind].filter((point) => point.strength > 0);
  if (params.find && kind === "entities" && !points.some((point) => point.label === params.find)) {
    const { label, frequency, strength } = await get("entity", { label: params.find, limit: 1 }, signal);
    points.push({ label, frequency, strength });
  }
  if (signal.aborted) return;
  const fit = line(data, kind);
  const open = ({ label }) => go(kind === "entities" ? href("entity", { label }) : href("ask", { relation: label }));
  const finder = combobox({
    id: "find-point",
    label: `Find ${kind === "entities" ? "an entity" : "a relation"} in the picture`,
    kind,
    placeholder: `Highlight ${kind === "entities" ? "an entity" : "a relation"}`,
    hideLabel: true,
    announce: page.announce,
    choose: (label) => go(href("graph/strengths", { kind: kind === "entities" ? null : kind, find: label })),
  });
  finder.set(params.find ?? "");
  const total = kind === "entities" ? data.total : points.length;
  region.replaceChildren(
    el(
      "section",
      { class: "card", "aria-labelledby": "strengths-title" },
      el(
        "div",
        { class: "card-head" },
        el("h2", { id: "strengths-title" }, "Strength against frequency"),
        switcher(kind),
      ),
      el(
        "p",
        { class: "meaning" },
        "Every symbol has a regulariser strength of its own, learned from the data. ",
        "Were it proportional to how often the symbol occurs, as is usual, the dots would lie on the line.",
      ),
      finder.root,
      scatter({ points, ...fit, found: params.find, what: WHAT[kind], open, announce: page.announce }),
      legend([
        ["line proportional", `best proportional line, ${figure(fit.constant)} × frequency`],
        ...(Number.isFinite(fit.slope)
          ? [["line trend", `best power, frequency to the power of ${fit.slope.toFixed(2)}`]]
          : []),
      ]),
      points.length < total &&
        el(
          "p",
          { class: "faint small" },
          `${count(points.length)} of ${count(total)} are drawn, evenly over all frequencies.`,
        ),
    ),
    extremes(points, kind, page),
  );
}

function switcher(kind) {
  const link = (value, text) =>
    el(
      "a",
      {
        href: href("graph/strengths", { kind: value === "entities" ? null : value }),
        "aria-current": kind === value ? "true" : null,
      },
      text,
    );
  return el(
    "nav",
    { class: "segments", "aria-label": "What is drawn" },
    link("entities", "Entities"),
    link("relations", "Relations"),
  );
}

/** The server's lines for this kind of symbol. */
function line({ line: fits }, kind) {
  const { constant, slope, scale } = kind === "entities" ? fits : fits[kind];
  return { constant, slope: slope ?? NaN, scale: scale ?? NaN };
}

function extremes(points, kind, page) {
  const ordered = [...points].sort((a, b) => b.strength - a.strength);
  const target = ({ label }) => (kind === "entities" ? href("entity", { label }) : href("ask", { relation: label }));
  const columns = [
    { key: "label", title: WHAT[kind][0].toUpperCase() + WHAT[kind].slice(1), kind: "label", href: target },
    { key: "frequency", title: "Facts", kind: "count" },
    { key: "strength", title: "Strength", kind: "number" },
  ];
  const part = (title, rows, sort) =>
    el(
      "section",
      { class: "card" },
      el("h2", { class: "small-head" }, title),
      table({ caption: title, columns, rows, sort, announce: page.announce }),
    );
  return el(
    "div",
    { class: "halves" },
    part("Most regularised", ordered.slice(0, EXTREMES), "-strength"),
    part("Least regularised", ordered.slice(-EXTREMES).reverse(), "strength"),
  );
}
