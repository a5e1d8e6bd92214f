// Numbers as people say them.

const UNIT = "\u00a0%"; // a line never breaks before it

/** 0.2613 as "26 %": two digits where there are any to tell. */
export function percent(share) {
  const value = 100 * share;
  if (value >= 99.95) return value > 99.995 ? `100${UNIT}` : `>\u00a099.9${UNIT}`;
  if (value >= 99) return `${value.toFixed(1)}${UNIT}`;
  if (value >= 9.95) return `${value.toFixed(0)}${UNIT}`;
  if (value >= 0.995) return `${value.toFixed(1)}${UNIT}`;
  if (value >= 0.01) return `${value.toFixed(2)}${UNIT}`;
  return value > 0 ? `<\u00a00.01${UNIT}` : `0${UNIT}`;
}

/** Two shares as "4–72 %". */
export function range(low, high) {
  const [from, to] = [percent(low), percent(high)];
  if (from === to) return from;
  return from.startsWith("<") ? `0–${to}` : `${from.replace(UNIT, "")}–${to}`;
}

/** 14505 as "14,505". */
export function count(n) {
  return Number(n).toLocaleString("en");
}

/** "1 fact", "2 facts". */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Three digits that matter. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return count(Math.round(value));
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

/** A share of one with three decimals, as MRR is written. */
export function score(value) {
  return Number.isFinite(value) ? value.toFixed(3) : "–";
}

/** Predictive entropy in nats as a number of answers that are in question. */
export function plausible(entropy) {
  const n = Math.round(Math.exp(entropy));
  if (n <= 1) return { number: "1", text: "One answer stands out" };
  return { number: `≈ ${count(n)}`, text: `About ${count(n)} answers are plausible` };
}

/** Where a quantile lies, in words. */
export function among(quantile, what) {
  if (quantile >= 0.995) return `higher than of nearly all ${what}`;
  if (quantile <= 0.005) return `lower than of nearly all ${what}`;
  const share = Math.round(100 * quantile);
  return share >= 50
    ? `higher than of ${share}${UNIT} of all ${what}`
    : `lower than of ${100 - share}${UNIT} of all ${what}`;
}

/** How a missing fact compares with what an answer that the graph has would get. */
export function fit(share) {
  if (share >= 1.15) return "more probable than a known answer would be";
  if (share >= 0.85) return "as probable as a known answer would be";
  if (share >= 0.4) return "about half as probable as a known answer would be";
  return share >= 0.15
    ? "less probable than a known answer would be"
    : "far less probable than a known answer would be";
}

/** A moment as people nearby would say it. */
export function when(time) {
  const moment = new Date(time);
  if (Number.isNaN(moment.getTime())) return String(time ?? "");
  const seconds = (Date.now() - moment.getTime()) / 1000;
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return moment.toLocaleDateString("en", { year: "numeric", month: "short", day: "numeric" });
}

/** The end of an axis: the least round number that holds the value. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999) ?? value;
}

/** A name as a shell takes it. */
export function quoted(text) {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
