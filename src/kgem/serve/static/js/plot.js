// The ground of every picture: axes with round numbers, linear or logarithmic, drawn anew when the width changes.

import { el, svg } from "./dom.js";
import { count, figure } from "./words.js";

const LEFT = 52;
const RIGHT = 24;
const TOP = 14;
const BOTTOM = 44;
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Round numbers between two others. */
function ticks(low, high, log, wanted = 5) {
  if (!log) {
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) powers.push(power);
  const factors = Math.log10(high / low) > 3 ? [1] : Math.log10(high / low) > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  return powers
    .flatMap((power) => factors.map((factor) => Number((factor * 10 ** power).toPrecision(12))))
    .filter((value) => value >= low && value <= high);
}

/** From numbers to places. */
function axis({ low, high, log = false }, from, to) {
  const at = log ? Math.log : (value) => value;
  const span = at(high) - at(low) || 1;
  return (value) => from + ((at(value) - at(low)) / span) * (to - from);
}

/** Axes in an SVG of this width and height: {root, layer, x, y}; what belongs to the picture goes into `layer`. */
export function plot({ width, height, x, y, label }) {
  const place = { x: axis(x, LEFT, width - RIGHT), y: axis(y, height - BOTTOM, TOP) };
  const format = (scale) =>
    scale.format ??
    (scale.log
      ? (value) => (value >= 1000 ? count(value) : figure(value))
      : (value) => (Math.abs(value) >= 10000 ? SHORT.format(value) : figure(value)));
  const grid = svg("g", { class: "grid", "aria-hidden": "true" });
  const wide = width > 480;
  for (const value of x.ticks ?? ticks(x.low, x.high, x.log, wide ? 6 : 4)) {
    const at = place.x(value);
    grid.append(
      svg("line", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
      svg("text", { x: at, y: height - BOTTOM + 17, class: "tick-x" }, format(x)(value)),
    );
  }
  for (const value of y.ticks ?? ticks(y.low, y.high, y.log)) {
    const at = place.y(value);
    grid.append(
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 8, y: at + 4, class: "tick-y" }, format(y)(value)),
    );
  }
  grid.append(svg("text", { x: (LEFT + width - RIGHT) / 2, y: height - 5, class: "axis-x" }, x.title ?? ""));
  const layer = svg("g", {});
  const clip = { x: LEFT, y: TOP, width: Math.max(0, width - LEFT - RIGHT), height: height - TOP - BOTTOM };
  const root = svg(
    "svg",
    {
      class: "plot",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }),
    },
    grid,
    layer,
  );
  return { root, layer, clip, ...place };
}

/** A box that calls `draw(width)` now and whenever its width changes; draw returns what is to be shown. */
export function responsive(className, draw) {
  const box = el("div", { class: `picture ${className}` });
  let last = 0;
  const again = () => {
    const width = Math.round(box.clientWidth);
    if (!width || width === last) return;
    last = width;
    box.replaceChildren(...[draw(width)].flat());
  };
  new ResizeObserver(again).observe(box);
  return box;
}

/** What a colour of the style sheet is now, for canvases, which know no custom properties. */
export function colour(variable) {
  const probe = el("i", { class: "sr" });
  probe.style.color = `var(--${variable})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** A path through points; null breaks the line. */
export function path(points) {
  let pen = "M";
  return points
    .map((point) => {
      if (!point) {
        pen = "M";
        return "";
      }
      const command = `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      pen = "L";
      return command;
    })
    .join("");
}

/** Names and colours beside a picture. */
export function legend(items) {
  return el(
    "ul",
    { class: "legend" },
    items.map(([className, text]) => el("li", {}, el("i", { class: className, "aria-hidden": "true" }), text)),
  );
}
