// Tables that sort by any column, with bars for shares.

import { el, name } from "./dom.js";
import { count, figure } from "./words.js";

const SHOWN = 25; // rows until one asks for the rest

/**
 * A table: columns are {key, title, kind, href}, kind one of label, text, share, number, count; rows are objects.
 * `sort` is the key it starts with, prefixed with "-" for the highest first; without it rows keep their order.
 */
export function table({ caption, columns, rows, sort = null, announce = () => {} }) {
  let key = sort?.replace(/^-/, "") ?? null;
  let down = sort?.startsWith("-") ?? false;
  let all = rows.length <= SHOWN + 5;
  const heads = columns.map((column) => {
    const button = el(
      "button",
      { type: "button", onclick: () => by(column) },
      column.title,
      el("span", { class: "arrow", "aria-hidden": "true" }),
    );
    return el("th", { scope: "col", class: column.kind === "label" || column.kind === "text" ? null : "n" }, button);
  });
  const body = el("tbody");
  const more = el(
    "button",
    {
      class: "button quiet",
      type: "button",
      onclick: () => {
        all = true;
        draw();
      },
    },
    `Show all ${count(rows.length)}`,
  );
  const root = el(
    "div",
    { class: "table" },
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", {}, el("caption", { class: "sr" }, caption), el("thead", {}, el("tr", {}, heads)), body),
    ),
    more,
  );

  function by(column) {
    const text = column.kind === "label" || column.kind === "text";
    down = key === column.key ? !down : !text;
    key = column.key;
    draw();
    announce(`Sorted by ${column.title}, ${down ? "highest" : "lowest"} first`);
  }

  function draw() {
    const ordered = key === null ? rows : [...rows].sort((a, b) => (down ? -1 : 1) * compare(a[key], b[key]));
    body.replaceChildren(
      ...(all ? ordered : ordered.slice(0, SHOWN)).map((row) =>
        el(
          "tr",
          {},
          columns.map((column) => cell(column, row)),
        ),
      ),
    );
    more.hidden = all;
    for (const [place, head] of heads.entries()) {
      const mine = columns[place].key === key;
      head.setAttribute("aria-sort", mine ? (down ? "descending" : "ascending") : "none");
    }
  }

  draw();
  return root;
}

function compare(a, b) {
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -Infinity) - (b ?? -Infinity);
}

function cell({ key, kind, href }, row) {
  const value = row[key];
  if (kind === "label")
    return el("th", { scope: "row" }, href ? el("a", { class: "go", href: href(row) }, name(value)) : name(value));
  if (kind === "text") return el("td", {}, el("bdi", {}, value ?? ""));
  if (kind === "share") {
    const share = Number.isFinite(value) ? value : 0;
    const strip = el(
      "span",
      { class: "bar thin", "aria-hidden": "true", vars: { share: `${(100 * share).toFixed(1)}%` } },
      el("i", { class: "fill" }),
    );
    return el(
      "td",
      { class: "n" },
      strip,
      el("span", { class: "value" }, Number.isFinite(value) ? value.toFixed(3) : "–"),
    );
  }
  return el("td", { class: "n" }, kind === "count" ? count(value) : figure(value));
}
