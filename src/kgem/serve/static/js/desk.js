// The desk of a review: one fact on it, what speaks for it, the decision, and those that were made before.

import { get, Offline, post } from "./api.js";
import { answerList, badge, figures, why } from "./answers.js";
import { el, name } from "./dom.js";
import { icon } from "./icons.js";
import { href } from "./router.js";
import { awaited, empty, failed } from "./states.js";
import { count, fit, percent, plural, quoted, when } from "./words.js";

const RECENT = 8; // decisions that are listed
const [BESIDE, LOOKED] = [6, 200]; // other answers that are shown, and among which the fact's own is looked for
const LONG = 120; // characters of a fact that needs smaller letters
export const KINDS = {
  missing: {
    path: "missing",
    title: "Missing facts",
    question: "Should the graph have this?",
    accept: "Accept",
    reject: "Reject",
    lead: "What the graph does not have and may lack, most credible first.",
  },
  doubtful: {
    path: "doubtful",
    title: "Doubtful facts",
    question: "Is this right?",
    accept: "Keep",
    reject: "Drop",
    lead: "What the graph has and the model finds least probable: often errors in the data.",
  },
};
const DONE = {
  missing: { accept: "accepted", reject: "rejected", skip: "skipped" },
  doubtful: { accept: "kept", reject: "dropped", skip: "skipped" },
};

let underway = Promise.resolve(); // the decision that was sent last

/** When all decisions are answered: a list that is read then has them. */
export const settled = () => underway;

const key = ({ head, relation, tail }) => JSON.stringify([head, relation, tail]);
const words = ({ head, relation, tail }) => `${head} ${relation} ${tail}`;

