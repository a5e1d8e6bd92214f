// Learned strength against frequency (Fig. 3 of the paper): thousands of points, labels for those one points at.

import { el, name, svg } from "./dom.js";
import { said } from "./names.js";
import { colour, path, plot, responsive } from "./plot.js";
import { figure, plural } from "./words.js";

const NEAR = 28; // pixels around the pointer
const SIDEWAYS = 0.5;
const HELP = "Arrow keys go from point to point, Enter opens one. The tables below have the extremes.";
const NAMED = 7; // points that are named from the start: the furthest from the trend

/** Points {label, frequency, strength} with the proportional line; `open` goes on to the point that was chosen. */
export function scatter({ points, constant, slope, scale, found, what, open, announce }) {
  const x = points.map((point) => Math.max(1, point.frequency));
  // Counts are whole numbers: dots that are not spread a little would hide each other.
  const drawn = x.map((n, i) => n + SIDEWAYS * (((i * 0.618034) % 1) - 0.5));
  const y = points.map((point) => point.strength);
  const across = [...points.keys()].sort((a, b) => x[a] - x[b] || y[a] - y[b]);
  const upwards = [...points.keys()].sort((a, b) => y[a] - y[b] || x[a] - x[b]);
  const [low, high] = [Math.min(...y), Math.max(...y)];
  const room = Math.max((high / low) ** 0.16, 1.25);
  const scales = {
    x: { low: Math.min(...x) / 1.5, high: Math.max(...x) * 1.4, log: true, title: `training facts with the ${what}` },
    y: { low: low / room, high: high * room, log: true },
  };
  const trend = (n) => scale * n ** slope;
  const told = el("div", { class: "told", role: "status" });
  let picture = null;
  let current = found ? points.findIndex((point) => point.label === found) : -1;

  const all = plural(points.length, what, what === "entity" ? "entities" : "relations");
  const box = responsive("scatter", draw);
  box.tabIndex = 0;
  box.setAttribute("role", "application");
  box.setAttribute("aria-roledescription", "scatter plot");
  box.setAttribute("aria-label", `Strength against frequency of ${all}. ${HELP}`);
  box.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(nearest(event), false));
  box.addEventListener("pointerleave", () => point(chosen(), false));
  box.addEventListener("click", (event) => {
    const place = nearest(event);
    if (place >= 0 && place === current && event.detail > 1) return open(points[place]);
    point(place, true);
  });
  box.addEventListener("keydown", pressed);
  addEventListener("themechange", redraw);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", redraw);

  function chosen() {
    return found ? points.findIndex((each) => each.label === found) : -1;
  }

  function draw(width) {
    const height = Math.round(Math.min(540, Math.max(330, width * 0.56)));
    const ground = plot({ width, height, ...scales });
    const canvas = el("canvas", { "aria-hidden": "true" });
    const marks = svg("g", { class: "marks" });
    const { clip } = ground;
    const inside = `clip-${what}`;
    const ends = [scales.x.low, scales.x.high];
    const line = (f) => path(ends.map((n) => [ground.x(n), ground.y(f(n))]));
    const above = svg(
      "svg",
      { class: "above", width, height, "aria-hidden": "true" },
      svg("clipPath", { id: inside }, svg("rect", clip)),
      svg(
        "g",
        { "clip-path": `url(#${inside})` },
        constant > 0 && svg("path", { class: "proportional", d: line((n) => constant * n) }),
        Number.isFinite(slope) && svg("path", { class: "trend", d: line(trend) }),
      ),
      marks,
    );
    picture = {
      ...ground,
      width,
      height,
      canvas,
      marks,
      at: points.map((_, i) => [ground.x(drawn[i]), ground.y(y[i])]),
    };
    picture.named = named();
    paint();
    mark();
    return [ground.root, canvas, above];
  }

  function paint() {
    const { canvas, width, height, at } = picture;
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    pen.fillStyle = colour("point");
    const radius = points.length > 2500 ? 2 : points.length > 600 ? 2.8 : 4.2;
    pen.globalAlpha = points.length > 2500 ? 0.32 : points.length > 600 ? 0.4 : 0.6;
    for (const [left, top] of at) {
      pen.beginPath();
      pen.arc(left, top, radius, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  function redraw() {
    if (box.isConnected && picture) paint();
  }

  /** The points furthest from the trend, those whose names have room. */
  function named() {
    if (picture.width < 520) return [];
    const distance = (i) => Math.abs(Math.log(y[i]) - Math.log(Number.isFinite(slope) ? trend(x[i]) : high));
    const taken = [];
    for (const i of [...points.keys()].sort((a, b) => distance(b) - distance(a)).slice(0, 12 * NAMED)) {
      const label = tag(i);
      if (taken.length < NAMED && taken.every((other) => apart(label, other))) taken.push(label);
    }
    return taken;
  }

  function tag(i) {
    const [left, top] = picture.at[i];
    const whole = said(points[i].label);
    const text = whole.length > 26 ? `${[...whole].slice(0, 25).join("")}…` : whole;
    const wide = 7 * text.length + 14;
    const flip = left + wide > picture.width - 8;
    return { i, text, flip, left: flip ? left - wide : left, top: top - 9, wide, high: 18 };
  }

  function mark() {
    const { marks, named: names, at } = picture;
    const shown = current >= 0 ? names.filter((each) => each.i !== current && apart(each, tag(current))) : names;
    marks.replaceChildren(...shown.map((label) => caption(label, "")));
    if (current >= 0) {
      const [left, top] = at[current];
      marks.append(svg("circle", { class: "ring", cx: left, cy: top, r: 7 }), caption(tag(current), "here"));
    }
  }

  function caption({ i, text, flip }, className) {
    const [left, top] = picture.at[i];
    return svg(
      "text",
      { class: `caption ${className}`, x: left + (flip ? -10 : 10), y: top + 4, "text-anchor": flip ? "end" : "start" },
      text,
    );
  }

  function nearest(event) {
    const frame = box.getBoundingClientRect();
    const [left, top] = [event.clientX - frame.left, event.clientY - frame.top];
    let [best, least] = [-1, NEAR ** 2];
    for (const [i, [a, b]] of picture.at.entries()) {
      const distance = (a - left) ** 2 + (b - top) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  function point(place, say) {
    if (place === current && !say) return;
    current = place;
    mark();
    tell();
    if (say && place >= 0) announce(`${said(points[place].label)}: ${words(points[place])}`);
  }

  function words({ frequency, strength }) {
    const ratio = strength / trend(Math.max(1, frequency));
    const beside = !Number.isFinite(ratio)
      ? ""
      : ratio >= 1.1
        ? `, ${figure(ratio)} times the trend`
        : ratio <= 0.9
          ? `, ${figure(1 / ratio)} times below the trend`
          : ", on the trend";
    return `${plural(frequency, "fact")}, strength ${figure(strength)}${beside}`;
  }

  function tell() {
    const here = points[current];
    told.replaceChildren(
      ...(here
        ? [
            el("button", { class: "button quiet", type: "button", onclick: () => open(here) }, name(here.label)),
            el("span", {}, words(here)),
          ]
        : [el("span", { class: "faint" }, "Point at a dot, tap it, or walk with the arrow keys.")]),
    );
  }

  function pressed(event) {
    const step = {
      ArrowRight: [across, 1],
      ArrowLeft: [across, -1],
      ArrowUp: [upwards, 1],
      ArrowDown: [upwards, -1],
      Home: [across, -Infinity],
      End: [across, Infinity],
    }[event.key];
    if (step) {
      event.preventDefault();
      const [order, by] = step;
      const place = current < 0 ? (by > 0 ? -1 : order.length) : order.indexOf(current);
      point(order[Math.max(0, Math.min(order.length - 1, place + by))], true);
    } else if (event.key === "Enter" && current >= 0) open(points[current]);
  }

  tell();
  return el("div", {}, box, told);
}

function apart(a, b) {
  return a.left > b.left + b.wide || b.left > a.left + a.wide || a.top > b.top + b.high || b.top > a.top + a.high;
}
