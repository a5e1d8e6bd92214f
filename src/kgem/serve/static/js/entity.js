// One entity: its facts, what the model expects of it, what is similar, how strongly it is regularised.

import { get, Refused } from "./api.js";
import { badge, bar, figures, why } from "./answers.js";
import { combobox } from "./combobox.js";
import { brief, el, name } from "./dom.js";
import { icon } from "./icons.js";
import { said } from "./names.js";
import { go, href } from "./router.js";
import { awaited } from "./states.js";
import { among, count, figure, plural } from "./words.js";

const FACTS = 200; // fetched at first
const FEW = 8; // of a group, until one asks for the rest

export function entity(root, page) {
  const body = el("div", { class: "entity-body" });
  const finder = combobox({
    id: "find-entity",
    label: "Find an entity",
    kind: "entities",
    placeholder: "Find an entity",
    hideLabel: true,
    announce: page.announce,
    choose: (label) => label && go(href("entity", { label })),
  });
  root.append(el("div", { class: "finder", role: "search" }, finder.root), body);

  async function update({ params }, signal) {
    const { label } = params;
    page.titled(label ? said(label) : "Entities");
    finder.set("");
    if (!label) {
      const found = await awaited(body, get("entities", { limit: 30 }, signal));
      if (!signal.aborted) body.replaceChildren(...start(found));
      return;
    }
    const found = await awaited(
      body,
      get("entity", { label, limit: Math.max(FACTS, Number(params.facts) || 0) }, signal),
    );
    if (signal.aborted) return;
    body.replaceChildren(
      heading(found),
      el("div", { class: "columns" }, el("div", { class: "wide stack" }, expected(found), facts(found)), aside(found)),
    );
    page.announce(`${said(label)}: ${plural(found.total_facts, "fact")}, ${plural(found.expected.length, "expected fact")}`);
  }

  const correct = (route, problem) => (problem instanceof Refused ? (label) => href("entity", { label }) : null);
  return { body, update, correct };
}

function start({ items, total }) {
  return [
    el("h1", {}, "Entities"),
    el("p", { class: "lead" }, `${count(total)} of them; these occur in most facts.`),
    el(
      "ul",
      { class: "chips" },
      items.map((item) =>
        el(
          "li",
          {},
          el(
            "a",
            { class: "chip", href: href("entity", { label: item.label }) },
            brief(item.label),
            el("small", {}, count(item.frequency)),
          ),
        ),
      ),
    ),
  ];
}

function heading({ label, frequency, total_facts: total }) {
  return el(
    "div",
    { class: "entity-head" },
    el("h1", {}, name(label)),
    el("p", { class: "lead" }, `${plural(total, "fact")}, ${count(frequency)} of them in training.`),
    el("a", { class: "button primary", href: href("ask", { head: label }) }, icon("ask"), "Ask about it"),
  );
}

/** A fact in words, where the entity that the page is about is no link. */
function factLine(fact, label) {
  const end = (which) =>
    fact[which] === label
      ? name(fact[which], "who self")
      : el("a", { class: "go", href: href("entity", { label: fact[which] }) }, name(fact[which], "who"));
  return el("span", { class: "sentence" }, end("head"), " ", name(fact.relation, "how"), " ", end("tail"), " ", why(fact));
}

function expected({ label, expected: list }) {
  const rows = list.map((fact) => {
    const question =
      fact.side === "head"
        ? { relation: fact.relation, tail: fact.tail }
        : { head: fact.head, relation: fact.relation };
    return el(
      "li",
      { class: "expected" },
      factLine(fact, label),
      bar({ probability: fact.chance ?? fact.share ?? fact.probability }),
      figures({ probability: fact.chance ?? fact.probability }),
      el(
        "a",
        {
          class: "further",
          href: href("ask", question),
          title: "See all answers to this question",
          "aria-label": "See all answers to this question",
        },
        icon("further"),
      ),
    );
  });
  const best = list[0]?.share ?? 1;
  const more = el(
    "button",
    {
      class: "button quiet",
      type: "button",
      onclick: () => {
        for (const row of rows) row.hidden = false;
        more.remove();
        rows[FEW].querySelector("a").focus();
      },
    },
    `Show ${count(rows.length - FEW)} more`,
  );
  for (const row of rows.slice(FEW)) row.hidden = true;
  return el(
    "section",
    { class: "card", "aria-labelledby": "expected" },
    el("h2", { id: "expected" }, "Expected of it"),
    el(
      "p",
      { class: "meaning" },
      "Facts that the graph does not have, the likeliest first. ",
      "A full bar: as probable as an answer that the graph has.",
      best < 0.5 && " Nothing stands out here.",
    ),
    rows.length
      ? el("ol", { class: "plain" }, rows)
      : el("p", { class: "faint" }, "Nothing: training shows too little of it."),
    rows.length > FEW && more,
  );
}