/** The desk with one fact on it; `act` hears accept, reject, skip, undo. */
export function reviewDesk(body, { facts, relations }, log, kind, relation, page, keys) {
  const { question, accept, reject } = KINDS[kind];
  const byKey = new Map(facts.map((fact) => [key(fact), fact]));
  let { decisions, counts } = log;
  let current = facts.findIndex((fact) => !fact.decision);
  let busy = false;
  let looking = new AbortController(); // for the context of the fact that is shown

  const sheet = el("div", { class: "fact-sheet" });
  const context = el("div", { class: "context" });
  const problem = el("div", {});
  const buttons = [
    button("accept", accept, "tick", "A", "good"),
    button("reject", reject, "close", "R", "bad"),
    button("skip", "Skip", "skip", "S", ""),
    button("undo", "Undo", "undo", "U", ""),
  ];
  const actions = el("div", { class: "actions", role: "group", "aria-label": "Decision" }, buttons);
  const progress = el("progress", { max: Math.max(1, facts.length), "aria-label": "Decided of this list" });
  const progressText = el("p", { class: "faint small" });
  const tally = el("dl", { class: "tally" });
  const recent = el("div", {});
  const byRelation = relationList(kind, relation, relations, facts);
  const done = el("div", {});
  const desk = el(
    "section",
    { class: "card desk", "aria-label": question },
    el("p", { class: "eyebrow" }, question),
    sheet,
    actions,
    el("label", { class: "switch keys" }, keys, el("span", {}, "Decide by keys: A, R, S, U")),
    problem,
    context,
  );
  body.replaceChildren(
    el("div", { class: "wide" }, el("div", { class: "progress-row" }, progress, progressText), desk, done),
    el(
      "aside",
      { class: "aside", "aria-label": "Decisions" },
      el(
        "section",
        { class: "card", "aria-labelledby": "decisions" },
        el("h2", { id: "decisions", class: "small-head" }, "Decisions"),
        tally,
        recent,
      ),
      byRelation.root,
      learn(page.about.path, log.problems ?? []),
    ),
  );

  function button(what, text, picture, letter, className) {
    return el(
      "button",
      {
        class: `button act ${className}`,
        type: "button",
        "data-act": what,
        "aria-keyshortcuts": letter,
        onclick: () => act(what),
      },
      icon(picture),
      el("span", {}, text),
      el("kbd", { "aria-hidden": "true" }, letter),
    );
  }

  async function act(what) {
    if (busy) return;
    const fact = what === "undo" ? decisions.find((each) => each.kind === kind) : facts[current];
    if (!fact) return;
    busy = true;
    problem.replaceChildren();
    try {
      const { head, relation: how, tail } = fact;
      const answer = post("review", { head, relation: how, tail, decision: what, kind });
      underway = answer.catch(() => {}); // told below
      ({ counts } = await answer);
      noted(fact, what);
    } catch (refused) {
      problem.replaceChildren(refused instanceof Offline ? unheard() : failed(refused));
    } finally {
      busy = false;
    }
  }

  /** A decision is on disk: show it, and what comes next. */
  function noted(fact, what) {
    const mine = byKey.get(key(fact));
    decisions = decisions.filter((each) => key(each) !== key(fact));
    if (what === "undo") {
      if (mine) {
        mine.decision = null;
        current = facts.indexOf(mine);
      }
    } else {
      decisions.unshift({
        head: fact.head,
        relation: fact.relation,
        tail: fact.tail,
        decision: what,
        kind,
        time: new Date().toISOString(),
      });
      fact.decision = what;
      const after = facts.findIndex((each, place) => place > current && !each.decision);
      current = after >= 0 ? after : facts.findIndex((each) => !each.decision);
    }
    page.reviewed(counts);
    draw();
    const next = facts[current];
    const said = what === "undo" ? "Taken back" : DONE[kind][what];
    const coming = next ? `Next: ${words(next)}, ${percent(shown(next).probability)}` : "That was the last one";
    page.announce(`${said}: ${words(fact)}. ${coming}`);
  }

  function draw() {
    const decided = facts.filter((fact) => fact.decision).length;
    progress.value = decided;
    progressText.textContent = `${count(decided)} of ${count(facts.length)} decided`;
    tally.replaceChildren(
      ...["accept", "reject", "skip"].map((what) =>
        el(
          "div",
          { class: what },
          el("dt", {}, { accept: "accepted", reject: "rejected", skip: "skipped" }[what]),
          el("dd", {}, count(counts[what] ?? 0)),
        ),
      ),
    );
    drawRecent();
    byRelation.draw();
    const fact = facts[current];
    desk.hidden = !fact;
    done.replaceChildren(
      ...(fact ? [] : [finished(facts.length, kind, relation, () => act("undo"), decisions.length > 0)]),
    );
    for (const each of buttons)
      each.disabled = each.dataset.act === "undo" && !decisions.some((decision) => decision.kind === kind);
    if (fact) drawFact(fact);
  }

  function drawFact(fact) {
    const end = (label) => el("a", { class: "go", href: href("entity", { label }) }, name(label, "who"));
    sheet.replaceChildren(
      el("h2", { class: words(fact).length > LONG ? "fact long" : "fact" }, end(fact.head), " ", name(fact.relation, "how"), " ", end(fact.tail)),
      el("p", { class: "fact-notes" }, figures(shown(fact)), badge(fact.known), el("span", { class: "faint" }, meaning(fact)), why(fact)),
      reasons(fact) || "",
    );
    drawContext(fact);
  }

  /** The other answers to the same question, those that the graph has marked. */
  async function drawContext(fact) {
    looking.abort();
    const { signal } = (looking = new AbortController());
    const asked =
      fact.side === "head"
        ? { relation: fact.relation, tail: fact.tail }
        : { head: fact.head, relation: fact.relation };
    try {
      const { answers } = await awaited(context, get("predict", { ...asked, top: LOOKED }, signal));
      const title = el(
        "h3",
        {},
        "Answers to the same question: ",
        el(
          "a",
          { class: "go", href: href("ask", asked) },
          name(asked.head ?? "?"),
          " ",
          name(asked.relation),
          " ",
          name(asked.tail ?? "?"),
        ),
      );
      context.replaceChildren(
        title,
        answerList(answers, fact.side, asked, { mine: fact[fact.side], shown: BESIDE, label: "Answers to the same question" }),
      );
    } catch (refused) {
      if (!signal.aborted) context.replaceChildren();
    }
  }

  function drawRecent() {
    const rows = decisions
      .slice(0, RECENT)
      .map((each) =>
        el(
          "li",
          { class: each.decision },
          el("span", { class: "verdict" }, (DONE[each.kind] ?? DONE.missing)[each.decision] ?? each.decision),
          el(
            "span",
            { class: "sentence" },
            name(each.head, "who"),
            " ",
            name(each.relation, "how"),
            " ",
            name(each.tail, "who"),
          ),
          el("small", {}, when(each.time), " ", why(each)),
        ),
      );
    recent.replaceChildren(
      rows.length
        ? el("ol", { class: "plain recent", "aria-label": "Recent decisions" }, rows)
        : el("p", { class: "faint small" }, "None yet. Each is written into the run's folder at once."),
    );
  }

  draw();
  return { act };
}

