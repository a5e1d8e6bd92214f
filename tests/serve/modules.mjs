// Parses every module in a folder and joins each to what it imports, as a browser does before it runs them; says what
// is wrong: no such module, nothing of that name in it, names that are imported or exported for nobody.

import { readFileSync, readdirSync } from "node:fs";
import { SourceTextModule } from "node:vm";

const [folder] = process.argv.slice(2);
const texts = new Map(
  readdirSync(folder).map((name) => [name, readFileSync(`${folder}/${name}`, "utf8").replaceAll(/^ *\/\/.*$/gm, "")]),
);
const modules = new Map();
const wrong = [];

function module(name, from) {
  if (!texts.has(name)) throw new Error(`${from} imports ${name}, which is not there`);
  if (!modules.has(name)) modules.set(name, new SourceTextModule(texts.get(name), { identifier: name }));
  return modules.get(name);
}

for (const name of texts.keys()) {
  try {
    const parsed = module(name);
    if (parsed.status === "unlinked") await parsed.link((specifier, from) => module(specifier.slice(2), from.identifier));
  } catch (problem) {
    wrong.push(`${name}: ${problem.message}`);
  }
}

const used = new Set();
const offered = new Set();
for (const [name, text] of texts) {
  for (const [, names, from] of text.matchAll(/^import \{([^}]*)\} from "\.\/([^"]+)";$/gm)) {
    for (const each of names.split(",").map((part) => part.trim()).filter(Boolean)) {
      used.add(`${from}: ${each}`);
      if (text.match(new RegExp(`\\b${each}\\b`, "g")).length < 2) wrong.push(`${name}: ${each} is not used`);
    }
  }
  for (const [, own] of text.matchAll(/^export (?:async )?(?:function|const|class|let) (\w+)/gm))
    offered.add(`${name}: ${own}`);
}
for (const each of offered) if (!used.has(each)) wrong.push(`${each} is exported for nobody`);
if (wrong.length) {
  console.error(wrong.join("\n"));
  process.exitCode = 1;
}