function facts({ label, facts: list, total_facts: total }) {
  const groups = new Map();
  for (const fact of list) {
    const forward = fact.head === label;
    const key = `${forward ? 0 : 1} ${fact.relation}`;
    if (!groups.has(key)) groups.set(key, { forward, relation: fact.relation, items: [] });
    groups.get(key).items.push(fact);
  }
  const rows = [...groups.values()].sort(
    (a, b) => Number(b.forward) - Number(a.forward) || a.relation.localeCompare(b.relation),
  );
  return el(
    "section",
    { class: "card", "aria-labelledby": "facts" },
    el("h2", { id: "facts" }, "Facts"),
    rows.length
      ? el(
          "dl",
          { class: "facts" },
          rows.map((group) => factGroup(group, label)),
        )
      : el("p", { class: "faint" }, "The graph has none."),
    total > list.length &&
      el(
        "p",
        { class: "faint" },
        `${count(list.length)} of ${count(total)} are shown. `,
        el("a", { href: href("entity", { label, facts: Math.min(total, 10 * list.length) }) }, "Show more"),
      ),
  );
}

function factGroup({ forward, relation, items }, label) {
  const question = forward ? { head: label, relation } : { relation, tail: label };
  const links = items.map((fact) => {
    const other = forward ? fact.tail : fact.head;
    return el(
      "li",
      {},
      el("a", { class: "chip", href: href("entity", { label: other }) }, brief(other)),
      fact.split !== "train" && badge(fact.split),
      why(fact),
    );
  });
  const list = el("ul", { class: "chips" }, links);
  if (links.length > FEW + 2) {
    for (const link of links.slice(FEW)) link.hidden = true;
    const more = el(
      "button",
      {
        class: "chip more",
        type: "button",
        onclick: () => {
          for (const link of links) link.hidden = false;
          more.parentElement.remove();
          links[FEW].querySelector("a").focus();
        },
      },
      `${count(links.length - FEW)} more`,
    );
    list.append(el("li", {}, more));
  }
  return el(
    "div",
    {},
    el(
      "dt",
      {},
      !forward && el("span", { class: "faint" }, "← "),
      el("a", { class: "quiet-link", href: href("ask", question), title: "Ask the model this" }, name(relation, "how")),
      forward && el("span", { class: "faint" }, " →"),
      el("small", {}, count(items.length)),
    ),
    el("dd", {}, list),
  );
}

function aside({ label, frequency, strength, strength_quantile: quantile, similar }) {
  return el(
    "aside",
    { class: "aside", "aria-label": "The entity among all" },
    el(
      "section",
      { class: "card", "aria-labelledby": "strength" },
      el("h2", { id: "strength", class: "small-head" }, "Strength"),
      el("p", { class: "big" }, figure(strength)),
      el(
        "div",
        { class: "strip", "aria-hidden": "true", vars: { at: `${(100 * quantile).toFixed(1)}%` } },
        el("i", {}),
      ),
      el("div", { class: "ends", "aria-hidden": "true" }, el("span", {}, "lowest"), el("span", {}, "highest")),
      el(
        "p",
        {},
        `Its regulariser is ${among(quantile, "entities")}: `,
        `its vector ${quantile >= 0.5 ? "is held closer to zero" : "may be long"}.`,
      ),
      el(
        "p",
        { class: "faint small" },
        `Learned from the data, one per entity; it occurs in ${plural(frequency, "training fact")}. `,
        el("a", { href: href("graph/strengths", { find: label }) }, "See it among all"),
      ),
    ),
    el(
      "section",
      { class: "card", "aria-labelledby": "similar" },
      el("h2", { id: "similar", class: "small-head" }, "Similar"),
      similar.length
        ? el(
            "ol",
            { class: "plain similar" },
            similar.map((item) =>
              el(
                "li",
                {},
                el("a", { class: "go", href: href("entity", { label: item.label }) }, brief(item.label)),
                bar({ probability: Math.max(0, item.cosine) }),
                el("small", { title: "Cosine of the vectors" }, item.cosine.toFixed(2)),
              ),
            ),
          )
        : el("p", { class: "faint" }, "Nothing."),
    ),
  );
}
