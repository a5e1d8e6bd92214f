// Starts the page: one view at a time in <main>, chosen by the address; banner, theme, title, focus and scrolling.

import { about, connection } from "./api.js";
import { ask } from "./ask.js";
import { el } from "./dom.js";
import { icon } from "./icons.js";
import { entity } from "./entity.js";
import { graph } from "./graph.js";
import { review } from "./review.js";
import { FIRST, href, parse } from "./router.js";
import { failed } from "./states.js";
import { count, plural, quoted } from "./words.js";

const VIEWS = { ask, entity, graph, review };
const NAMES = { ask: "Ask", entity: "Entities", graph: "Graph", review: "Review" };
const AGAIN = 1500; // milliseconds between looks for a server that has gone

const main = document.getElementById("main");
const page = { about: null, announce, titled, reviewed };
let mounted = null; // the view that is shown
let leaving = new AbortController(); // ends the work for the address before
let starting = false;
let steps = 0; // of the history, to tell back from forth
const places = new Map(); // how far each step was scrolled

function announce(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 60); // the same words twice are to be heard twice
}

function titled(text) {
  document.title = [text, page.about?.name, "kgem"].filter(Boolean).join(" · ");
}

function reviewed(counts) {
  const decided = counts.accept + counts.reject;
  const badge = document.getElementById("decided");
  badge.textContent = decided ? count(decided) : "";
  badge.setAttribute("aria-label", decided ? `${count(decided)} decided` : "");
  badge.hidden = !decided;
}

async function show() {
  const route = parse(location.hash);
  const view = VIEWS[route.view] ? route.view : FIRST;
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const returning = history.state?.step !== undefined;
  if (!returning) history.replaceState({ step: ++steps }, "");
  const { step } = history.state;
  steps = Math.max(steps, step);
  const place = places.get(step) ?? 0; // now: what is shown next scrolls by itself
  const changed = mounted?.view !== view;
  const first = mounted === null;
  if (changed) {
    mounted?.leave?.();
    main.replaceChildren();
    mounted = { view, ...VIEWS[view](main, page) };
  }
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    await mounted.update(route, signal);
  } catch (problem) {
    if (signal.aborted) return;
    mounted.body.replaceChildren(failed(problem, { retry: show, correct: mounted.correct?.(route, problem) }));
    if (!main.querySelector("h1")) mounted.body.prepend(el("h1", {}, NAMES[view]));
  }
  if (signal.aborted) return;
  settle(changed, first);
  if (returning) scrollTo(0, place);
  else if (changed) scrollTo(0, 0);
  mounted.body.querySelector("[role=alert]")?.scrollIntoView({ block: "center" }); // below a form it may be out of sight
}

/** Where the keyboard is after a change: at the heading of what is new, unless it is still at something. */
function settle(changed, first) {
  const gone = document.activeElement === document.body || document.activeElement === null;
  if (first || (!changed && !gone)) return;
  const heading = (!changed && mounted.body.querySelector("h1, h2")) || main.querySelector("h1");
  if (!heading || main.contains(document.activeElement)) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function navigation() {
  const links = Object.entries(NAMES).map(([view, text]) =>
    el(
      "a",
      { href: href(view), "data-view": view },
      icon(view),
      el("span", {}, text),
      view === "review" && el("b", { id: "decided", class: "count", hidden: true }),
    ),
  );
  document.getElementById("nav").replaceChildren(...links);
}

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function themes() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const order = Object.keys(THEMES);
  const draw = () => {
    const theme = root.dataset.theme ?? "auto";
    button.replaceChildren(icon({ auto: "auto", light: "sun", dark: "moon" }[theme]));
    button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
    button.title = `Colours: ${THEMES[theme]}`;
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme ?? "auto") + 1) % order.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("kgem-theme", next);
    } catch {
      // It holds until the page is closed.
    }
    draw();
    page.announce(button.title);
    dispatchEvent(new Event("themechange"));
  });
  draw();
}

function described({ name, run, version, model, unfinished, graph: sizes }) {
  document.getElementById("run").textContent = unfinished ? `${run} (unfinished)` : run;
  const facts = Object.values(sizes.facts).reduce((sum, n) => sum + n, 0);
  const amounts = [
    plural(sizes.entities, "entity", "entities"),
    plural(sizes.relations, "relation"),
    plural(facts, "fact"),
  ];
  const text = `${name}: ${amounts.join(", ")} · ${model.score}, K = ${count(model.dim)}`;
  document
    .getElementById("foot")
    .replaceChildren(
      el("span", {}, el("bdi", {}, text)),
      ...(unfinished ? [el("span", {}, unfinished)] : []),
      el(
        "span",
        {},
        `kgem ${version} · everything stays on this machine · `,
        el("a", { href: "/openapi.json" }, "API"),
      ),
    );
}

function watch() {
  const banner = document.getElementById("banner");
  connection.addEventListener("lost", () => {
    const command = `kgem serve${page.about ? ` ${quoted(page.about.path)}` : ""}`;
    banner.replaceChildren(
      el(
        "div",
        { class: "inner" },
        icon("warn"),
        el(
          "span",
          {},
          el("b", {}, "The server has stopped."),
          " Start it again with ",
          el("code", {}, command),
          ". Nothing that was decided is lost.",
        ),
      ),
    );
    look();
  });
  connection.addEventListener("back", () => {
    banner.replaceChildren();
    announce("The server is back");
    start();
  });
}

function look() {
  setTimeout(() => about().catch(look), AGAIN); // whatever answers also says "back"
}

async function start() {
  if (starting) return; // its own question has brought the server back
  starting = true;
  try {
    page.about = await about();
  } catch (problem) {
    main.replaceChildren(failed(problem, { retry: start }));
    mounted = null;
    return;
  } finally {
    starting = false;
  }
  described(page.about);
  reviewed({ accept: page.about.review.accepted, reject: page.about.review.rejected });
  await show();
}

history.scrollRestoration = "manual";
addEventListener("scroll", () => history.state?.step !== undefined && places.set(history.state.step, scrollY), {
  passive: true,
});
addEventListener("hashchange", () => {
  if (page.about) show();
});
document.querySelector(".skip-link").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
navigation();
themes();
watch();
start();
