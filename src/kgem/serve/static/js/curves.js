// The part of the graph view about learning: validation MRR, loss and ELBO over the epochs of all phases.

import { get } from "./api.js";
import { el, svg } from "./dom.js";
import { legend, path, plot, responsive } from "./plot.js";
import { awaited, empty } from "./states.js";
import { table } from "./tables.js";
import { count, figure, score } from "./words.js";

const PHASES = { pretrain: "pre-train", em: "variational EM", retrain: "re-train", companions: "companions", distil: "distil" };
const CHARTS = [
  ["mrr", "MRR on validation", "Higher is better", score, 300],
  ["loss", "Loss per fact", "Nats; lower is better", figure, 220],
  ["elbo", "Evidence lower bound", "Nats over all facts; higher is better", figure, 220],
];

export async function curves(region, route, page, signal) {
  const { phases } = await awaited(region, get("curves", {}, signal), "Loading the log");
  if (signal.aborted) return;
  const segments = cut(phases);
  if (!segments.length)
    return region.replaceChildren(
      empty("No learning curves", el("p", {}, "This folder has a model but no log of its fit.")),
    );
  region.replaceChildren(
    ...CHARTS.map(([key, title, note, format, height]) => chart(segments, key, title, note, format, height)).filter(
      Boolean,
    ),
    summary(segments, page),
  );
}

/** Epochs that follow each other; a phase may try several candidates, each of which starts anew. */
function cut(phases) {
  const segments = [];
  let place = 0; // epochs so far, over all phases
  for (const phase of phases) {
    let last = null;
    for (const record of phase.epochs) {
      const before = last?.records.at(-1);
      if (!last || record.epoch <= before.epoch || record.candidate !== before.candidate) {
        place += last ? before.epoch - last.skipped : 0;
        const skipped = record.epoch - 1; // of a candidate that goes on after others were tried
        last = { phase: phase.name, from: place, start: place - skipped, skipped, records: [] };
        segments.push(last);
      }
      last.records.push(record);
    }
    place += last ? last.records.at(-1).epoch - last.skipped : 0;
  }
  return segments;
}

function chart(segments, key, title, note, format, height) {
  const dots = segments.flatMap((segment) =>
    segment.records
      .filter((record) => Number.isFinite(record[key]))
      .map((record) => ({ x: segment.start + record.epoch, y: record[key], segment, record })),
  );
  if (!dots.length) return null;
  const values = dots.map((dot) => dot.y);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = 0.1 * (most - least) || 0.1 * Math.abs(most) || 1;
  const end = segments.at(-1).start + segments.at(-1).records.at(-1).epoch;
  const best = key === "mrr" ? dots.reduce((a, b) => (b.y > a.y ? b : a)) : null;
  const told = el(
    "p",
    { class: "told", role: "status" },
    best ? `Best: ${format(best.y)}, ${where(best)}` : `Last: ${format(dots.at(-1).y)}`,
  );
  const draw = (width) => {
    const ground = plot({
      width,
      height,
      label: `${title} over ${count(end)} epochs, from ${format(dots[0].y)} to ${format(dots.at(-1).y)}`,
      x: { low: 0, high: end, title: "epoch, over all phases" },
      y: { low: key === "mrr" ? Math.max(0, least - room) : least - room, high: most + room },
    });
    const cursor = svg("g", { class: "cursor" });
    for (const segment of segments) {
      const last = segment.start + segment.records.at(-1).epoch;
      const mine = dots.filter((dot) => dot.segment === segment).map((dot) => [ground.x(dot.x), ground.y(dot.y)]);
      ground.layer.append(
        svg("rect", {
          class: `band ${segment.phase}`,
          x: ground.x(segment.from),
          width: ground.x(last) - ground.x(segment.from),
          y: ground.clip.y,
          height: ground.clip.height,
        }),
        svg("path", { class: `curve ${segment.phase}`, d: path(mine) }),
        ...(mine.length <= 30
          ? mine.map(([cx, cy]) => svg("circle", { class: `dot ${segment.phase}`, cx, cy, r: 2.6 }))
          : []),
      );
    }
    if (best) ground.layer.append(svg("circle", { class: "ring", cx: ground.x(best.x), cy: ground.y(best.y), r: 7 }));
    ground.layer.append(cursor);
    ground.root.addEventListener("pointermove", (event) => {
      const left = event.clientX - ground.root.getBoundingClientRect().left;
      const dot = dots.reduce((a, b) => (Math.abs(ground.x(b.x) - left) < Math.abs(ground.x(a.x) - left) ? b : a));
      const [cx, cy] = [ground.x(dot.x), ground.y(dot.y)];
      cursor.replaceChildren(
        svg("line", { x1: cx, x2: cx, y1: ground.clip.y, y2: ground.clip.y + ground.clip.height }),
        svg("circle", { cx, cy, r: 4 }),
      );
      told.textContent = `${format(dot.y)}, ${where(dot)}`;
    });
    return ground.root;
  };
  const names = [...new Set(segments.map((segment) => segment.phase))].map((phase) => [
    `swatch ${phase}`,
    PHASES[phase] ?? phase,
  ]);
  return el(
    "section",
    { class: "card" },
    el("div", { class: "card-head" }, el("h2", {}, title), key === "mrr" && legend(names)),
    el("p", { class: "meaning" }, note),
    responsive("lines", draw),
    told,
  );
}

function where({ segment, record }) {
  const attempt = Number.isFinite(record.candidate) ? `, candidate ${record.candidate + 1}` : "";
  return `${PHASES[segment.phase] ?? segment.phase}, epoch ${count(record.epoch)}${attempt}`;
}

function summary(segments, page) {
  const rows = [...new Set(segments.map((segment) => segment.phase))].map((phase) => {
    const records = segments.filter((segment) => segment.phase === phase).flatMap((segment) => segment.records);
    const best = Math.max(...records.map((record) => record.mrr ?? -Infinity));
    return {
      phase: PHASES[phase] ?? phase,
      epochs: records.length,
      mrr: Number.isFinite(best) ? best : null,
      seconds: records.reduce((sum, record) => sum + (record.seconds ?? 0), 0),
    };
  });
  const columns = [
    { key: "phase", title: "Phase", kind: "label" },
    { key: "epochs", title: "Epochs", kind: "count" },
    { key: "mrr", title: "Best MRR", kind: "share" },
    { key: "seconds", title: "Seconds", kind: "number" },
  ];
  return el(
    "section",
    { class: "card" },
    el("h2", { class: "small-head" }, "The phases"),
    table({ caption: "The phases", columns, rows, announce: page.announce }),
  );
}
