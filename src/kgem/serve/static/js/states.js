// What a view shows while it has nothing to show: loading, working, nothing found, refused, server gone.

import { Offline, Refused } from "./api.js";
import { brief, el } from "./dom.js";
import { icon } from "./icons.js";
import { count, plural } from "./words.js";

const PATIENCE = 160; // milliseconds before anything tells that we wait: most answers are there earlier

/** Await work; `region` keeps what it shows, dimmed, or gets a skeleton if it is empty. */
export async function awaited(region, work, text = "Loading") {
  region.setAttribute("aria-busy", "true");
  const timer = setTimeout(() => region.childElementCount || region.append(skeleton(text)), PATIENCE);
  try {
    return await work;
  } finally {
    clearTimeout(timer);
    region.removeAttribute("aria-busy");
  }
}

function skeleton(text) {
  const lines = [82, 64, 71, 48, 56].map((share) => el("span", { class: "bone", vars: { share: `${share}%` } }));
  return el("div", { class: "skeleton card", role: "status", "aria-label": text }, lines);
}

/** A panel for work that takes its time, and what to call with (done, of) as it goes on. */
export function working(region, title, note) {
  const bar = el("progress", { max: 1, "aria-label": title });
  const amount = el("p", { class: "faint", role: "status" }, "starting");
  const panel = el(
    "div",
    { class: "state card working" },
    el("h2", {}, title),
    bar,
    amount,
    note && el("p", { class: "faint" }, note),
  );
  let shown = false;
  let first = null; // when it was how far
  return (done, of) => {
    first ??= { done, time: performance.now() };
    if (!shown) region.replaceChildren(panel);
    shown = true;
    if (of > 0) bar.value = Math.min(1, done / of);
    amount.textContent = of > 0 ? `${count(done)} of ${count(of)}${remaining(first, done, of)}` : "starting";
  };
}

/** The time that is left, once there is something to tell it from. */
function remaining(first, done, of) {
  const seconds = (performance.now() - first.time) / 1000;
  if (seconds < 3 || done <= first.done) return "";
  const left = Math.ceil(((of - done) * seconds) / (done - first.done));
  return left < 90
    ? `, about ${plural(left, "second")} left`
    : `, about ${plural(Math.round(left / 60), "minute")} left`;
}

/** Nothing is there, and that is no error. */
export function empty(title, ...children) {
  return el("div", { class: "state card" }, el("h2", {}, title), ...children);
}

/** An error with its remedy; `correct` makes the address with a suggestion in place of what was not found. */
export function failed(problem, { retry, correct } = {}) {
  if (problem instanceof Offline) {
    return el(
      "div",
      { class: "state card" },
      el("h2", {}, icon("warn"), "Nothing to show: the server has stopped"),
      el(
        "p",
        {},
        "Start it again with ",
        el("code", {}, "kgem serve"),
        "; this page goes on by itself when it is back.",
      ),
    );
  }
  const told = problem instanceof Refused ? problem : null;
  const instead = correct && told ? told.suggestions : [];
  return el(
    "div",
    { class: "state card", role: "alert" },
    el("h2", {}, icon("warn"), told?.kind === "unknown-label" ? "The graph does not have that" : "That did not work"),
    el("p", {}, el("bdi", {}, capital(problem.message))),
    told?.remedy && !instead.length && el("p", { class: "faint" }, el("bdi", {}, capital(told.remedy))),
    instead.length > 0 && suggestions(instead, correct),
    retry &&
      told?.kind !== "unknown-label" &&
      el("p", {}, el("button", { class: "button", type: "button", onclick: retry }, "Try again")),
  );
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function suggestions(labels, correct) {
  const links = labels.map((label) => el("li", {}, el("a", { class: "chip", href: correct(label) }, brief(label))));
  return el(
    "div",
    { class: "suggestions" },
    el("p", { id: "did-you-mean" }, "Did you mean"),
    el("ul", { class: "chips", "aria-labelledby": "did-you-mean" }, links),
  );
}