/** The relations of the whole list with how many facts of each are undecided, most first; `draw` counts anew. */
function relationList(kind, relation, relations, facts) {
  const open = new Set(facts.filter((fact) => !fact.decision));
  const link = (target, ...content) => {
    const current = target === (relation ?? null) ? "true" : null;
    const address = href("review", { kind: kind === "missing" ? null : kind, relation: target });
    return el("li", {}, el("a", { class: "chip", href: address, "aria-current": current }, ...content));
  };
  const rows = relations.map((each) => {
    const number = el("small", {});
    return { ...each, number, row: link(each.relation, name(each.relation), number) };
  });
  const list = el("ul", { class: "chips" }, link(null, "Whole graph"), rows.map(({ row }) => row));
  const draw = () => {
    for (const each of rows) {
      const mine = facts.filter((fact) => fact.relation === each.relation);
      const since = mine.filter((fact) => open.has(fact)).length - mine.filter((fact) => !fact.decision).length;
      each.number.textContent = count(each.pending - since);
    }
  };
  const title = el("h2", { id: "by-relation", class: "small-head" }, "By relation");
  const note = el("p", { class: "faint small" }, "How many of the first thousand are undecided.");
  return { root: el("section", { class: "card", "aria-labelledby": "by-relation" }, title, note, list), draw };
}

function unheard() {
  return el(
    "p",
    { class: "unheard", role: "alert" },
    icon("warn"),
    " This decision was not confirmed. When the server is back, the list shows what is on disk.",
  );
}

/** What stands for a fact: how often candidates like it were right, where that was learned. */
const shown = ({ chance, probability }) => ({ probability: chance ?? probability });

/** What speaks for a proposal, and against it. */
function reasons({ like = [], against = [] }) {
  const rows = [
    ...like.map(([head, relation, tail]) =>
      el("li", {}, el("span", { class: "faint" }, "like "), name(head, "who"), " ", name(relation, "how"), " ", name(tail, "who"), " ", why({ head, relation, tail })),
    ),
    ...against.map((text) => el("li", { class: "against" }, icon("warn"), " ", el("bdi", {}, text))),
  ];
  return rows.length > 0 && el("ul", { class: "plain reasons small", "aria-label": "Reasons" }, rows);
}

function meaning({ chance, known, share, side }) {
  if (chance !== null && chance !== undefined)
    return known
      ? "that it is right rather than a plausible mistake"
      : "of candidates like this one were among the facts hidden from training";
  const whose = `as the ${side}`;
  if (share === null || share === undefined) return `${whose}, with the other known answers left out`;
  return `${whose}; ${fit(share)}`;
}

function finished(total, kind, relation, undo, can) {
  if (!total)
    return empty(
      "Nothing to review",
      el("p", {}, relation ? "There are no such facts of this relation." : "There are no such facts."),
      relation &&
        el("a", { class: "button", href: href("review", { kind: kind === "missing" ? null : kind }) }, "Whole graph"),
    );
  const other = kind === "missing" ? "doubtful" : "missing";
  return empty(
    `All ${plural(total, "fact")} are decided`,
    el(
      "p",
      {},
      "Narrow the list to a relation to see more of it, or go on with the ",
      el("a", { href: href("review", { kind: other === "missing" ? null : other }) }, KINDS[other].title.toLowerCase()),
      ".",
    ),
    can && el("button", { class: "button", type: "button", onclick: undo }, icon("undo"), "Undo the last one"),
  );
}

function learn(path, problems) {
  const folder = quoted(path);
  return el(
    "section",
    { class: "card", "aria-labelledby": "learn" },
    el("h2", { id: "learn", class: "small-head" }, "Use them"),
    el(
      "p",
      {},
      el("a", { class: "button", href: "/api/review.tsv", download: "review.tsv" }, icon("save"), "Export TSV"),
    ),
    el("p", { class: "faint small" }, "To learn from them, where kgem serve was started:"),
    el("pre", { tabindex: "0" }, `kgem update ${folder} ${folder}/review.tsv`),
    problems.length > 0 &&
      el(
        "p",
        { class: "faint small" },
        icon("warn"),
        ` ${plural(problems.length, "line")} of the file made no sense and did not count: `,
        el("bdi", {}, problems[0]),
      ),
  );
}
